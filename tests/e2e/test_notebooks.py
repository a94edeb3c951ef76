"""The notebooks are executed; their outputs are of the same kinds as the stored ones."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagestrata.devstack.servers.cassandra import Cassandra
from tests.support import notebooks
from tests.support.notebooks import BOOKS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the notebooks and their output files. Its server is ended."""
    copy = notebooks.copied(tmp_path_factory.mktemp("tour"))
    yield copy
    Cassandra(copy / "build" / "cassandra").stop()


def run(folder: Path, number: int) -> str:
    """Execute a notebook and return what its cells print. Checks that outputs are of the same kinds as stored."""
    path = BOOKS[number - 1]
    found = notebooks.tidied(notebooks.executed(path.name, folder), folder)
    assert notebooks.kinds(json.loads(found)) == notebooks.kinds(json.loads(path.read_text(encoding="utf-8")))
    assert not notebooks.machine_paths(found)
    return notebooks.texts(json.loads(found))


@pytest.mark.slow
def test_the_first_notebook_ingests_the_digits(folder: Path) -> None:
    said = run(folder, 1)
    assert "ingested 1,797 images" in said
    assert re.search(r"cut\.png.*\n.*text\.png", said)
    assert "1797 images of 10 digits by 90 writers" in said
    assert "wrote 1,797 rows of 10 classes" in said


@pytest.mark.slow
def test_the_second_notebook_makes_stratified_splits(folder: Path) -> None:
    said = run(folder, 2)
    assert "original: 1438 + 359 images" in said
    assert re.search(r"largest distance from 80 %: 0\.\d\d images", said)
    assert "with groups: 0 of 90 writers are in both splits" in said
    assert "held out once: 1797 images, in 1797 places" in said
    assert re.findall(r"(\d+) images before, (\d+) after, (\d+) moved", said) == [
        ("960", "1438", "0"),
        ("240", "359", "0"),
    ]


@pytest.mark.slow
def test_the_third_notebook_trains_a_network_on_the_digits(folder: Path) -> None:
    said = run(folder, 3)
    known = re.search(r"accuracy at the end: (\d+\.\d+)%", said)
    assert known is not None
    assert float(known[1]) >= 97
    assert "640 images before, 798 after, 0 of them twice, 1438 in all" in said


@pytest.mark.slow
def test_the_fourth_notebook_hides_latency(folder: Path) -> None:
    said = run(folder, 4)
    far = {name.strip(): float(rate.replace(",", "")) for name, rate in re.findall(r"(.*): .*150 ms ([\d,]+)/s", said)}
    assert far.keys() == {"8 in flight", "64 in flight", "automatic"}
    # An upper bound for the fastest machine, and a lower bound for the slowest.
    assert far["8 in flight"] <= 1.1 * 8 / 0.15
    assert far["automatic"] > 3 * far["8 in flight"]


@pytest.mark.slow
def test_the_fifth_notebook_answers_questions_about_features_labels_and_models(folder: Path) -> None:
    said = run(folder, 5)
    assert "split 18 images of 1 class" in said  # 10 % of 179, rounded up
    assert "images of the 7 for training: 143 145" in said
    assert re.search(r"model .*\n(.*\n)+made from\n  split .*trained-on@v1: training: split 0", said)
    assert "deleted 20 of 1,797 images" in said
    assert re.search(r"state +deleted by run \d+, .*: request 17", said)
    assert re.search(r"used in\n(.*\n)+ +model .*model\.pt@v1: (training|validation)", said)
    assert "20 x deleted" in said


@pytest.mark.slow
def test_the_sixth_notebook_finds_what_the_model_has_seen(folder: Path) -> None:
    said = run(folder, 6)
    assert "40 images, run 2 of 3" in said
    assert re.search(r"in the wrong folder: [1-3] of these 3", said)
    assert re.search(r"after epoch 0: seen 1 times\nin epoch 3: seen [34] times\nat the end: seen 5 times", said)
    assert "576 + 1221 images, equal pixels: True" in said
    assert "few: 20" in said
    assert "[30, 10]" in said
