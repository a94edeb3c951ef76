"""accelerate does not distribute a rank's share again. e2e/test_accelerate.py tests the real one."""

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import loader
from loader.adapters.accelerate import check_not_prepared
from tests.support.pictures import picture


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., loader.FolderSource]:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    for number in range(4):
        (tmp_path / "tree" / "a" / f"{number}.png").write_bytes(picture(number))
    folder = loader.open_folder(tmp_path / "tree")
    return lambda rank=0, world_size=2: loader.FolderSource(folder, batch_size=1, rank=rank, world_size=world_size)


def accelerate(monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    """Replaces accelerate, as if it ran with this many processes."""
    state = SimpleNamespace(is_initialized=lambda: True, PartialState=lambda: SimpleNamespace(num_processes=processes))
    monkeypatch.setitem(sys.modules, "accelerate.state", state)


def from_accelerate(dataset: Any) -> None:
    """The call of a prepared DataLoader at the beginning of a pass."""
    names: dict[str, Any] = {"__name__": "accelerate.data_loader"}
    exec("def begin(dataset): dataset.set_epoch(0)", names)
    names["begin"](dataset)


def test_a_share_is_refused_until_it_is_said_to_be_one(
    source: Callable[..., loader.FolderSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    early = loader.TorchDataset(source())  # before accelerate was used
    accelerate(monkeypatch, 2)
    for call in (lambda: loader.TorchDataset(source()), lambda: iter(early), lambda: pickle.dumps(early)):
        with pytest.raises(
            loader.OptionError, match=r"a source that is rank 0 of 2 already.*sharded=True.*ImageDataset"
        ):
            call()
    assert len(list(loader.TorchDataset(source(), sharded=True))) == 2
    assert len(list(loader.TorchDataset(source(world_size=1)))) == 4
    accelerate(monkeypatch, 1)
    assert len(list(early)) == 2


def test_a_share_in_a_prepared_data_loader_is_refused(
    source: Callable[..., loader.FolderSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stream:
        """A dataset of another class that is distributed."""

        def set_epoch(self, _: int) -> None:
            check_not_prepared(1, 2)

    accelerate(monkeypatch, 2)
    for dataset in (loader.TorchDataset(source(rank=1), sharded=True), Stream()):
        with pytest.raises(loader.OptionError, match=r"Found: the share of rank 1 of 2; .*rank=0, world_size=1"):
            from_accelerate(dataset)
        dataset.set_epoch(3)  # called by the user
    from_accelerate(loader.TorchDataset(source(world_size=1)))
    accelerate(monkeypatch, 1)
    from_accelerate(Stream())
