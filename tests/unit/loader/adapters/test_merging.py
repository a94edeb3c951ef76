"""The states of all ranks as one: what each has left out, also of shards. Other promises are in `order/test_state`."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from PIL import Image

import loader
from tests.support.encoding import encoded
from tests.support.shard_folders import shards_of
from tests.support.trees import touch


def sample(number: int, image: bytes) -> dict[str, bytes]:
    return {"png": image, "cls": b"0", "json": json.dumps({"id": str(UUID(int=number))}).encode()}


def test_what_each_rank_has_left_out_of_shards_is_known_together(tmp_path: Path) -> None:
    picture, bad = encoded(Image.new("RGB", (3, 3))), {2, 3, 4, 5, 11}
    shards = shards_of(
        tmp_path / "shards", [sample(one, b"broken" if one in bad else picture) for one in range(16)], together=4,
        label_type="int",
    )  # fmt: skip
    given: dict[int, set[tuple[int, int, int]]] = {number: set() for number in range(16)}
    states = []
    for rank in (0, 1):
        with loader.ShardSource(shards, batch_size=2, rank=rank, world_size=2, last_batch_policy="FILL") as source:
            batches = loader.ClassificationIterator(source, size=2, train=False, on_undecodable="skip", num_threads=1)
            for _ in batches:
                assert batches.given is not None
                for position in batches.given.positions.tolist():
                    given[position].add((0, batches.given.step, rank))
            assert {one.position for one in source.skipped} < bad
            states.append(batches.state_dict())
    assert loader.History(shards, states[0]).unknown == ["run 0: which samples were left out on ranks 1"]
    history = loader.History(shards, loader.merge_states(states))
    assert history.unknown == []
    assert {one: {(it.epoch, it.step, it.rank) for it in history.seen(one)} for one in range(16)} == given
    assert all(one.is_exact for one in history.replay(0, range(4)))


def test_states_of_several_kinds_or_steps_are_refused(tmp_path: Path) -> None:
    shards = shards_of(tmp_path / "shards", [sample(one, b"x") for one in range(4)], label_type="int")
    folder = loader.open_folder(touch(tmp_path / "tree", "a/1.png", "a/2.png"))
    options: Any = {"batch_size": 1, "rank": 0, "world_size": 1}
    with loader.ShardSource(shards, **options) as source, loader.FolderSource(folder, **options) as other:
        of_shards, of_folder = source.state_dict(), other.state_dict()
        next(batches := source.epoch(0))
        later = source.state_dict()
        del batches
        for given, name in ((of_folder, "class folders"), (None, "NoneType")):
            with pytest.raises(loader.StateError, match=f"Wanted a state of shards.*Found: .*{name}"):
                source.load_state_dict(given)  # type: ignore[arg-type]
        with pytest.raises(loader.StateError, match=r"Wanted a state of a split or of class folders\. Found: one"):
            other.load_state_dict(of_shards)
        with pytest.raises(loader.StateError, match="Found: NoneType"):
            loader.TorchDataset(other).load_state_dict(None)  # type: ignore[arg-type]
    with pytest.raises(loader.StateError, match="at one step"):
        loader.merge_states([of_shards, later])
    with pytest.raises(loader.StateError, match=r"Wanted a state of shards\. Found: one of a split"):
        loader.merge_states([of_shards, of_folder])
