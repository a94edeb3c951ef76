"""The reading test as users start it: each reader, with one process and with two; its figures and its errors."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from uuid import UUID

import pytest
import torch
from torchvision.datasets import ImageFolder

import loader
from imagestrata.devstack.servers.cassandra import Cassandra
from loader.shards import make_client, upload_cv_dataset
from tests.support.pictures import picture, write_table
from tests.support.services import fresh_name
from tests.support.split_folders import write_split_folder
from training.loop_read import main

SCRIPT = Path(__file__).resolve().parents[2] / "training" / "loop_read.py"
COUNT = 43
CLUSTER = r"cassandra: \S+ port \d+"
READERS = ("file", "split", "rows", "shards", "s3")


@pytest.fixture(scope="module")
def places(cassandra: Cassandra, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """The arguments that name the same images as files, as a split and as rows."""
    table = f"{fresh_name('loop')}.data"
    root = tmp_path_factory.mktemp("loop")
    for number in range(COUNT):
        path = root / "tree" / str(number % 3) / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number % 3, width=20 + number))
    folder = loader.open_folder(root / "tree")
    assert folder.labels is not None
    ids = [UUID(bytes=one.tobytes()) for one in folder.ids]
    files = [(root / "tree" / os.fsdecode(path)).read_bytes() for path in folder.paths]
    write_table(table, dict(zip(ids, files, strict=True)), hosts=cassandra.hosts, port=cassandra.port)
    write_split_folder(root / "split", [(ids, folder.labels.tolist())], data_table=table)
    upload_cv_dataset(
        ImageFolder(str(root / "tree")), client=make_client(root), bucket="b", base_folder="x", maxsize=20_480,
        workers=1, progress=False,
    )  # fmt: skip
    where = ["--hosts", ",".join(cassandra.hosts), "--port", str(cassandra.port)]
    found = {
        "file": ["--reader", "file", "--file-root", str(root / "tree")],
        "split": ["--split", str(root / "split"), *where],
        "rows": ["--rows-fn", str(root / "split"), "--data-table", table, *where],
        "shards": ["--reader", "shards", "--shards", str(root / "b" / "x")],
        "s3": ["--reader", "s3", "--shards", str(root / "b" / "x")],
        "bytes": [str(sum(map(len, files)))],
    }
    with pytest.MonkeyPatch.context() as patch:  # other modules of this process have separate caches
        patch.setenv("IMAGESTRATA_CACHE", str(root / "cache"))
        yield found


def run(arguments: Sequence[str], *, ranks: int = 1) -> str:
    """The output, if it ends well. A single process runs here, which saves importing DALI again."""
    if ranks == 1:
        with redirect_stdout(io.StringIO()) as printed:
            assert main(arguments) == 0
        return printed.getvalue()
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    found = subprocess.run(
        [sys.executable, *torchrun, str(SCRIPT), *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize(
    ("source", "decode", "ranks"),
    [
        *(
            (source, decode, 1)
            for source in ("file", "split", "rows", "shards", "s3")
            for decode in ("--decode", "--no-decode")
        ),
        ("file", "--decode", 2),
        ("rows", "--no-decode", 2),
        ("s3", "--no-decode", 2),
    ],
)
def test_every_reader_reads_each_image_once_per_epoch(
    places: dict[str, list[str]], source: str, decode: str, ranks: int
) -> None:
    output = run([*places[source], decode, "--bs", "8", "--epochs", "3", "--json"], ranks=ranks)
    figures = json.loads(output)
    assert [(one["images"], one["bytes"]) for one in figures["all"]] == [(COUNT, int(places["bytes"][0]))] * 3
    assert figures["world_size"] == ranks
    assert [figures[name] for name in ("mean", "deviation", "first")] == [None] * 3  # of such a short epoch


def test_a_set_that_is_read_at_once_gets_no_figure(places: dict[str, list[str]]) -> None:
    cluster, *lines, last = run([*places["split"], "--bs=16", "--epochs=2"]).splitlines()
    assert re.fullmatch(CLUSTER, cluster)
    for number, line in enumerate(lines):
        assert re.fullmatch(
            rf"epoch {number}( \(the first\))?: {COUNT} images in [\d.]+ s: too short for a figure", line
        )
    assert re.fullmatch(r"no figure: wanted epochs of 1 s or more\. Found: 0\.\d\d s\. Read more images\.", last)


def test_the_output_has_one_line_per_epoch_and_the_mean(
    places: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.loop_read.LEAST_SECONDS", 0.0)
    output = run([*places["split"], "--bs=16", "--epochs=2"])
    cluster, *lines = output.splitlines()
    assert re.fullmatch(CLUSTER, cluster)
    rates = r"[\d,.]+ images/s, [\d,.]+ batches/s, [\d,.]+ MB/s"
    assert re.fullmatch(rf"epoch 0 \(the first\): {COUNT} images in [\d.]+ s: {rates}", lines[0])
    assert re.fullmatch(rf"epoch 1: {COUNT} images in [\d.]+ s: {rates}", lines[1])
    mean = r"[\d,.]+ ± 0\.0 images/s, [\d,.]+ ± 0\.0 batches/s, [\d,.]+ ± 0\.0 MB/s"
    assert re.fullmatch(rf"mean of 1 epoch: {mean}", lines[2])
    assert len(lines) == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is asked for where there is none")
def test_unreadable_sources_are_named(
    places: dict[str, list[str]],
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged" / "class").mkdir(parents=True)
    (tmp_path / "damaged" / "class" / "one.jpg").write_bytes(b"no picture")
    for arguments, message in [
        (["--split", "nowhere"], "a split folder at .*nowhere"),
        ([*places["split"], "--index", "1"], "index from 0 to 0"),
        (["--reader", "file", "--file-root", "nowhere"], "a tree of class folders at nowhere. Found: no such folder"),
        (["--reader", "file", "--file-root", "damaged", "--decode", "--bs", "1"], "images that DALI reads. Found: nv"),
        (["--reader", "shards", "--shards", "nowhere"], "a folder of shards at nowhere. Found: no such folder"),
        (["--reader", "s3", "--shards", "damaged"], "a folder of shards at .*damaged. Found: no shards.json there"),
        ([*places["split"], "--use-gpu"], "a DALI pipeline. Found: .*(CUDA|GPU|driver)"),
    ]:
        assert main(arguments) == 1
        errors = capfd.readouterr().err
        assert re.search(f"loop_read.py: Wanted {message}", errors), errors
