"""Training as users start it: from Cassandra and from files, on one rank and on several, stopped and continued."""

import hashlib
import io
import json
import os
import pickle
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import numpy as np
import pytest
import torch
from torchvision.datasets import ImageFolder

import loader
from imagestrata.cli import main as imagestrata
from imagestrata.devstack.servers.cassandra import Cassandra
from loader.shards import make_client, upload_cv_dataset
from schemas.models import SUFFIX, ModelRecord
from tests.support.pictures import picture, write_table
from tests.support.rank_pairs import RankPair
from tests.support.services import fresh_name
from tests.support.split_dictionaries import theirs
from tests.support.split_folders import write_split_folder
from tests.support.torch_threads import one_thread
from training import TrainingError
from training.checkpoints import Checkpoint
from training.train import main
from training.train_options import TrainOptions
from training.trainer import lr_at

SCRIPT = Path(__file__).resolve().parents[2] / "training" / "train.py"
COUNTS = {"train": 96, "val": 22}
CLASSES = 4
MODELS = "tests.support.small_models"
SMALL = ["-a", f"{MODELS}:tiny", "--size=16", "--workers=2", "--lr=2", "--warmup=1", "--epochs=2"]


class Data(NamedTuple):
    """The same images as trees of files, a split of a table, another tool's dictionary, rows of two tables, shards."""

    root: Path
    keyspace: str
    files: list[str]
    split: list[str]
    split_fn: list[str]
    rows: list[str]
    shards: list[str]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder for the loader's cache."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("IMAGESTRATA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def data(cassandra: Cassandra, cache: None, tmp_path_factory: pytest.TempPathFactory) -> Data:
    root, keyspace = tmp_path_factory.mktemp("training"), fresh_name("shades")
    both: dict[UUID, bytes] = {}
    splits = []
    for side, count in COUNTS.items():
        for number in range(count):
            path = root / side / f"class {number % CLASSES}" / f"{number:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(3 * (number % CLASSES), width=24 + number % 5))
        folder = loader.open_folder(root / side, dataset="shades", or_split=side)
        assert folder.labels is not None
        ids = [UUID(bytes=one.tobytes()) for one in folder.ids]
        rows = {
            one: (root / side / os.fsdecode(path)).read_bytes() for one, path in zip(ids, folder.paths, strict=True)
        }
        write_table(f"{keyspace}.data_{side}", dict(rows), hosts=cassandra.hosts, port=cassandra.port)
        splits.append((ids, folder.labels.tolist()))
        both |= rows
        names = dict(folder.class_names)
        write_split_folder(
            root / f"{side}.rows", splits[-1:], data_table=f"{keyspace}.data_{side}", class_names=names, seed=0
        )
    labels = {one: label for ids, of_side in splits for one, label in zip(ids, of_side, strict=True)}
    write_table(f"{keyspace}.data", dict(both), hosts=cassandra.hosts, port=cassandra.port, labels=labels)
    cuts = np.split(np.arange(len(both)), [COUNTS["train"]])
    keys = np.array(list(both), dtype=object)
    dictionary = theirs(data_table=f"{keyspace}.data", data_id_col="id", row_keys=keys, split=cuts, num_classes=CLASSES)
    (root / "split.pckl").write_bytes(pickle.dumps(dictionary))
    write_split_folder(root / "split", splits, data_table=f"{keyspace}.data", class_names=names, seed=0)
    where = ["--hosts", ",".join(cassandra.hosts), "--port", str(cassandra.port)]
    for side in COUNTS:
        tree = ImageFolder(str(root / side))
        options: dict[str, Any] = {"maxsize": 20_480, "workers": 1, "progress": False}
        upload_cv_dataset(tree, client=make_client(root), bucket="b", base_folder=side, **options)
    rows_options = [f"--{side}-rows-fn={root / side}.rows" for side in COUNTS]
    return Data(
        root=root,
        keyspace=keyspace,
        files=["--dataset", "shades", str(root / "train"), str(root / "val")],
        split=["--split", str(root / "split"), *where],
        split_fn=["--split-fn", str(root / "split.pckl"), *where],
        rows=[
            *rows_options,
            f"--train-data-table={keyspace}.data_train",
            f"--val-data-table={keyspace}.data_val",
            *where,
        ],
        shards=[f"--{side}-shards={root / 'b' / side}" for side in COUNTS],
    )


