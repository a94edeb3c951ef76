"""The parts of the benchmark of the dataset service that can be right or wrong; nothing here is timed."""

from pathlib import Path

import pytest

from benchmarks.harness.command import Parts
from benchmarks.service.__main__ import PARTS, measure_on
from benchmarks.service.clients import Client
from benchmarks.service.figures import FIGURES, FULL, QUICK, Sizes
from benchmarks.service.load import faults_in, quarters_of
from benchmarks.service.stage import Stage
from tests.support.dataset_servers import Server

TINY = Sizes(file_bytes=100_000, files=3, of_bytes=100, pairs=1, clients=1, seconds=1.0, kills=1)


def test_every_figure_has_one_part_that_measures_it() -> None:
    assert [number for part in PARTS for number in part] == list(FIGURES) == list(range(1, 11))
    targets = [(figure.op, figure.target) for figure in FIGURES.values()]
    assert targets[:5] == [("<", 100), (">=", 0.5), (">=", 100), (">=", 100), ("<", 100)]
    assert targets[5:] == [(">=", 0.25), (">=", 400), ("<=", 0), ("<=", 1.1), ("<=", 0)]
    assert (FULL.file_bytes, FULL.files, FULL.clients, FULL.seconds, FULL.kills) == (2_000_000_000, 17_600, 32, 600, 50)
    assert QUICK.pairs == 3


def test_memory_is_reported_in_quarters() -> None:
    assert quarters_of([1, 2, 3, 4, 5, 6, 7, 8]) == [2, 4, 6, 8]
    with pytest.raises(ValueError, match="3 times"):
        quarters_of([1, 2, 3])


def test_figures_that_cannot_be_measured_get_a_row_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no curl there
    parts = Parts(FIGURES, [1, 2], is_quick=True)
    measure_on(Stage(tmp_path, TINY), parts)
    assert not parts.is_whole
    assert all("not measured" in parts.rows[number].note for number in (1, 2))


def test_clients_fail_on_wrong_bytes(tmp_path: Path) -> None:
    with Server(tmp_path / "root") as server:
        client = Client(server.port, 0, 0)
        client.run(0.0)
        client.read()
        client.part()
        client.resumed()
        client.told()
        client._versions = dict.fromkeys(client._versions, b"other")
        for kind in (client.read, client.part, client.unchanged):
            with pytest.raises(ValueError, match=r"other bytes|instead of"):
                kind()


def test_lost_versions_and_leftover_files_are_faults(tmp_path: Path) -> None:
    with Server(tmp_path / "root") as service:
        service.create("x")
        told = service.put("x", b"one").json
        known = {("x", 1): told["sha256"]}
        assert faults_in(service, service.root, ["x"], known) == []
        (service.root / "incoming" / "abc").mkdir()
        (service.root / "datasets" / "x" / "versions" / "1" / "data").write_bytes(b"two")
        found = faults_in(service, service.root, ["x"], {**known, ("x", 2): "0"})
        assert len(found) == 3
        assert "another SHA-256" in found[0]
        assert "is gone" in found[1]
        assert "left behind" in found[2]
