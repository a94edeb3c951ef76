"""A task writes its shards completely or not at all, and resumes after an interruption."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from etl.errors import EtlError
from etl.ingest.writing.progress import Counters
from etl.shards.tasks import MANIFEST, ShardOrder, shard_of, write_shards
from etl.sources.entries import ARROW_ENTRIES
from formats.errors import FormatsError
from tests.support.pictures import texture

SAMPLES = pa.schema(
    [("order", pa.int64()), ("label", pa.int32()), ("xxhash64", pa.int64()), *ARROW_ENTRIES, ("shard", pa.int32())]
)


class Counted(Counter[str]):
    """Counts as Spark's accumulators do."""

    def count(self, **counts: int) -> None:
        self.update(counts)


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Six images, three for each of two shards."""
    places = [tmp_path / f"{number}.png" for number in range(6)]
    for number, place in enumerate(places):
        place.write_bytes(texture(number, width=9, height=8))
    return places


def rows_of(pictures: list[Path]) -> pa.RecordBatch:
    rows = [
        (n, n % 2, None, bytes([n]) * 16, b"", b"%d.png" % n, "ab"[n % 2], None, bytes(place), None,
         place.stat().st_size, None, None, None, None, n // 3)
        for n, place in enumerate(pictures)
    ]  # fmt: skip
    return pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=SAMPLES)


def order_for(out: Path, **options: Any) -> ShardOrder:
    options = {"counters": cast(Counters, Counted()), "label_type": "int", "check": "header", **options}
    return ShardOrder(address=str(out), tag="0a1b2c3d", firsts=(0, 3, 6), **options)


def write(pictures: list[Path], out: Path, **options: Any) -> list[tuple[str, str]]:
    """Run a task over both shards; return its outcomes."""
    order = order_for(out, **options)
    batches = write_shards([rows_of(pictures)], order=order)
    return [(row["kind"], row["text"]) for batch in batches for row in batch.to_pylist()]


def files(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in out.iterdir()}


def test_shards_are_written_with_their_index_and_metadata(pictures: list[Path], tmp_path: Path) -> None:
    counted = Counted()
    results = write(pictures, tmp_path / "out", counters=counted)
    shards = [shard_of(text) for _, text in results]
    assert [kind for kind, _ in results] == ["shard", "shard"]
    assert [(shard.name, shard.samples, counts) for shard, counts in shards] == [
        ("0a1b2c3d-000000.tar", 3, {0: 2, 1: 1}),
        ("0a1b2c3d-000001.tar", 3, {0: 1, 1: 2}),
    ]
    suffixes = ("idx", "tar", "tar.done")
    assert sorted(files(tmp_path / "out")) == [f"0a1b2c3d-00000{n}.{suffix}" for n in range(2) for suffix in suffixes]
    assert (counted["images"], counted["bytes"]) == (6, sum(shard.bytes for shard, _ in shards))


def test_a_failed_attempt_leaves_no_shard_and_the_next_one_writes_it(pictures: list[Path], tmp_path: Path) -> None:
    wanted = write(pictures, tmp_path / "wanted")

    def broken() -> Iterator[pa.RecordBatch]:
        yield rows_of(pictures).slice(0, 2)
        raise OSError("the machine is gone")

    with pytest.raises((OSError, EtlError), match="the machine is gone"):
        list(write_shards(broken(), order=order_for(tmp_path / "out")))
    assert not (tmp_path / "out").exists() or files(tmp_path / "out") == {}
    assert write(pictures, tmp_path / "out") == wanted
    assert files(tmp_path / "out") == files(tmp_path / "wanted")


def test_finished_shards_are_rewritten_only_without_resume(pictures: list[Path], tmp_path: Path) -> None:
    out, counted = tmp_path / "out", Counted()
    results, found = write(pictures, out), files(out)
    for place in pictures:
        place.write_bytes(b"x" * place.stat().st_size)  # a later reader detects it
    assert write(pictures, out, resume=True, counters=counted) == results
    assert files(out) == found
    assert counted == {"images": 6, "bytes": sum(shard_of(text)[0].bytes for _, text in results)}
    assert {kind for kind, _ in write(pictures, out)} == {"rejected"}


@pytest.mark.parametrize("damage", ["no index", "shorter", "half a note", "no note"])
def test_resume_rewrites_incomplete_shards(pictures: list[Path], tmp_path: Path, damage: str) -> None:
    out = tmp_path / "out"
    results, found = write(pictures, out), files(out)
    shard, note = out / "0a1b2c3d-000001.tar", out / "0a1b2c3d-000001.tar.done"
    if damage == "no index":
        shard.with_suffix(".idx").unlink()
    elif damage == "shorter":
        shard.write_bytes(shard.read_bytes()[:-512])
    elif damage == "half a note":
        note.write_bytes(note.read_bytes()[:20])
    else:
        note.unlink()
    assert write(pictures, out, resume=True) == results
    assert files(out) == found


def test_a_manifest_is_removed_before_one_of_its_shards_changes(pictures: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    shards = [shard_of(text)[0] for _, text in write(pictures, out)]
    (out / MANIFEST).write_text("of these shards")
    published = {shard.name: shard.sha256 for shard in shards}
    write(pictures, out, published=published)
    assert (out / MANIFEST).exists()  # the complete shard is kept
    data = bytearray(pictures[4].read_bytes())
    data[-20] ^= 1  # with the same name and size
    pictures[4].write_bytes(data)
    again = [shard_of(text)[0] for _, text in write(pictures, out, published=published)]
    assert not (out / MANIFEST).exists()
    assert [one.sha256 == before.sha256 for one, before in zip(again, shards, strict=True)] == [True, False]


def test_pictures_that_are_damaged_or_of_another_size_are_skipped_and_named(
    pictures: list[Path], tmp_path: Path
) -> None:
    rows, counted = rows_of(pictures), Counted()
    for number in (0, 1, 2):
        pictures[number].write_bytes(b"x" * pictures[number].stat().st_size)
    pictures[3].write_bytes(pictures[3].read_bytes()[:-1])
    pictures[5].unlink()
    batches = list(write_shards([rows], order=order_for(tmp_path / "out", counters=counted)))
    results = [(row["kind"], json.loads(row["text"])) for batch in batches for row in batch.to_pylist()]
    rejected = {one["path"]: one["reason"] for kind, one in results if kind == "rejected"}
    assert sorted(rejected) == ["0.png", "1.png", "2.png", "3.png", "5.png"]
    assert rejected["3.png"].startswith("another size than listed: ")
    shards = [one["name"] for kind, one in results if kind == "shard"]
    assert shards == ["0a1b2c3d-000001.tar"]  # a shard with only damaged images is not written
    assert not (tmp_path / "out" / "0a1b2c3d-000000.tar").exists()
    assert (counted["images"], counted["rejected"]) == (1, 5)


def test_a_folder_at_the_path_of_a_shard_is_reported(pictures: list[Path], tmp_path: Path) -> None:
    place = tmp_path / "out" / "0a1b2c3d-000001.tar"
    (place / "in the way").mkdir(parents=True)
    with pytest.raises((EtlError, FormatsError), match=rf"Wanted to write {place}\. Found: Is a directory\."):
        write(pictures, tmp_path / "out")
    assert not list((tmp_path / "out").glob(".*"))