def start(arguments: Sequence[str], folder: Path, *, ranks: int = 1) -> subprocess.Popen[str]:
    """Run the script in a separate folder, under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [*command, str(SCRIPT), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


class Run(Protocol):
    """The output of a training that ends well, in a separate folder."""

    def __call__(self, arguments: Sequence[str], folder: Path, *, ranks: int = 1) -> str: ...


@pytest.fixture(scope="module")
def run(data: Data, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One rank runs in this process, two in a pair that all tests share, so torch is imported once."""

    def trained(arguments: Sequence[str], folder: Path, *, ranks: int = 1) -> str:
        folder.mkdir(exist_ok=True)
        if ranks == 1:
            with chdir(folder), redirect_stdout(io.StringIO()) as said, redirect_stderr(said):
                code = main(arguments)
            output = said.getvalue()
        elif ranks == 2:
            code, output = pair.train(arguments, folder)
        else:
            process = start(arguments, folder, ranks=ranks)
            output, _ = process.communicate(timeout=600)
            code = process.returncode
        assert code == 0, output
        return output

    with one_thread(), RankPair(tmp_path_factory.mktemp("pair")) as pair:
        yield trained


def trace(folder: Path, name: str = "trace") -> list[dict[str, Any]]:
    """The steps that all ranks recorded, in order."""
    lines = [json.loads(line) for file in sorted(folder.glob(f"{name}.*")) for line in file.read_text().splitlines()]
    return sorted(lines, key=lambda line: (line["epoch"], line["step"]))


def ids(lines: list[dict[str, Any]], epoch: int) -> list[str]:
    return [one for line in lines if line["epoch"] == epoch for one in line["ids"]]


def replayed(folder: Path, epochs: int = 2) -> list[tuple[int, int, list[str]]]:
    """What `imagestrata replay` says of the checkpoint: epoch, step and ids of each batch, sorted."""
    found = []
    for epoch in range(epochs):
        with chdir(folder), redirect_stdout(io.StringIO()) as said:
            assert imagestrata(["replay", "checkpoint.pt", "--epoch", str(epoch), "--steps", "0:99", "--json"]) == 0
        batches = json.loads(said.getvalue())["batches"]
        assert all(one["is_exact"] for one in batches)
        found += [(epoch, one["step"], [one_id.replace("-", "") for one_id in one["ids"]]) for one in batches]
    return sorted(found)


def traced(lines: list[dict[str, Any]]) -> list[tuple[int, int, list[str]]]:
    return sorted((line["epoch"], line["step"], line["ids"]) for line in lines)


