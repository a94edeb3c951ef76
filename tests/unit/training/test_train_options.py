"""The command line of a training."""

import re

import pytest

from tests.support.imports import heavy_imports
from training.train_options import parse_args


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Wanted one source of images: .*Found: none"),
        (["a", "b", "--split", "s"], "Found: TRAIN_DIR VAL_DIR and --split"),
        (["a"], "two folders, TRAIN_DIR VAL_DIR. Found: a"),
        (["--train-rows-fn", "r"], "Found: one of them"),
        (["--split", "s", "--train-data-table", "ks.t"], "a data table without --train-rows-fn"),
        (["--train-shards", "a", "--val-shards", "b", "--on-missing", "skip"], "--on-missing .* Found: shards"),
        (["--train-shards", "a", "--val-shards", "b", "--on-changed", "accept"], "--on-changed .* Found: another"),
        (["--train-shards", "a", "--val-shards", "b", "--sampling", "balanced"], "--sampling .* Found: shards"),
        (["--train-shards", "a", "--val-shards", "b", "--class-weight", "a=2"], "--class-weight .* Found: shards"),
        (["--split", "s", "--class-weight", "a"], "CLASS=X with a number X of 0 or more. Found: 'a'"),
        (["--split", "s", "--class-weight", "a=-1"], "Found: 'a=-1'"),
        (["--split", "s", "--class-weight", "a=1", "--class-weight", "a=2"], "each class once in --class-weight"),
        (["--split", "s", "--dataset", "d"], "--dataset with TRAIN_DIR VAL_DIR"),
        (
            ["--split", "s", "--val-index", "0"],
            "different splits .*Found: index 0 for both. Use --validate-on-training",
        ),
        (["--split", "s", "--val-index", "-1"], "--val-index of 0 or more. Found: -1"),
        (["--split", "s", "--b", "0"], "--batch-size of 1 or more. Found: 0"),
        (["--split", "s", "--lr", "nan"], "--lr of 0 or more. Found: nan"),
        (["--split", "s", "--loss-scale", "much"], "--loss-scale as a number above 0, or dynamic. Found: 'much'"),
        (["--split", "s", "--label-smoothing", "1"], "from 0 to below 1"),
        (["--split", "s", "--classes", "0"], "--classes of 1 or more"),
        (["--split", "s", "--opt-level", "O3"], "wanted O0, O1 or O2. Found: O3."),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse_args(arguments)
    assert re.search(message, capsys.readouterr().err)


def test_weights_of_classes_are_given_by_name() -> None:
    options = parse_args(["--split", "s", "--class-weight", "a=b=2", "--class-weight", "3=0.5"])
    assert options.class_weights == {"a=b": 2.0, "3": 0.5}
    assert parse_args(["--split", "s"]).class_weights is None


def test_help_imports_no_torch() -> None:
    code = """
import contextlib
from training import loop_read, train
for script in (loop_read, train):
    with contextlib.suppress(SystemExit):
        script.main(["--help"])
"""
    assert heavy_imports(code) == set()
