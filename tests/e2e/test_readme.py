"""The README, run as it stands: every command and the loader's example, in a checkout of their own, in their order."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_HERE = {"make test": "this test is a part of it"}


def blocks() -> list[tuple[str, str]]:
    """The README's blocks that are to be run: language and text."""
    return BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def script(port: int, web: int) -> str:
    """The blocks as one script, on ports of its own; each says when it begins. This run's Python has all extras."""
    lines = ["set -eu", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]  # also what a block has left behind
    for number, (language, text) in enumerate(blocks()):
        here = text.replace("9042", str(port)).replace("make demo", f"make demo PORT={port}").replace("8080", str(web))
        kept = "\n".join(line for line in here.splitlines() if line.partition("#")[0].strip() not in NOT_HERE)
        lines.append(f'echo "== block {number}, after $SECONDS s"')
        python = sys.executable if "import torch" in here else "python"
        if any(word in here for word in ("torchrun", "lightning", "imagestrata ")):  # what is not in the demo's
            kept = f"BEFORE=$PATH\nPATH='{Path(sys.executable).parent}':$PATH\n{kept}\nPATH=$BEFORE"
        lines.append(kept if language == "bash" else f"'{python}' - <<'PYTHON'\n{here}PYTHON")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files of this tree as a clone would have them, and what grows there; its server is ended."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    yield folder
    subprocess.run(["make", "down"], cwd=folder, capture_output=True, check=False, timeout=60)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def output(checkout: Path) -> str:
    """What the README's commands print, one after the other."""
    with socket.socket() as free, socket.socket() as other:
        free.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, web = free.getsockname()[1], other.getsockname()[1]
    left_out = ("VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    ours = str(ROOT / ".venv")
    environment["PATH"] = os.pathsep.join(p for p in environment["PATH"].split(os.pathsep) if not p.startswith(ours))
    done = subprocess.run(
        ["bash", "-c", script(port, web)],
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2000,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    print("\n".join(line for line in done.stdout.splitlines() if line.startswith("== block")))  # where its minutes go
    return done.stdout


def test_the_demo_ends_with_its_counts_as_json(output: str, checkout: Path) -> None:
    line = next(line for line in output.splitlines() if line.startswith('{"images"'))
    found = json.loads(line)
    page = checkout / "build" / "demo" / "report.html"
    assert found.keys() == {
        *("images", "classes", "quarantined", "split_counts", "epoch_samples", "distinct_ids"),
        *("ingest_images_per_s", "loader_images_per_s", "report"),
    }
    assert (found["images"], found["classes"], found["quarantined"]) == (1797, 10, 0)
    assert found["split_counts"] == [1438, 359]
    assert found["epoch_samples"] == found["distinct_ids"] == 1438
    assert Path(found["report"]) == page
    text = page.read_text(encoding="utf-8")
    assert text.count("<figure>") == 64
    assert text.count('class="bar"') == 20


def test_every_command_does_what_the_readme_says(output: str, checkout: Path) -> None:
    lines = [line.rpartition("\r")[2] for line in output.splitlines()]
    ingested = [line for line in lines if line.startswith("ingested 1,797 images")]
    assert [re.findall(r"into (\w+)\.data and", line) for line in ingested] == [["digits"], ["demo"]]
    split = [line for line in lines if line.startswith("split 1,797 images of 10 classes into 1,438 + 359")]
    assert len(split) == 3
    assert any(line.startswith("would split 1,797 images of 10 classes into 1,43") for line in lines)
    assert any(re.match(r"compared 1,797 rows of digits\.metadata .*: nothing is wrong", line) for line in lines)
    sharded = [re.match(r"wrote ([\d,]+) images into (\d+) shards", line) for line in lines]
    assert [(found[1], int(found[2]) > 2) for found in sharded if found] == [("1,438", True), ("359", True)]
    assert "epoch 1: 6 batches" in output
    assert "torch: 6 batches" in output
    assert re.search(r"^359 images, p99 \d+ ms$", output, re.MULTILINE)
    assert "next is epoch 1" in output
    assert re.search(r"^going on from build/train/checkpoint\.pt: epoch 1, step 0$", output, re.MULTILINE)
    assert re.search(r"^epoch 1  validation  loss ", output, re.MULTILINE)
    assert re.search(r"^top-1 \d+\.\d\d%$", output, re.MULTILINE)
    assert any(line.startswith("wrote 1,797 rows of 10 classes to ") for line in lines)
    assert re.search(r'"version":1,"kind":"folder".*"images":1797', output)
    assert re.search(r"^digits version 1: 1,\d\d\d files", output, re.MULTILINE)
    epochs = re.findall(r"^epoch 2: (1,[47]\d\d) images in ", output, re.MULTILINE)
    assert epochs == ["1,797", "1,438", "1,438"]
    measured = r"^(?:no figure: wanted epochs of 1 s or more\.|mean of 2 epochs: .* MB/s$)"  # digits are soon read
    assert len(re.findall(measured, output, re.MULTILINE)) == 3
    assert (checkout / "splits" / "digits" / "_manifest.json").is_file()
    assert (checkout / "build" / "digits-metadata" / "cache.json").is_file()


def test_a_page_of_the_manual_is_printed_without_a_cluster(output: str, checkout: Path) -> None:
    for job in ("ingest", "split", "verify", "cache_rows", "shard"):
        python = checkout / ".venv" / "bin" / "python"
        done = subprocess.run(
            [python, f"jobs/{job}.py", "--help"], cwd=checkout, capture_output=True, text=True, check=True
        )
        assert "exit codes:" in done.stdout
        assert "examples" in done.stdout or "spark-submit jobs" in done.stdout


def test_every_make_target_in_the_readme_is_listed_by_make_help() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([a-z][a-z0-9.-]*)\b", readme):
        if target not in ("you", "nothing"):  # "Python 3.11 and make, nothing else"
            assert re.search(rf"^\s+{re.escape(target)}\s", listed, re.MULTILINE), target