@pytest.mark.parametrize(("source", "ranks"), [("files", 1), ("split", 2), ("rows", 1), ("shards", 1)])
def test_training_learns_from_each_source(run: Run, data: Data, tmp_path: Path, source: str, ranks: int) -> None:
    arguments = [*getattr(data, source), *SMALL, "--b", str(8 // ranks), "--epochs=4", "--dali_cpu"]
    arguments += ["--opt-level", "O2", "--loss-scale", "128.0", "--label-smoothing=0.1", "--print-freq=5"]
    output = run([*arguments, "--figures", "figures.jsonl"], tmp_path, ranks=ranks)
    figures = [json.loads(line) for line in (tmp_path / "figures.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in figures] == [0, 1, 2, 3]
    assert [(line["train"]["images"], line["val"]["images"]) for line in figures] == [(96, 22)] * 4
    assert max(line["val"]["top1"] for line in figures) > 0.7, figures
    assert all(len(line["train"]["data_seconds"]) == ranks for line in figures)
    assert re.search(
        r"epoch 3  training    loss \d\.\d+  top-1 .*%  top-5 100.00%  .* images/s.* of the time for data", output
    )
    assert re.search(r"epoch 0  step 5/12  loss .*  lr 0\.0\d+  data .* s  compute .* s", output)
    assert ("by rank" in output) == (ranks == 2)
    checkpoints = ("checkpoint.pt", "checkpoint-best.pt")
    assert {file.name for file in tmp_path.iterdir()} == {
        *("figures.jsonl", *checkpoints, *(f"{name}{SUFFIX}" for name in checkpoints))
    }
    record = ModelRecord.from_json((tmp_path / f"checkpoint.pt{SUFFIX}").read_text(encoding="utf-8"), place="")
    assert record.sha256 == hashlib.sha256((tmp_path / "checkpoint.pt").read_bytes()).hexdigest()
    kind = {"files": "folders", "shards": "shards"}.get(source, "split")
    assert (record.epoch, record.epochs, record.images["training"].kind) == (4, 4, kind)
    assert [one.rows for one in record.images.values()] == [96, 22]
    assert record.images["training"].fingerprint != record.images["validation"].fingerprint


def test_files_and_tables_give_the_same_images_and_the_same_losses(run: Run, data: Data, tmp_path: Path) -> None:
    found = {}
    for source in ("files", "rows"):
        run([*getattr(data, source), *SMALL, "--b", "8", "--trace", "trace"], tmp_path / source)
        found[source] = trace(tmp_path / source)
    assert len(found["files"]) == 24
    for one, other in zip(found["files"], found["rows"], strict=True):
        assert (one["epoch"], one["step"], one["ids"]) == (other["epoch"], other["step"], other["ids"])
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
    assert len({*ids(found["files"], 0)}) == 96
    assert ids(found["files"], 0) != ids(found["files"], 1)


def test_a_stopped_training_from_shards_resumes_at_the_next_image(
    run: Run, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = [*data.shards, *STOPPABLE]
    run([*usual, "--b", "8"], tmp_path / "whole")
    wanted = trace(tmp_path / "whole")
    assert len({*ids(wanted, 0)}) == 96
    monkeypatch.setenv("STOP_AT_STEP", "16")
    run([*usual, "--b", "8"], tmp_path / "stopped")
    monkeypatch.delenv("STOP_AT_STEP")
    shutil.copytree(tmp_path / "stopped", tmp_path / "two")
    run([*usual, "--b", "8", "--resume"], tmp_path / "stopped")
    found = trace(tmp_path / "stopped")
    assert [(line["epoch"], line["step"], line["ids"]) for line in found] == [
        (line["epoch"], line["step"], line["ids"]) for line in wanted
    ]
    run([*usual, "--b", "4", "--resume"], tmp_path / "two", ranks=2)
    for epoch in range(2):
        assert sorted(ids(trace(tmp_path / "two"), epoch)) == sorted(ids(wanted, epoch))


@pytest.fixture(scope="module")
def undisturbed(run: Run, data: Data, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The images that an uninterrupted training sees."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run([*data.split, *STOPPABLE, "--b", "8"], folder)
    return trace(folder)


STOPPABLE = [*SMALL, "-a", f"{MODELS}:stoppable", "--transforms", f"{MODELS}:whole"]
STOPPABLE += ["--print-freq=1", "--trace", "trace"]


@pytest.mark.parametrize(
    ("before", "after"), [(1, 1), (2, 2), (2, 1), (1, 2), pytest.param(1, 4, marks=pytest.mark.slow)]
)
def test_a_stopped_training_resumes_at_the_next_image(
    run: Run,
    data: Data,
    undisturbed: list[dict[str, Any]],
    tmp_path: Path,
    before: int,
    after: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = [*data.split, *STOPPABLE]
    folder = tmp_path / "stopped"
    monkeypatch.setenv("STOP_AT_STEP", "16")
    said = run([*usual, "--b", str(8 // before)], folder, ranks=before)
    monkeypatch.delenv("STOP_AT_STEP")
    assert "stopped in epoch 1: continue with --resume checkpoint.pt" in said
    said = run([*usual, "--b", str(8 // after), "--resume"], folder, ranks=after)
    assert "continuing from checkpoint.pt: epoch 1, step 4\n" in said
    found = trace(folder)
    for epoch in range(2):
        assert sorted(ids(found, epoch)) == sorted(ids(undisturbed, epoch))
        assert len({*ids(found, epoch)}) == 96
    in_steps: dict[tuple[int, int], set[str]] = {}
    for line in found:
        in_steps.setdefault((line["epoch"], line["step"]), set()).update(line["ids"])
    assert in_steps == {(line["epoch"], line["step"]): {*line["ids"]} for line in undisturbed}
    assert replayed(folder) == traced(found)
    if before == after == 1:
        assert [line["loss"] for line in found] == pytest.approx([line["loss"] for line in undisturbed], rel=1e-4)


def test_a_signal_during_validation_ends_it_and_keeps_the_epoch(
    run: Run, data: Data, undisturbed: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = [*data.split, *STOPPABLE, "--b", "8"]
    monkeypatch.setenv("STOP_AT_STEP", "validation 12")
    said = run(usual, tmp_path)
    monkeypatch.delenv("STOP_AT_STEP")
    assert said.endswith("stopped in the validation after epoch 0: continue with --resume checkpoint.pt\n")
    assert "continuing from checkpoint.pt: epoch 1, step 0\n" in run([*usual, "--resume"], tmp_path)
    assert [line["ids"] for line in trace(tmp_path)] == [line["ids"] for line in undisturbed]
    assert "nothing is left to train: 2 of 2 epochs are complete\n" in run([*usual, "--resume"], tmp_path)


def test_under_torchrun_a_wrong_option_is_one_line() -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=3",
        str(SCRIPT),
        "--split=s",
        "--nonsense",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("train.py:")]
    assert lines == ["train.py: error: unknown option --nonsense. See train.py --help."]
    assert done.returncode == 1  # torchrun's own


def test_torchrun_saves_and_ends_on_a_signal(data: Data, tmp_path: Path) -> None:
    usual = [*data.files, *SMALL, "--b", "4", "--print-freq=1", "--epochs", "50"]
    process = start(usual, tmp_path, ranks=2)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch 1  step 3/12"):
            process.send_signal(signal.SIGTERM)
            break
    rest = process.communicate(timeout=180)[0]
    assert re.search(r"stopped in epoch \d+: continue with --resume checkpoint\.pt", rest), rest
    assert Checkpoint.read(tmp_path / "checkpoint.pt", arch=f"{MODELS}:tiny", classes=4).loader["epoch"] >= 1


def test_a_training_that_is_killed_leaves_its_last_checkpoint(run: Run, data: Data, tmp_path: Path) -> None:
    usual = [*data.files, *SMALL, "--b", "8", "--print-freq=1"]
    process = start([*usual, "--checkpoint-every=7"], tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch 0  step 9/12"):
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
            break
    process.communicate(timeout=180)
    assert process.returncode != 0
    kept = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    epoch, after = kept["loader"]["epoch"], kept["loader"]["start"]
    assert (epoch, after) in {(0, 7 * 8), (1, 0), (1, 7 * 8)}  # the line may be read late, after later saves
    (tmp_path / ".checkpoint.pt.0123456789abcdef").touch()  # as if it was killed during a save
    assert f"continuing from checkpoint.pt: epoch {epoch}, step {after // 8}\n" in run([*usual, "--resume"], tmp_path)
    assert [name.name for name in tmp_path.glob(".*")] == []
    output = run([*usual, "--evaluate", "--resume"], tmp_path)
    assert re.search(r"epoch 2  validation  loss", output)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to write to."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        ("split", ["--classes", "3"], r"at most --classes 3 classes\. Found: Split\(.*4 classes"),
        ("split", ["--val-index", "2"], r"index from 0 to 1 for .*split\. Found: 2"),
        ("split", ["--b", "97"], r"at least one batch of 97 images \(97 on each of 1 ranks\)\. Found: 96 in"),
        ("split", ["--device", "cuda"], "a CUDA device for local rank 0. Found: none"),
        ("split", ["-a", "resnet51"], r"a torchvision classifier, .* Found: 'resnet51'\. Similar: resnet50"),
        ("split", ["-a", "no_such:model"], "--arch no_such:model. Found: No module named 'no_such'"),
        (
            "split",
            ["-a", f"{MODELS}:nothing"],
            f"Found: module '{MODELS}' has no attribute 'nothing'",
        ),
        ("split", ["-a", f"{MODELS}:no_model"], "to make a torch.nn.Module. Found: '4 classes'"),
        ("split", ["--transforms", "whole"], "--transforms as MODULE:FUNCTION. Found: 'whole'"),
        ("split", ["-a", "os:getcwd"], r"--arch os:getcwd to make a model of 4 classes\. Found: TypeError: "),
        (
            "split",
            ["-a", f"{MODELS}:other"],
            r"to give \(2, 4\) logits for two images\. Found: \(2, 5\)",
        ),
        ("split", ["-a", "vit_b_16"], r"--arch vit_b_16 to take images of --size 16\. Found: AssertionError: "),
        ("split", ["--transforms", "json:dumps"], r"--transforms as function\(images, .* Found: TypeError: "),
        ("split", ["--checkpoint", "/dev/null/a.pt"], r"to write /dev/null/a\.pt\. Found: "),
        ("split", ["--checkpoint", "."], r"to write \.\. Found: Is a directory"),
        ("split", ["--figures", "/dev/null/f"], r"to write /dev/null/f\. Found: "),
        (
            "split",
            ["--resume", "/dev/null"],
            r"a checkpoint at /dev/null\. Found: another file, or a truncated one",
        ),
        ("split", ["--resume", "nowhere.pt"], r"a checkpoint at nowhere\.pt\. Found: no such file"),
        (
            "rows",
            ["--val-rows-fn=TRAIN", "--val-data-table=KEYSPACE.data_train"],
            "different images for training and val",
        ),
        ("rows", ["--train-data-table=KEYSPACE.gone"], r"\w+\.gone .*Found: no such table"),
        ("files", ["--dataset", "shades", "TRAIN", "TRAIN"], "different images for training and validation"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is asked for where there is none")
def test_incompatible_options_are_refused_in_one_line(
    data: Data,
    here: None,
    source: str,
    arguments: list[str],
    message: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    train = str(data.root / ("train" if source == "files" else "train.rows"))
    arguments = [one.replace("TRAIN", train).replace("KEYSPACE", data.keyspace) for one in arguments]
    given = [] if source == "files" else getattr(data, source)
    assert main([*given, *SMALL, "--b", "8", *arguments]) == 1
    error = capfd.readouterr().err
    if source != "files":
        error = re.sub(r"\Acassandra: \S+ port \d+\n", "", error)
    assert re.search(message, error), error
    assert error.startswith("train.py: Wanted")
    assert error.count("\n") == 1


def test_validation_may_have_an_additional_class(data: Data, here: None, capfd: pytest.CaptureFixture[str]) -> None:
    for name in (*(f"class {number}" for number in range(CLASSES)), "rare"):
        (Path("val") / name).mkdir(parents=True)
        (Path("val") / name / "one.png").write_bytes(picture(1))
    assert main([str(data.root / "train"), "val", *SMALL, "--b", "8", "--epochs", "1"]) == 0
    assert Checkpoint.read("checkpoint.pt", arch=f"{MODELS}:tiny", classes=5).best >= 0


def test_damaged_pictures_can_be_skipped(data: Data, here: None, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(data.root / "train", "train")
    (Path("train") / "class 0" / "000.png").write_bytes(b"no picture")
    usual = ["train", str(data.root / "val"), *SMALL, "--b", "8", "--epochs", "1", "--trace", "trace"]
    assert main(usual) == 1
    errors = capfd.readouterr().err
    assert re.search(r"train\.py: Wanted .* on_undecodable='skip'", errors), errors
    assert main([*usual, "--on-undecodable", "skip", "--trace", "skipping"]) == 0
    assert len({*ids(trace(Path(), "skipping"), 0)}) == 95
    assert replayed(Path(), epochs=1) == traced(trace(Path(), "skipping"))


def test_other_classes_in_validation_are_refused_by_name(
    data: Data, here: None, capfd: pytest.CaptureFixture[str]
) -> None:
    (Path("val") / "class 7").mkdir(parents=True)
    (Path("val") / "class 7" / "one.png").write_bytes(picture(1))
    assert main([str(data.root / "train"), "val", *SMALL, "--b", "8"]) == 1
    assert "class 0 is 'class 0' in one and 'class 7' in the other" in capfd.readouterr().err


def test_a_checkpoint_of_another_training_is_refused(data: Data, here: None, capfd: pytest.CaptureFixture[str]) -> None:
    usual = [*SMALL, "--b", "8", "--epochs", "1"]
    assert main([*data.split, *usual]) == 0
    capfd.readouterr()
    for arguments, message in [
        (
            [*data.split, *usual, "-a", "resnet18"],
            f"of resnet18 with 4 classes .* Found: {MODELS}:tiny with 4",
        ),
        (
            [*data.split, *usual, "--classes", "5"],
            f"tiny with 5 classes .* Found: {MODELS}:tiny with 4",
        ),
        (
            [*data.split, *usual, "--seed", "1"],
            r"of the same images, --seed, .* at checkpoint\.pt\. Wanted a state of this order: seed 1\. Found: 0",
        ),
        (
            [*data.split, *usual, "--train-index=1", "--val-index=0"],
            r"of the same images, --seed, .* at checkpoint\.pt\. Wanted a state of this split: fingerprint",
        ),
        (
            [*data.split, *usual, "--sampling", "balanced"],
            r"--sampling and --class-weight at checkpoint\.pt\. Wanted a state of this order: sampling='balanced'",
        ),
    ]:
        assert main([*arguments, "--resume"]) == 1
        assert re.search(message, capfd.readouterr().err)
    torch.save({"model": 1}, "other.pt")
    Path("none.pt").write_bytes(b"no checkpoint")
    for name in ("other.pt", "none.pt", "."):
        with pytest.raises(TrainingError, match=rf"a checkpoint .*at {name}\. Found: "):
            Checkpoint.read(name, arch="resnet18", classes=4)


def test_loading_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "harm"),)

    torch.save({"format": 1, "model": Harm()}, tmp_path / "bad.pt")
    with pytest.raises(TrainingError, match="a checkpoint at "):
        Checkpoint.read(tmp_path / "bad.pt", arch="resnet18", classes=4)
    assert not (tmp_path / "harm").exists()


def test_the_learning_rate_warms_up_decays_and_scales_with_the_batch() -> None:
    options = TrainOptions(split="s", epochs=10, warmup=2.0, lr=0.4, batch_size=64)
    rates = np.array([lr_at(epoch, options, world_size=8) for epoch in (0, 1, 2, 6, 10)])
    assert np.allclose(rates, [0, 0.4, 0.8, 0.4, 0])
    assert lr_at(0, TrainOptions(split="s", warmup=0.0, lr=0.5, batch_size=256), 1) == 0.5


AS_THEY_STAND = [(source, ranks) for source in ("files", "rows", "split_fn", "swapped") for ranks in (1, 2)]
IN_CI = [("rows", 2), ("split_fn", 1)]


@pytest.mark.parametrize(
    ("source", "ranks"),
    [one if one in IN_CI else pytest.param(*one, marks=pytest.mark.slow) for one in AS_THEY_STAND],
)
def test_existing_training_commands_run_unchanged(
    run: Run, data: Data, tmp_path: Path, source: str, ranks: int
) -> None:
    """The documented command, with one epoch, small images, small batches, and the address of Cassandra."""
    usual = shlex.split("-a resnet50 --dali_cpu --b 128 --loss-scale 128.0 --workers 4 --lr=0.4 --opt-level O2")
    swapped = ["--train-index", "1", "--val-index", "0"]
    where = [*data.split_fn, *swapped] if source == "swapped" else getattr(data, source)
    run(
        [*usual, *where, "--size", "32", "--b", str(8 // ranks), "--epochs", "1", "--figures", "f"],
        tmp_path,
        ranks=ranks,
    )
    figures = json.loads((tmp_path / "f").read_text())
    images = [figures[side]["images"] for side in ("train", "val")]
    assert images == ([16, 96] if source == "swapped" else [96, 22])
