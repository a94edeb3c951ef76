"""Batches of which nothing is left, with FILL and DROP: they repeat the first image of the epoch that can be used."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader

import loader
from loader.folder import files
from tests.support.encoding import encoded
from tests.support.shard_folders import shards_of
from tests.support.transforms import small
from tests.support.trees import plant, touch

ROWS = 12
Labels = list[list[int]]


@settings(max_examples=60, deadline=None)
@given(
    gone=st.sets(st.integers(0, ROWS - 1), max_size=ROWS - 1), batch_size=st.integers(1, 3), ranks=st.integers(1, 2),
    policy=st.sampled_from(["FILL", "DROP"]), at=st.integers(0, ROWS),
)  # fmt: skip
def test_a_resumed_epoch_is_filled_as_if_it_had_not_been_interrupted(
    gone: set[int], batch_size: int, ranks: int, policy: Any, at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = loader.open_folder(
        touch(tmp_path_factory.mktemp("tree"), *(f"a/{number:02}.png" for number in range(ROWS)))
    )
    for position in gone:
        (Path(folder.address) / folder.paths[position].decode()).unlink()

    def source(rank: int) -> loader.FolderSource:
        return loader.FolderSource(
            folder, batch_size=batch_size, rank=rank, world_size=ranks, last_batch_policy=policy, on_missing="skip",
            max_missing=1.0,
        )  # fmt: skip

    def read(state: dict[str, Any] | None, most: int = ROWS) -> tuple[list[Labels], dict[str, Any]]:
        """The batches of each rank, and the state of all of them."""
        found, states = [], []
        for rank in range(ranks):
            with source(rank) as one:
                if state is not None:
                    one.load_state_dict(state)
                batches = one.epoch(0)
                found.append([batch.positions.tolist() for _, batch in zip(range(most), batches, strict=False)])
                states.append(one.state_dict())
        return found, loader.merge_states(states)

    whole, end = read(None)
    with loader.FolderSource(folder, batch_size=ROWS, rank=0, world_size=1) as alone:
        first = next(position for position in alone.plan.order(0)(range(ROWS)).tolist() if position not in gone)
    assert all(len(batch) == batch_size for rank in whole for batch in rank)
    at = min(at, len(whole[0]))
    begun, state = read(None, at)
    rest, resumed = read(state) if state["epoch"] == 0 else ([[]] * ranks, state)
    assert [[*some, *more] for some, more in zip(begun, rest, strict=True)] == whole
    assert all(set(batch) <= {first} or not set(batch) & gone for rank in whole for batch in rank)
    for known in (end, resumed):
        history = loader.History(folder, known)
        replayed = history.replay(0, range(ROWS))
        assert history.unknown == []
        assert [(one.step, one.rank, one.positions.tolist(), one.is_exact) for one in replayed] == [
            (step, rank, batch, True)
            for step in range(len(whole[0]))
            for rank, batch in enumerate(x[step] for x in whole)
        ]
        for position in range(ROWS):
            given_to = {(one.step, one.rank) for one in history.seen(position)}
            assert given_to == {(one.step, one.rank) for one in replayed if position in one.positions}


def by_dali(source: loader.FolderSource, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
    batches = loader.ClassificationIterator(source, size=2, train=False, on_undecodable="skip", num_threads=1)
    if state is not None:
        batches.load_state_dict(state)
    return iter(batches), batches.state_dict


def by_torch(source: loader.FolderSource, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
    if state is not None:
        source.load_state_dict(state)
    dataset = loader.TorchDataset(source, transform=small, on_undecodable="skip")
    return iter(DataLoader(dataset, batch_size=None)), source.state_dict


def by_workers(source: loader.FolderSource, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
    if state is not None:
        source.load_state_dict(state)
    dataset = loader.TorchDataset(source, transform=small, on_undecodable="skip")
    return iter(DataLoader(dataset, batch_size=None, num_workers=3)), lambda: source.state_dict(epoch=0, steps=2)


@pytest.mark.parametrize("door", [by_dali, by_torch, by_workers])
def test_images_that_are_no_pictures_are_replaced_alike_after_a_resume(door: Any, tmp_path: Path) -> None:
    """The first batches and the last one have none, and the first picture of the epoch is missing."""
    files = {f"{number}/a.png": encoded(Image.new("RGB", (3, 3)), "PNG") for number in range(ROWS)}
    folder = loader.open_folder(plant(tmp_path / "tree", files))
    options: Any = {"batch_size": 2, "rank": 0, "world_size": 1, "last_batch_policy": "FILL"}
    with loader.FolderSource(folder, **options) as source:
        order = [position for batch in source.epoch(0) for position in batch.positions.tolist()]
    places = [Path(folder.address) / folder.paths[position].decode() for position in order]
    for bad in (0, 1, 2, 3, 10, 11):
        places[bad].write_bytes(b"no picture")
    places[4].unlink()
    options |= {"on_missing": "skip", "max_missing": 0.5}
    assert folder.labels is not None
    five, *others = (int(label) for label in folder.labels[order][5:10])
    wanted = [[five] * 2] * 3 + [others[:2], others[2:], [five] * 2]
    with loader.FolderSource(folder, **options) as source:
        batches, state = door(source, None)
        found = [next(batches)[1].tolist() for _ in range(2)]
        stopped = state()
        del batches
    with loader.FolderSource(folder, **options) as source:
        found += [labels.tolist() for _, labels in door(source, stopped)[0]]
    assert found == wanted


@pytest.mark.parametrize("streams", [1, 12])
def test_shards_without_most_pictures_are_filled_alike(streams: int, tmp_path: Path) -> None:
    """On any ranks, and after a resume; in batches of any size, with a picture."""
    good, picture = {3, 8}, encoded(Image.new("RGB", (3, 3)))
    samples = [
        {
            "png": picture if number in good else b"broken",
            "cls": str(number).encode(),
            "json": json.dumps({"id": str(UUID(int=number))}).encode(),
        }
        for number in range(ROWS)
    ]
    shards = shards_of(tmp_path, samples, together=4, label_type="int")

    def source(**options: Any) -> loader.ShardSource:
        usual: Any = {"batch_size": 1, "rank": 0, "world_size": 1, "last_batch_policy": "FILL", "streams": streams}
        return loader.ShardSource(shards, **usual | options)

    def read(state: Any = None, most: int = ROWS, **options: Any) -> tuple[Labels, Any]:
        with source(**options) as one:
            if state is not None:
                one.load_state_dict(state)
            dataset = loader.TorchDataset(one, transform=small, on_undecodable="skip")
            found = [labels.tolist() for _, (_, labels) in zip(range(most), dataset, strict=False)]
            return found, one.state_dict()

    with source() as one:
        order = [int(batch.positions[0]) for batch in one.epoch(0)]
    first = next(one for one in order if one in good)
    whole, _ = read()
    assert whole == [[one if one in good else first] for one in order]
    begun, state = read(most=3)
    assert begun + read(state)[0] == whole
    for size, world in ((3, 1), (1, 3), (2, 2)):
        found = [read(batch_size=size, rank=rank, world_size=world)[0] for rank in range(world)]
        assert {one for rank in found for labels in rank for one in labels} == good
        if size == 1:  # the order of shards depends on the size of batches
            assert sum(labels == [first] for rank in found for labels in rank) == ROWS - 1


def test_an_epoch_without_a_picture_fails(tmp_path: Path) -> None:
    folder = loader.open_folder(touch(tmp_path / "tree", *(f"a/{number}.png" for number in range(3))))
    with loader.FolderSource(folder, batch_size=1, shuffle=False, last_batch_policy="FILL") as source:
        for door in (by_dali, by_torch):
            named = r"a/0\.png \(.*position 0\)\. Found: .* No image of the epoch can be decoded\."
            with pytest.raises(loader.DecodeError, match=named):
                next(door(source, None)[0])
    for path in folder.paths:
        (Path(folder.address) / path.decode()).unlink()
    options: Any = {"batch_size": 1, "shuffle": False, "last_batch_policy": "FILL", "on_missing": "skip"}
    with (
        loader.FolderSource(folder, **options, max_missing=1.0) as source,
        pytest.raises(loader.MissingImageError, match=r"a/0\.png\. Found: no such file"),
    ):
        next(source.epoch(0))


def test_what_is_missing_before_the_first_image_is_read_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = loader.open_folder(touch(tmp_path / "tree", *(f"a/{number:02}.png" for number in range(ROWS))))
    for path in folder.paths[:8]:
        (Path(folder.address) / path.decode()).unlink()
    read, once = [], files._read

    def noted(path: bytes) -> bytes:
        read.append(path)
        return once(path)

    monkeypatch.setattr(files, "_read", noted)
    options: Any = {"batch_size": 1, "shuffle": False, "last_batch_policy": "FILL", "on_missing": "skip"}
    with loader.FolderSource(folder, rank=0, world_size=1, max_missing=1.0, **options) as source:
        assert [int(batch.positions[0]) for batch in source.epoch(0)] == [8] * 9 + [9, 10, 11]
    assert read.count(read[0]) <= 1 + 1 + 2  # in its place, to fill, and ahead for the next epochs


def test_out_of_order_any_picture_of_the_epoch_fills_batches(tmp_path: Path) -> None:
    files = {f"{number}/a.png": b"no picture" for number in range(ROWS - 1)}
    folder = loader.open_folder(plant(tmp_path / "tree", files | {"9/b.png": encoded(Image.new("RGB", (3, 3)))}))
    options: Any = {"batch_size": 4, "rank": 0, "world_size": 1, "last_batch_policy": "FILL", "in_order": False}
    with loader.FolderSource(folder, **options) as source:
        labels = [one for _, found in by_dali(source, None)[0] for one in found.tolist()]
    assert folder.class_names is not None
    assert [folder.class_names[one] for one in labels] == ["9"] * ROWS
