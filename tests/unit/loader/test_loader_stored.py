"""States of an earlier version continue at the same samples, with files and shards of that version."""

import json
from pathlib import Path
from typing import Any

import pytest

import loader
from loader import ShardSource
from loader.shards import open_shards
from tests.support.pictures import picture
from tests.support.stored import unpack

CLASSES = ("cat", "dog", "Kuh")


@pytest.fixture
def states(tmp_path: Path) -> dict[str, Any]:
    return {file.stem: json.loads(file.read_text()) for file in unpack("loader_states", tmp_path / "states").iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> loader.Folder:
    for number in range(7):
        path = tmp_path / "tree" / CLASSES[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number % 3))
    return loader.open_folder(tmp_path / "tree", dataset="pets", seed=5)


def left(source: loader.Source) -> list[list[int]]:
    return [batch.positions.tolist() for batch in source.epoch(source.first_epoch)]


@pytest.mark.parametrize(("name", "expected"), [("folder", [[2, 5], [4]]), ("pending", [[6, 5], [4]])])
def test_an_epoch_of_a_split_goes_on(
    folder: loader.Folder, states: dict[str, Any], name: str, expected: list[list[int]]
) -> None:
    with loader.FolderSource(folder, batch_size=2, rank=0, world_size=1, seed=3) as source:
        source.load_state_dict(states[name])
        assert (source.first_epoch, left(source)) == (2, expected)


def test_states_of_ranks_out_of_order_become_one(states: dict[str, Any]) -> None:
    assert loader.merge_states([states["share_0"], states["share_1"]]) == states["pending"]


@pytest.mark.parametrize(("name", "expected"), [("shards", [[2, 6], [3]]), ("shards_again", [[6, 3]])])
def test_an_epoch_of_shards_goes_on(
    tmp_path: Path, states: dict[str, Any], name: str, expected: list[list[int]]
) -> None:
    shards = open_shards(str(unpack("shards", tmp_path / "shards")))
    with ShardSource(shards, batch_size=2, mix=4, streams=2, seed=3) as source:
        source.load_state_dict(states[name])
        assert (source.first_epoch, left(source)) == (1, expected)


def test_a_worker_of_a_dataset_goes_on(folder: loader.Folder, states: dict[str, Any]) -> None:
    with loader.FolderSource(folder, batch_size=2, rank=0, world_size=1, seed=3) as source:
        whole = left(source)
        dataset = loader.TorchDataset(source)
        dataset.load_state_dict(states["torch"])
        assert [batch.positions.tolist() for batch in dataset] == whole[2:]
        assert whole == [[3, 2], [5, 6], [0, 4], [1]]
