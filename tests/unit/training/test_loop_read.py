"""The reading test's command line and its figures."""

import pytest

from training import train_options
from training.loop_read import Epoch, parse_args, summary


def test_the_mean_is_over_the_time_of_all_epochs_but_the_first() -> None:
    epochs = [Epoch(100, 10, 1_000_000, seconds) for seconds in (9.0, 1.0, 3.0)]
    found = summary(epochs)
    assert found is not None
    assert found["mean"] == {"images_per_second": 50.0, "batches_per_second": 5.0, "mb_per_second": 0.5}
    assert found["deviation"]["images_per_second"] == pytest.approx(100 / 3)
    alone = summary(epochs[:1])
    assert alone is not None
    assert alone["mean"]["images_per_second"] == pytest.approx(100 / 9)


@pytest.mark.parametrize("seconds", [(9.0, 2.0, 0.9), (0.5,)])
def test_epochs_that_are_too_short_give_no_figure(seconds: tuple[float, ...]) -> None:
    assert summary([Epoch(100, 10, 1_000_000, one) for one in seconds]) is None


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ("--split s -b 7", "batch_size", 7),
        ("--split s --b 7", "batch_size", 7),
        ("--split s --batch-size 7", "batch_size", 7),
        ("--split s --bs 7", "batch_size", 7),  # the older name
        ("--split s -j 3", "workers", 3),
        ("--split s --workers 3", "workers", 3),
        ("--split-fn s --device cuda", "device", "cuda"),
        ("--split s --use-gpu", "device", "cuda"),  # the older name
        ("--split s --hosts a,b --port 1", "hosts", ("a", "b")),
        ("--split s --epochs 2", "epochs", 2),
    ],
)
def test_training_and_reading_take_the_same_names(given: str, field: str, value: object) -> None:
    both = parse_args(given.split()), train_options.parse_args(given.split())
    assert [getattr(options, field) for options in both] == [value, value]


def test_reading_takes_the_names_of_the_training_side() -> None:
    rows = parse_args(["--train-rows-fn", "r", "--train-data-table", "k.t"])
    assert (rows.rows_fn, rows.data_table) == ("r", "k.t")
    assert parse_args(["--split", "s", "--train-index", "3"]).index == 3
    assert parse_args(["--reader", "s3", "--train-shards", "s3://b/x"]).shards == "s3://b/x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Wanted --split or --rows-fn, or --reader file with --file-root. Found: nothing"),
        (["--split", "s", "--rows-fn", "r"], "Found: --split, --rows-fn"),
        (["--reader", "file"], "Wanted only --file-root with --reader file. Found: nothing"),
        (["--reader", "file", "--file-root", "f", "--split", "s"], "Found: --split, --file-root"),
        (["--split", "s", "--data-table", "ks.t"], "--data-table with --rows-fn"),
        (["--reader", "s3"], "Wanted only --shards with --reader s3. Found: nothing"),
        (
            ["--reader", "shards", "--shards", "s3://b/x"],
            "a local folder of shards with --reader shards. Found: s3://b/x. Use",
        ),
        (["--split", "s", "--shards", "s"], "Found: --split, --shards"),
        (["--split", "s", "--bs", "0"], "--batch-size of 1 or more. Found: 0"),
        (["--split", "s", "--epochs", "0"], "--epochs of 1 or more. Found: 0"),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse_args(arguments)
    assert message in capsys.readouterr().err
