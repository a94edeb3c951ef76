"""Which process of a job this is: from arguments, from torch.distributed, or from the environment."""

import logging
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import loader
from loader import OptionError
from loader.ranks import check_detected, ranks
from tests.support.pictures import picture
from tests.support.split_folders import image_ids, write_split_folder

_NAMES = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS")


def alone(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    """Only these variables give a rank."""
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def group(monkeypatch: pytest.MonkeyPatch, rank: int, world_size: int) -> SimpleNamespace:
    """Replaces torch.distributed, initialised with this rank."""
    made = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: rank,
        get_world_size=lambda: world_size,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", made)
    return made


def test_arguments_take_precedence_over_torch_and_torch_over_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)
    assert ranks() == (0, 1)
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}
    alone(monkeypatch, RANK="2", WORLD_SIZE="3", **slurm)
    assert ranks() == (2, 3)
    torch = group(monkeypatch, 4, 5)
    assert ranks() == (4, 5)
    torch.is_initialized = lambda: False
    assert ranks() == (2, 3)
    assert ranks(6, 7) == (6, 7)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}, (3, 4)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "2"}, (1, 2)),  # a step on a part of a job
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 1)),  # a batch script
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "1"}, (0, 1)),  # srun --pty in a script
        ({"RANK": "", "WORLD_SIZE": ""}, (0, 1)),
    ],
)
def test_slurm_counts_inside_a_step_of_several_tasks_only(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], wanted: tuple[int, int]
) -> None:
    alone(monkeypatch, **environment)
    assert ranks() == wanted


@pytest.mark.parametrize(
    ("environment", "given"),
    [
        ({"RANK": "0"}, ()),
        ({"WORLD_SIZE": "2"}, ()),
        ({"RANK": "first", "WORLD_SIZE": "2"}, ()),
        ({"RANK": "2", "WORLD_SIZE": "2"}, ()),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, ()),
        ({"RANK": "0", "WORLD_SIZE": "0"}, ()),
        ({"SLURM_STEP_NUM_TASKS": "2"}, ()),
        ({"SLURM_STEP_NUM_TASKS": "two", "SLURM_PROCID": "0"}, ()),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "2"}, ()),
        ({}, (0,)),
        ({}, (None, 1)),
        ({}, (2, 2)),
        ({}, (-1, 2)),
        ({}, (0, 0)),
        ({}, (0, 1.0)),
    ],
)
def test_invalid_ranks_and_world_sizes_are_refused(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], given: tuple[Any, ...]
) -> None:
    alone(monkeypatch, **environment)
    with pytest.raises(OptionError, match=r"Wanted (rank|world_size|RANK|SLURM_PROCID) .*Found: "):
        ranks(*given)


def test_sources_detect_their_ranks_and_share_the_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(11):
        path = tmp_path / "tree" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    folder = loader.open_folder(tmp_path / "tree")
    split = loader.open_split(write_split_folder(tmp_path / "split", [(image_ids(3), [0, 1, 2])]))
    found: list[int] = []
    for rank in ("0", "1"):
        alone(monkeypatch, RANK=rank, WORLD_SIZE="2")
        with caplog.at_level(logging.INFO, "loader"), loader.FolderSource(folder, batch_size=3) as source:
            assert f"rank={rank}, world_size=2" in repr(source)
            found += [place for batch in source.epoch(0) for place in batch.positions.tolist()]
        assert (f"rank={rank}, world_size=2") in repr(loader.CassandraSource(split, hosts="127.0.0.1", batch_size=2))
    assert sorted(found) == list(range(11))
    assert "detected rank 1 of 2 ranks, from RANK and WORLD_SIZE" in caplog.messages
    with loader.FolderSource(folder, batch_size=3, rank=0, world_size=1) as whole:  # evaluation on one rank alone
        assert whole.samples == 11


def test_ranks_detected_before_torch_was_initialised_are_refused_when_they_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "1.png").write_bytes(picture(1))
    folder = loader.open_folder(tmp_path / "tree")
    alone(monkeypatch)
    with (
        loader.FolderSource(folder, batch_size=1) as detected,
        loader.FolderSource(folder, batch_size=1, rank=0, world_size=1) as given,
    ):
        packed = pickle.dumps(detected)
        group(monkeypatch, 1, 2)
        with pytest.raises(OptionError, match=r"Found: rank=0, world_size=1, detected before it was initialised"):
            next(detected.epoch(0))
        with pytest.raises(OptionError, match="detected before"):  # for a spawned worker, which could not detect it
            pickle.dumps(detected)
        with pytest.raises(OptionError, match="detected before"):  # in a rank that got the source from its parent
            next(pickle.loads(packed).epoch(0))
        assert len(list(pickle.loads(pickle.dumps(given)).epoch(0))) == 1
    check_detected(1, 2)


def test_detection_does_not_import_torch() -> None:
    code = "import sys, loader; from loader.ranks import ranks; ranks(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
