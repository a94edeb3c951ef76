"""What a state knows of a training: which images each step had, on all ranks, and at which steps an image was seen."""

import random
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import loader
from loader.order import delivery
from tests.support.encoding import encoded
from tests.support.trainings import disagreement, training
from tests.support.trees import plant, touch


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
    {"known": [None]}, {"left_out": [[0, 0, 0.5]]}, {"more": 1}, {"end": {}}, {"begin": {"epoch": 0}},
    {"world_size": 10**9}, {"batch_size": 10**30},
])  # fmt: skip
def test_a_damaged_past_is_refused(folder: loader.Folder, change: dict[str, Any]) -> None:
    with loader.FolderSource(folder, batch_size=5, rank=0, world_size=1) as source:
        next(source.epoch(0))
        state = source.state_dict()
        state["past"][0] |= change
        with pytest.raises(loader.StateError, match=r"Wanted a state .*from state_dict\(\)"):
            source.load_state_dict(state)


def test_damage_in_a_past_is_found_before_it_takes_hours(folder: loader.Folder) -> None:
    with source_of(folder) as source:
        list(source.epoch(0))
        source.load_state_dict(source.state_dict())
        next(source.epoch(1))
        state = source.state_dict()
    unended = {**state, "past": [{**state["past"][0], "end": None}, state["past"][1]]}
    with pytest.raises(loader.StateError, match="a run without an end before others"):
        loader.History(folder, unended)
    state["past"][0]["end"]["epoch"] = 10**9
    with pytest.raises(loader.OptionError, match="at most 1,048,576 epochs"):
        loader.History(folder, state).seen(0)


@pytest.mark.parametrize("change", [{"seed": "0"}, {"rows": None}, {"fingerprint": 1}, {"pending": 5}, {"extra": 1}])
def test_a_damaged_state_is_called_one(folder: loader.Folder, change: dict[str, Any]) -> None:
    with source_of(folder) as source, pytest.raises(loader.StateError, match=r"(a damaged one|places inside)"):
        source.load_state_dict({**source.state_dict(), **change})


