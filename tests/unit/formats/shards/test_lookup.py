"""Finding an image in shards: at the expected sample, elsewhere if images were rejected, and not at all."""

from pathlib import Path

import pytest

from formats.errors import DamagedError
from formats.shards.folder import manifest_of
from formats.shards.layout import ShardWriter, index_name
from formats.shards.lookup import ShardPlace, find_in_shards
from formats.shards.sample_metadata import facts_text
from formats.stores.storage import Storage
from schemas.shards import Shard, ShardManifest
from tests.support.split_folders import image_ids

IDS = [one.bytes for one in image_ids(5)]


def write(folder: Path, name: str, numbers: list[int]) -> Shard:
    with (folder / name).open("wb") as file:
        writer = ShardWriter(lambda *parts: file.writelines(parts))
        for number in numbers:
            metadata = facts_text(IDS[number], f"a/{number}.png", label=0)
            writer.add(f"{number:09}", {"png": b"image", "cls": b"0", "json": metadata})
        shard = writer.end(name)
    (folder / index_name(name)).write_text(writer.index, encoding="utf-8")
    return shard


@pytest.fixture
def shards(tmp_path: Path) -> tuple[Storage, ShardManifest]:
    """Two shards; the image of position 1 was rejected."""
    written = [write(tmp_path, "a-0.tar", [0, 2]), write(tmp_path, "a-1.tar", [3, 4])]
    manifest = manifest_of(
        written, label_type="int", class_names={}, counts={}, seed=0, source="", source_fingerprint="0" * 64, options={}
    )
    return Storage(tmp_path), manifest


@pytest.mark.parametrize("number", [0, 2, 3, 4])
@pytest.mark.parametrize("has_position", [True, False])
def test_an_image_is_found(shards: tuple[Storage, ShardManifest], number: int, has_position: bool) -> None:
    found = find_in_shards(*shards, IDS[number], position=number if has_position else None)
    assert found == ShardPlace(f"a-{number // 3}.tar", f"{number:09}")


def test_an_image_that_was_rejected_is_not_found(shards: tuple[Storage, ShardManifest]) -> None:
    assert find_in_shards(*shards, IDS[1], position=1) is find_in_shards(*shards, IDS[1]) is None


def test_a_damaged_index_is_no_answer(shards: tuple[Storage, ShardManifest], tmp_path: Path) -> None:
    (tmp_path / "a-1.idx").write_text("v1.2 1\njson x\n", encoding="utf-8")
    with pytest.raises(DamagedError, match=r"Wanted the index of a-1\.tar"):
        find_in_shards(*shards, IDS[4])
