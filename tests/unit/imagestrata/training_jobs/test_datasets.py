"""Datasets of jobs: their folders, which are read-only."""

import re
import stat
from functools import partial
from pathlib import Path

import pytest

from imagestrata import hub
from imagestrata.devstack.servers import ports
from imagestrata.training_jobs import datasets
from imagestrata.training_jobs.datasets import dataset_at_hand
from imagestrata.training_jobs.errors import JobError


class Pulled:
    """Replaces a service: each pulled version is in a separate folder, with a link to it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Path]] = []

    def __call__(self, url: str, name: str, prefix: Path, progress: object) -> Path:
        self.asked.append((url, name, prefix))
        folder = prefix / ".versions" / "1"
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("a", encoding="utf-8")
        (prefix / name).symlink_to(folder)
        return prefix / name


@pytest.fixture
def pulled(monkeypatch: pytest.MonkeyPatch) -> Pulled:
    made = Pulled()
    monkeypatch.setattr(datasets, "fetch", made)
    return made


def test_a_pulled_dataset_is_read_only(tmp_path: Path, pulled: Pulled) -> None:
    told: list[str] = []
    found = dataset_at_hand("mine", url="http://x", prefix=tmp_path / "p", tell=told.append)
    assert found == tmp_path / "p" / "mine"
    assert pulled.asked == [("http://x", "mine", tmp_path / "p")]
    assert stat.S_IMODE((found / "a.txt").stat().st_mode) & 0o222 == 0
    assert stat.S_IMODE(found.stat().st_mode) == 0o555
    assert "is read-only" in told[-1]


def test_another_version_may_replace_a_pulled_one(
    tmp_path: Path, pulled: Pulled, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dataset_at_hand("mine", url="http://x", prefix=tmp_path, tell=lambda line: None)
    modes: list[int] = []

    def broken(*_: object) -> Path:
        modes.append(stat.S_IMODE(found.stat().st_mode))
        raise JobError("no answer")

    monkeypatch.setattr(datasets, "fetch", broken)
    with pytest.raises(JobError, match="no answer"):
        dataset_at_hand("mine", url="http://x", prefix=tmp_path, tell=lambda line: None)
    assert modes == [0o755]
    assert stat.S_IMODE(found.stat().st_mode) == 0o555


def test_a_prefix_without_permission_is_replaced_by_one_below_the_cache(
    tmp_path: Path, pulled: Pulled, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(datasets, "PREFIX", tmp_path / "file" / "datasets")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    told: list[str] = []
    found = dataset_at_hand("mine", url="http://x", prefix=None, tell=told.append)
    assert found == tmp_path / "cache" / "imagestrata" / "datasets" / "mine"
    assert f"datasets are in {found.parent}, not in {tmp_path / 'file' / 'datasets'}" in told[0]
    assert dataset_at_hand("mine", url=None, prefix=None, tell=told.append) == found  # it exists by now
    with pytest.raises(JobError, match="Wanted a writable folder for datasets"):
        dataset_at_hand("mine", url="http://x", prefix=tmp_path / "file", tell=told.append)


def test_a_missing_dataset_is_reported_with_the_places_searched(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=re.escape(f"Found: none at {tmp_path / 'mine'} (give the service")):
        dataset_at_hand("mine", url=None, prefix=tmp_path, tell=lambda line: None)


def test_a_service_that_does_not_answer_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "connect", partial(hub.connect, patience=0.3))
    (port,) = ports.free(["127.0.0.1"], 1)
    for prefix in (tmp_path / "a" / "b", tmp_path):
        with pytest.raises(JobError, match=r"no answer|refused"):
            dataset_at_hand("mine", url=f"http://127.0.0.1:{port}", prefix=prefix, tell=lambda line: None)
    assert list(tmp_path.iterdir()) == []