@pytest.mark.parametrize("loads", ["dataset", "source"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_keeps_the_past_over_resumes(folder: loader.Folder, workers: int, loads: str) -> None:
    """With workers, only the caller knows what is delivered, before a state is loaded and after it."""
    state: dict[str, Any] | None = None
    wanted: list[list[int]] = []
    for run in range(3):
        with source_of(folder) as source:
            if state is not None and loads == "source":
                source.load_state_dict(state)
            dataset = loader.TorchDataset(source)
            if state is not None and loads == "dataset":
                dataset.load_state_dict(state)
            state = source.state_dict(epoch=0, steps=source.first_step(0))  # nothing was delivered since
            assert len(loader.History(folder, state).replay(0, range(9))) == len(wanted)
            batches = iter(DataLoader(dataset, batch_size=None, num_workers=workers))
            wanted += [next(batches).positions.tolist() for _ in range(2)]
            state = source.state_dict(epoch=0, steps=2 * run + 2)
            del batches
    history = loader.History(folder, state)
    assert ([one.positions.tolist() for one in history.replay(0, range(9))], history.unknown) == (wanted, [])


def test_workers_do_not_know_what_others_have_left_out(folder: loader.Folder) -> None:
    with loader.FolderSource(folder, batch_size=5, rank=0, world_size=1, on_missing="skip") as source:
        dataset = loader.TorchDataset(source)
        state = source.state_dict(epoch=0, steps=2)
        assert loader.History(folder, state).unknown == ["run 0: which samples were left out on ranks 0"]
        next(iter(dataset))  # in this process
        assert loader.History(folder, source.state_dict(epoch=0, steps=1)).unknown == []


def test_a_loaded_state_keeps_its_past_without_a_run_that_delivered_nothing(folder: loader.Folder) -> None:
    with loader.FolderSource(folder, batch_size=5, rank=0, world_size=1) as source:
        assert "past" not in source.state_dict()
        next(source.epoch(0))
        for _ in range(3):
            source.load_state_dict(source.state_dict())
        assert len(source.state_dict()["past"]) == 1


def source_of(folder: loader.Folder, **options: Any) -> loader.FolderSource:
    return loader.FolderSource(folder, **{"batch_size": 5, "rank": 0, "world_size": 1} | options)


def steps_in(history: loader.History) -> list[tuple[int, int]]:
    return [(one.epoch, one.step) for epoch in range(9) for one in history.replay(epoch, range(9))]


def test_batches_that_were_not_read_are_not_in_the_history(folder: loader.Folder) -> None:
    """Whatever position the caller names, or passes skip."""
    with source_of(folder) as source:
        next(source.epoch(0))
        history = loader.History(folder, source.state_dict(epoch=1, steps=2))
    assert (steps_in(history), history.unknown) == ([(0, 0)], ["run 1: the batches before step 2 of epoch 1"])
    with source_of(folder) as source:
        source.note(0, 1)
        source.note(5, 1)
        assert steps_in(loader.History(folder, source.state_dict())) == [(0, 0), (5, 0)]
    with source_of(folder) as source:
        dataset = loader.TorchDataset(source)
        dataset.set_epoch(5)
        list(dataset)
        history = loader.History(folder, source.state_dict())
    assert steps_in(history) == [(5, step) for step in range(6)]
    assert history.unknown == ["run 0: the batches before step 0 of epoch 5"]  # workers may have read them


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        (range(9), [3, 4, 5]),
        (range(1, 9, 3), [4]),
        (range(2, 9, 3), [5]),
        (range(9, 0, -3), [3]),
        (range(5, 3), []),
        (range(4, 10**30, 10), [4]),
        (6, []),
    ],
)
def test_steps_are_any_range(folder: loader.Folder, steps: range | int, found: list[int]) -> None:
    with source_of(folder) as source:
        list(islice(source.epoch(0), 3))
        state = {name: value for name, value in source.state_dict().items() if name != "past"}
    with source_of(folder) as source:
        source.load_state_dict(state)
        list(source.epoch(0))
        history = loader.History(folder, source.state_dict())
    assert [one.step for one in history.replay(0, steps)] == found


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("after", [(), (1,), (1, 2), (0, 1)])
def test_an_earlier_epoch_before_a_loaded_one_delivers_nothing_of_it(
    folder: loader.Folder, after: tuple[int, ...], ranks: int
) -> None:
    with loader.FolderSource(folder, batch_size=5, rank=0, world_size=ranks) as source:
        given = [(1, batch.step) for batch in islice(source.epoch(1), 2)]
        source.load_state_dict(source.state_dict())
        for epoch in (0, *after):
            given += [(epoch, batch.step) for batch in source.epoch(epoch)]
        history = loader.History(folder, source.state_dict())
    found = [(one.epoch, one.step) for epoch in range(3) for one in history.replay(epoch, range(9)) if one.rank == 0]
    assert sorted(found) == sorted(given)
    assert history.unknown == []


def test_a_pass_that_fails_beside_another_one_leaves_a_gap(folder: loader.Folder) -> None:
    (Path(folder.address) / folder.paths[0].decode()).unlink()
    with source_of(folder, shuffle=False) as source:
        first, second = source.epoch(0), source.epoch(0)
        with pytest.raises(loader.MissingImageError):
            next(first)
        with pytest.raises(loader.MissingImageError):
            next(second)
        assert loader.History(folder, source.state_dict()).unknown == []
    with source_of(folder, shuffle=False, on_missing="skip", max_missing=1.0) as source:
        first, second = source.epoch(0), source.epoch(0)
        next(first), next(second)
        second.close()  # type: ignore[attr-defined]
        history = loader.History(folder, source.state_dict())
    assert (steps_in(history), len(history.unknown)) == ([], 1)


