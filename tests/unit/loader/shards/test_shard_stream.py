"""Compressed files of shards: inflated within the memory budget, or refused by name."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from loader import ShardError
from loader.shards import make_client
from loader.shards.shard_stream import inflate
from tests.support.shard_folders import shards_of

MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPED = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"


def packed(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def without_size(count: int) -> bytes:
    """A frame of this many zeros that does not declare its size, in blocks that repeat one byte."""
    whole, rest = divmod(count, 1 << 17)
    blocks = [((size << 3) | 0b010).to_bytes(3, "little") + b"\0" for size in [1 << 17] * whole + [rest]]
    last = int.from_bytes(blocks[-1][:3], "little") | 1
    return MAGIC + b"\x00\x58" + b"".join(blocks[:-1]) + last.to_bytes(3, "little") + b"\0"


def read(folder: Path, samples: list[dict[str, bytes]], *, budget: int, batch_size: int = 2) -> list[dict[str, Any]]:
    from loader.shards import RemoteDataset

    shards_of(folder / "x", samples)
    dataset = RemoteDataset(make_client(folder), "x", shuffle=False, streams=1, memory_budget=budget)
    return [sample for batch in dataset.batched(batch_size, None) for sample in batch]


def test_compressed_files_come_inflated(tmp_path: Path) -> None:
    bodies = {"bmp.zst": packed(b"a" * 3000), "one.zst": without_size(300_000), "two.zst": packed(b"x") + packed(b"y")}
    (sample,) = read(tmp_path, [{**bodies, "three.zst": SKIPPED + packed(b"z"), "cls": b"1"}], budget=10_000_000)
    assert {name: sample[name] for name in sample if name[0] != "_"} == {
        "bmp": b"a" * 3000,
        "one": bytes(300_000),
        "two": b"xy",
        "three": b"z",
        "cls": b"1",
    }


@pytest.mark.parametrize(
    "bomb",
    [
        packed(bytes(100_000_000)),
        without_size(100_000_000),
        packed(bytes(1_000_000)) * 100,
        SKIPPED + without_size(10**8),
    ],
    ids=["declared", "not declared", "several frames", "skippable frame"],
)
def test_a_file_that_inflates_beyond_the_budget_is_refused(tmp_path: Path, bomb: bytes) -> None:
    assert len(bomb) < 20_000
    found = r"Cannot inflate 000000000\.bmp\.zst in filler00-000000\.tar\. Found: the inflated batch exceeds the 2,9"
    with pytest.raises(ShardError, match=found):
        read(tmp_path, [{"bmp.zst": bomb, "cls": b"1"}], budget=3_000_000)


def test_all_files_of_a_batch_count_and_of_the_next_one_anew(tmp_path: Path) -> None:
    samples = [{"bmp.zst": packed(bytes(1_000_000))} for _ in range(6)]
    assert len(read(tmp_path, samples, budget=2_500_000)) == 6
    with pytest.raises(ShardError, match=r"Cannot inflate 000000002\.bmp\.zst"):
        read(tmp_path / "other", samples, budget=2_500_000, batch_size=3)


def test_inflated_files_take_the_place_of_pieces_that_were_read_ahead(tmp_path: Path) -> None:
    from loader.shards import RemoteDataset

    samples = [{"bmp.zst": packed(bytes(1_000_000)), "bin": os.urandom(400_000)} for _ in range(40)]
    shards_of(tmp_path / "x", samples, together=4)
    options: dict[str, Any] = {"mix": 8, "streams": 2, "memory_budget": 6_000_000}
    dataset = RemoteDataset(make_client(tmp_path), "x", **options).batched(3, None)
    found = []
    for batch in dataset:
        assert 1_000_000 * len(batch) < dataset._source.stats().held_bytes <= 6_000_000
        assert all(sample["bmp"] == bytes(1_000_000) for sample in batch)
        found += [sample["bin"] for sample in batch]
    assert sorted(found) == sorted(sample["bin"] for sample in samples)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "no zstd data"),
        (SKIPPED, "no zstd data"),
        (b"BM" + bytes(50), "ZSTD decompress failed"),
        (packed(b"a" * 3000)[:-1], "Truncated"),
        (packed(b"a" * 3000) + b"junk", "ZSTD decompress failed"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, data: bytes, found: str) -> None:
    with pytest.raises((ValueError, OSError), match=found):
        inflate(data, lambda size: None)
    with pytest.raises(ShardError, match=rf"Cannot inflate 000000000\.bmp\.zst in .*{found}"):
        read(tmp_path, [{"bmp.zst": data}], budget=3_000_000)


def test_a_file_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"000000000\.bmp\.zst .*another bmp in the sample"):
        read(tmp_path, [{"bmp": b"1", "bmp.zst": packed(b"2")}], budget=3_000_000)
