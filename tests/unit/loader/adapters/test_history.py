"""What a state knows of a training: which images each step had, on all ranks, and at which steps an image was seen."""

import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loader
from tests.support.trainings import disagreement, training
from tests.support.trees import touch


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_state_replays_all_that_a_training_was_given(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    made = training(random.Random(seed), tmp_path_factory.mktemp("training"))
    assert disagreement(made, random.Random(seed)) is None


@pytest.fixture
def folder(tmp_path: Path) -> loader.Folder:
    return loader.open_folder(touch(tmp_path / "tree", *(f"{number % 3}/{number}.png" for number in range(30))))


def test_an_image_is_found_by_its_id_and_by_its_position(folder: loader.Folder) -> None:
    with loader.FolderSource(folder, batch_size=10, rank=0, world_size=1) as source:
        batches = list(source.epoch(0))
        history = loader.History(folder, source.state_dict())
    for step, batch in enumerate(batches):
        image = UUID(bytes=batch.ids[4].tobytes())
        wanted = [loader.Seen(0, 0, step, 0, is_exact=True)]
        assert history.seen(image) == history.seen(str(image)) == history.seen(int(batch.positions[4])) == wanted
    assert history.delivered == (1, 0)


@pytest.mark.parametrize(("image", "found"), [
    ("7c743c2e", r"the id of an image, a UUID\. Found: '7c743c2e'"),
    (str(UUID(int=1)), "which is not in it"),
    (30, "a position from 0 to 29 .*Found: 30"),
])  # fmt: skip
def test_an_image_that_is_not_in_the_split_is_refused(folder: loader.Folder, image: str | int, found: str) -> None:
    with loader.FolderSource(folder, batch_size=10, rank=0, world_size=1) as source:
        history = loader.History(folder, source.state_dict())
    with pytest.raises(loader.OptionError, match=found):
        history.seen(image)


def test_what_is_not_known_is_said(folder: loader.Folder) -> None:
    def source(**options: Any) -> loader.FolderSource:
        return loader.FolderSource(folder, **{"batch_size": 5, "rank": 0, "world_size": 1} | options)

    with source() as one:
        next(batches := one.epoch(0))
        old = {name: value for name, value in one.state_dict().items() if name != "past"}  # as of an earlier version
        del batches
    with source() as one:
        one.load_state_dict(old)
        (batch,) = (next(one.epoch(0)),)
        history = loader.History(folder, one.state_dict())
    assert history.unknown == ["run 0: the batches before step 1 of epoch 0"]
    assert [found.positions.tolist() for found in history.replay(0, range(9))] == [batch.positions.tolist()]

    with source(world_size=2, on_missing="skip") as one:
        next(one.epoch(0))
        history = loader.History(folder, one.state_dict())
    assert history.unknown == ["run 0: which samples were left out on ranks 1"]
    assert [found.is_exact for found in history.replay(0, 0)] == [True, False]

    with source() as one:
        first, second = one.epoch(0), one.epoch(1)
        next(first), next(second), first.close()  # type: ignore[attr-defined]
        history = loader.History(folder, one.state_dict())
    assert history.replay(0, range(9)) == []
    assert history.unknown == ["run 0: the batches before step 1 of epoch 1"]


def test_a_state_of_another_split_is_refused(folder: loader.Folder, tmp_path: Path) -> None:
    other = loader.open_folder(touch(tmp_path / "other", "0/a.png", "1/b.png"))
    with loader.FolderSource(other, batch_size=1, rank=0, world_size=1) as source:
        state = source.state_dict()
    with pytest.raises(loader.StateError, match="Wanted a state of this split: fingerprint"):
        loader.History(folder, state)


@pytest.mark.parametrize("change", [
    {"batch_size": 0}, {"world_size": -1}, {"last_batch_policy": "SOME"}, {"left_out": [[1, 2]]}, {"begin": None},
    {"known": [None]}, {"left_out": [[0, 0, 0.5]]}, {"more": 1},
])  # fmt: skip
def test_a_damaged_past_is_refused(folder: loader.Folder, change: dict[str, Any]) -> None:
    with loader.FolderSource(folder, batch_size=5, rank=0, world_size=1) as source:
        next(source.epoch(0))
        state = source.state_dict()
        state["past"][0] |= change
        with pytest.raises(loader.StateError, match=r"Wanted a state from state_dict\(\)"):
            source.load_state_dict(state)


def test_workers_do_not_know_what_others_have_left_out(folder: loader.Folder) -> None:
    with loader.FolderSource(folder, batch_size=5, rank=0, world_size=1, on_missing="skip") as source:
        dataset = loader.TorchDataset(source)
        state = source.state_dict(epoch=0, steps=2)
        assert loader.History(folder, state).unknown == ["run 0: which samples were left out on ranks 0"]
        next(iter(dataset))  # in this process
        assert loader.History(folder, source.state_dict(epoch=0, steps=2)).unknown == []


def test_a_loaded_state_keeps_its_past_without_a_run_that_delivered_nothing(folder: loader.Folder) -> None:
    with loader.FolderSource(folder, batch_size=5, rank=0, world_size=1) as source:
        assert "past" not in source.state_dict()
        next(source.epoch(0))
        for _ in range(3):
            source.load_state_dict(source.state_dict())
        assert len(source.state_dict()["past"]) == 1