def test_too_many_samples_that_are_left_out_are_not_known(
    folder: loader.Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MOST_LEFT_OUT", 3)
    for path in folder.paths[:5]:
        (Path(folder.address) / path.decode()).unlink()
    with source_of(folder, on_missing="skip", max_missing=1.0) as source:
        for epoch in range(2):
            list(source.epoch(epoch))
        history = loader.History(folder, source.state_dict())
    assert history.unknown == ["run 0: which samples were left out on ranks 0"]
    assert not any(one.is_exact for one in history.replay(1, range(9)))


@pytest.mark.parametrize("steps", [1, 2, None])
@pytest.mark.parametrize(("weights", "size"), [(None, 4), ({0: 9}, 7)])  # with weights, images come again in a batch
@pytest.mark.parametrize("policy", ["PARTIAL", "FILL", "DROP"])
def test_out_of_order_it_is_known_whether_an_image_was_seen(
    folder: loader.Folder, policy: Any, weights: Any, size: int, steps: int | None
) -> None:
    for path in folder.paths[:7]:
        (Path(folder.address) / path.decode()).unlink()
    usual = {"in_order": False, "on_missing": "skip", "max_missing": 1.0, "last_batch_policy": policy}
    usual |= {"class_weights": weights}
    sources = [source_of(folder, **usual, rank=rank, world_size=2, batch_size=size) for rank in range(2)]
    given: set[int] = set()
    for source in sources:
        batches = islice(source.epoch(0), steps)
        given |= {one for batch in batches for one in batch.positions.tolist()}
    history = loader.History(folder, loader.merge_states([source.state_dict() for source in sources]))
    for source in sources:
        source.close()
    assert {position for position in range(30) if history.seen(position)} == given


def test_a_batch_is_read_again_from_the_state_before_it(folder: loader.Folder) -> None:
    def source(batch_size: int, state: Any = None) -> loader.FolderSource:
        made = loader.FolderSource(folder, batch_size=batch_size, rank=0, world_size=1)
        if state is not None:
            made.load_state_dict(state)
        return made

    with source(4) as first:
        list(islice(first.epoch(0), 3))
        state = first.state_dict()
    with source(5, state) as second:
        list(second.epoch(0))
        list(islice(second.epoch(1), 2))
        history = loader.History(folder, second.state_dict())
    batches = [*history.replay(0, range(9)), *history.replay(1, range(9))]
    assert len(batches) == 3 + 4 + 2
    for batch in batches:
        with source(4 if batch.run == 0 else 5, history.state_before(batch)) as again:
            found = next(again.epoch(batch.epoch))
        assert (found.step, found.positions.tolist()) == (batch.step, batch.positions.tolist())


@pytest.mark.parametrize(("crop_area", "mirror"), [((0.08, 1.0), True), ((0.3, 0.4), False)])
def test_a_sheet_shows_the_very_crops_that_training_was_given(
    tmp_path: Path, crop_area: tuple[float, float], mirror: bool
) -> None:
    files = {f"{number % 2}/{number}.{kind}": encoded(noise(number), kind) for number, kind in enumerate(KINDS * 5)}
    folder = loader.open_folder(plant(tmp_path / "tree", files))
    plain = {"mean": (0.0, 0.0, 0.0), "std": (1 / 255, 1 / 255, 1 / 255)}
    chosen: dict[str, Any] = {"size": CELL, "crop_area": crop_area, "mirror": mirror}
    seen = []
    with loader.FolderSource(folder, batch_size=4, rank=0, world_size=1) as source:
        batches = loader.ClassificationIterator(source, train=True, **chosen, **plain)
        for images, _ in (*batches, *batches):
            seen.append(images.round().astype(np.uint8).transpose(0, 2, 3, 1))
        history = loader.History(folder, batches.state_dict())
    for step in (0, 3):
        for epoch in (0, 1):
            found = history.replay(epoch, step)
            cells = cells_of(history.show(found, **chosen))
            wanted = seen[step + epoch * len(source)]
            assert len(cells) == len(wanted) == len(found[0])
            for cell, image in zip(cells, wanted, strict=True):
                assert (cell == image).all()
    assert len(cells_of(history.show([*history.replay(0, 4), *history.replay(1, 0)], size=CELL))) == 8


def test_a_sheet_of_crops_shows_damaged_pictures_as_training_saw_them(tmp_path: Path) -> None:
    files = {"a/whole.png": encoded(noise(0)), "a/none.png": b"no picture"}
    checksum = bytearray(encoded(noise(2)))
    checksum[-14] ^= 1  # of the pixels: Pillow does not mind
    files["a/checksum.png"] = bytes(checksum)
    folder = loader.open_folder(plant(tmp_path / "tree", files))
    with loader.FolderSource(folder, batch_size=3, rank=0, world_size=1) as source:
        batches = loader.ClassificationIterator(
            source, size=CELL, train=True, on_undecodable="skip", mean=(0, 0, 0), std=(1 / 255, 1 / 255, 1 / 255)
        )
        ((images, _),) = batches
        assert batches.given is not None
        seen = dict(zip(batches.given.positions.tolist(), images.round().astype(np.uint8), strict=True))
        (replayed,) = loader.History(folder, batches.state_dict()).replay(0, 0)
        history = loader.History(folder, batches.state_dict())
    assert sorted(replayed.positions.tolist()) == sorted(seen)
    for position, cell in zip(replayed.positions.tolist(), cells_of(history.show(replayed, size=CELL)), strict=True):
        assert (cell == seen[position].transpose(1, 2, 0)).all()
    none = folder.paths.index(b"a/none.png")
    every = replace(replayed, positions=np.array([none, *seen]), places=np.zeros(3, dtype=np.int64))
    assert len(cells_of(history.show(every, size=CELL))) == 3  # one of them says that it cannot be decoded


@pytest.mark.parametrize("options", [
    {"size": -16}, {"size": 1.5}, {"size": True}, {"size": "16"}, {"size": 100_000}, {"size": 8, "mirror": "no"},
    {"size": 8, "crop_area": (1, 0)}, {"mirror": False}, {"crop_area": (0.5, 1.0)},
])  # fmt: skip
def test_crops_of_impossible_options_are_refused(folder: loader.Folder, options: dict[str, Any]) -> None:
    with loader.FolderSource(folder, batch_size=10, rank=0, world_size=1) as source:
        list(source.epoch(0))
        history = loader.History(folder, source.state_dict())
    with pytest.raises(loader.OptionError, match="Wanted"):
        history.show(history.replay(0, 0), **options)
    with pytest.raises(loader.OptionError, match=r"a batch of this history's replay"):
        history.state_before(3)  # type: ignore[arg-type]
    for batches in ("x", [3], None):
        with pytest.raises(loader.OptionError, match=r"Wanted batches of replay\(\)"):
            history.show(batches)  # type: ignore[arg-type]


CELL, GAP = 128, 8  # of a picture on a sheet, and between two
KINDS = ["PNG", "JPEG", "BMP", "TIFF"]  # DALI does not decode the last two as we do


def noise(number: int) -> Any:
    return np.random.default_rng(number).integers(0, 256, (90 + number, 120 - number, 3), dtype=np.uint8)


def cells_of(sheet: Any) -> list[Any]:
    """The pictures on a sheet, without the names below them."""
    pixels = np.asarray(sheet)
    width, height = CELL + GAP, CELL + 2 + 2 * 15 + GAP
    corners = [
        (top, left) for top in range(GAP, pixels.shape[0] - GAP, height) for left in range(GAP, pixels.shape[1], width)
    ]
    found = [pixels[top : top + CELL, left : left + CELL] for top, left in corners]
    return [one for one in found if one.shape == (CELL, CELL, 3) and (one != 255).any()]
