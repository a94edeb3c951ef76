"""The notebooks: stored without outputs, executed here one after another, with what they find."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from imagestrata.devstack.servers.cassandra import Cassandra

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS_A_CELL = 300


def test_notebooks_are_stored_without_outputs() -> None:
    assert [book.stem for book in BOOKS] == [
        "01_ingest_and_explore",
        "02_splits",
        "03_train_from_cassandra",
        "04_hiding_latency",
    ]
    for book in BOOKS:
        found = json.loads(book.read_text(encoding="utf-8"))
        nbformat.validate(found)
        code = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code), book
        assert all(not cell["metadata"] for cell in found["cells"]), book


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the notebooks, in which their files grow; their server is ended."""
    copy = tmp_path_factory.mktemp("tour") / "notebooks"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("build", "__pycache__", ".*"))
    yield copy
    Cassandra(copy / "build" / "cassandra").stop()


def run(folder: Path, number: int) -> tuple[str, int]:
    """Execute a notebook; all that its cells print, and how many pictures they draw."""
    book = nbformat.read(folder / BOOKS[number - 1].name, as_version=4)
    client = NotebookClient(book, timeout=SECONDS_A_CELL, resources={"metadata": {"path": str(folder)}})
    client.execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    texts = [output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs]
    nbformat.write(book, folder / f"{number}.executed.ipynb")
    return "\n".join(texts), sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.slow
def test_the_first_notebook_ingests_the_digits(folder: Path) -> None:
    said, pictures = run(folder, 1)
    assert "ingested 1,797 images" in said
    assert re.search(r"cut\.png.*\n.*text\.png", said)
    assert "1797 images of 10 digits by 90 writers" in said
    assert "wrote 1,797 rows of 10 classes" in said
    assert pictures == 2


@pytest.mark.slow
def test_the_second_notebook_makes_stratified_splits(folder: Path) -> None:
    said, pictures = run(folder, 2)
    assert "original: 1438 + 359 images" in said
    assert re.search(r"largest distance from 80 %: 0\.\d\d images", said)
    assert "with groups: 0 of 90 writers are in both splits" in said
    assert "held out once: 1797 images, in 1797 places" in said
    assert re.findall(r"(\d+) images before, (\d+) after, (\d+) moved", said) == [
        ("960", "1438", "0"),
        ("240", "359", "0"),
    ]
    assert pictures == 4


@pytest.mark.slow
def test_the_third_notebook_trains_a_network_on_the_digits(folder: Path) -> None:
    said, pictures = run(folder, 3)
    known = re.search(r"known at the end: (\d+\.\d+)%", said)
    assert known is not None
    assert float(known[1]) >= 97
    assert "640 images before, 798 after, 0 of them twice, 1438 in all" in said
    assert pictures == 2


@pytest.mark.slow
def test_the_fourth_notebook_hides_latency(folder: Path) -> None:
    said, pictures = run(folder, 4)
    far = {name.strip(): float(rate.replace(",", "")) for name, rate in re.findall(r"(.*): .*150 ms ([\d,]+)/s", said)}
    assert far.keys() == {"8 in flight", "64 in flight", "by itself"}
    # What cannot be, however fast the machine is; and far from it, however slow.
    assert far["8 in flight"] <= 1.1 * 8 / 0.15
    assert far["by itself"] > 3 * far["8 in flight"]
    assert pictures == 1
