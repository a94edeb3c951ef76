"""A split that is read from several stores: the same batches from each, and what happens if one is away or wrong."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loader
from formats.checksums import checksum
from imagestrata.planner.simulation import VirtualLoop
from loader.mixed.failover import FailoverFetcher, Made
from loader.prefetch.fetcher import Row
from tests.support.shard_folders import shards_of
from tests.support.split_folders import write_split_folder
from tests.support.trees import plant

FILES = {f"{number % 3}/{number}.jpg": f"image {number} ".encode() * (number + 1) for number in range(40)}


@dataclass(frozen=True)
class Stored:
    """A split, and copies of its images."""

    split: loader.Split
    folder: loader.Folder
    shards: loader.Shards
    images: dict[bytes, bytes]  # by id

    def source(self, *stores: Any, **options: Any) -> loader.FailoverSource:
        usual: dict[str, Any] = {"stores": list(stores), "batch_size": 7, "rank": 0, "world_size": 1}
        return loader.FailoverSource(self.split, **usual | options)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    folder = loader.open_folder(plant(tmp_path / "tree", FILES), dataset="digits", or_split="train")
    chosen = range(0, len(folder), 2)  # the folder has more than the split
    ids = [UUID(bytes=folder.ids[one].tobytes()) for one in chosen]
    images = [FILES[folder.paths[one].decode()] for one in chosen]
    assert folder.labels is not None
    labels = [int(folder.labels[one]) for one in chosen]
    written = write_split_folder(tmp_path / "split", [(ids, labels)], checksums=[list(map(checksum, images))])
    split = loader.open_split(written, cache=tmp_path / "cache")
    samples = [{"jpg": image, "cls": b"0", "json": b"{}"} for image in images]
    shards = shards_of(tmp_path / "shards", samples, together=6, of=split.fingerprint)
    return Stored(split, folder, shards, {one.bytes: image for one, image in zip(ids, images, strict=True)})


def batches(source: loader.Source, *epochs: int) -> list[tuple[list[int], list[bytes], list[bytes], list[int]]]:
    with source:
        return [
            (one.positions.tolist(), list(map(bytes, one.ids)), list(one.images), one.labels.tolist())
            for epoch in epochs or (0,)
            for one in source.epoch(epoch)
        ]


def test_each_store_gives_the_same_batches(stored: Stored) -> None:
    found = batches(stored.source(stored.shards), 0, 1)
    for positions, ids, images, labels in found:
        assert images == [stored.images[one] for one in ids]
        assert stored.split.labels is not None
        assert labels == stored.split.labels[positions].tolist()
    assert sorted(chain(*(one[0] for one in found[:3]))) == list(range(20))
    assert found == batches(stored.source(stored.folder), 0, 1)
    assert found == batches(stored.source(stored.folder, stored.shards), 0, 1)


OPTIONS: list[dict[str, Any]] = [
    {"sampling": "stratified", "last_batch_policy": "FILL", "batch_size": 3},
    {"sampling": "balanced", "in_order": False, "seed": 3},
    {"class_weights": {np.int64(0): np.float32(2), 2: 1}, "last_batch_policy": "DROP", "memory_budget": 1},
    {"buckets": np.arange(20) % 2, "last_batch_policy": "FILL", "max_in_flight": 1, "batch_size": 4},
    {"shuffle": False, "on_missing": "skip", "last_batch_policy": "FILL", "batch_size": 6},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda one: "-".join(one))
def test_options_mean_the_same_for_each_store(stored: Stored, tmp_path: Path, options: dict[str, Any]) -> None:
    def read(*stores: Any) -> list[Any]:
        ranks = [stored.source(*stores, **options | {"rank": rank, "world_size": 2}) for rank in (0, 1)]
        return [batches(one, 0, 1) for one in ranks]

    wanted = read(stored.folder)
    for _, ids, images, _ in chain(*wanted):
        assert images == [stored.images[one] for one in ids]
    (tmp_path / "tree" / stored.folder.paths[2].decode()).unlink()
    for found in (read(stored.shards), read(stored.folder, stored.shards)):
        if options.get("in_order", True):
            assert found == wanted
        else:
            assert [sorted(chain(*(one[0] for one in rank))) for rank in found] == [
                sorted(chain(*(one[0] for one in rank))) for rank in wanted
            ]
    usual = {"batch_size": 7} | options
    with (
        loader.CassandraSource(stored.split, hosts=["127.0.0.1"], port=1, **usual) as tables,
        stored.source(stored.folder, **usual) as source,
    ):
        assert source.state_dict() == tables.state_dict()


def test_a_state_goes_on_from_another_store(stored: Stored) -> None:
    whole = batches(stored.source(stored.folder))
    with stored.source(stored.folder) as source:
        epoch = source.epoch(0)
        next(epoch)
        state = source.state_dict()
        del epoch
    with stored.source(stored.shards, batch_size=14) as source:
        source.load_state_dict(state)
        rest = [position for batch in source.epoch(0) for position in batch.positions.tolist()]
    assert rest == [position for one in whole[1:] for position in one[0]]


def test_what_a_copy_lacks_or_has_otherwise_is_read_from_the_next_store(
    stored: Stored, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = batches(stored.source(stored.shards))
    damaged, missing = (stored.folder.paths[one].decode() for one in (0, 2))
    (tmp_path / "tree" / damaged).write_bytes(b"other bytes")
    (tmp_path / "tree" / missing).unlink()
    with caplog.at_level(logging.WARNING):
        assert batches(stored.source(stored.folder, stored.shards)) == wanted
    assert [
        one.message.count("lacks images, or has other bytes, which are read from other stores")
        for one in caplog.records
    ] == [1]
    with pytest.raises((loader.ChangedImageError, loader.MissingImageError)):
        batches(stored.source(stored.folder))
    skipping = stored.source(stored.folder, on_missing="skip", max_missing=1.0)
    with pytest.raises(loader.ChangedImageError, match="Write the copy again"):
        batches(skipping)


def test_folders_that_have_parts_of_the_images_are_read_together(
    stored: Stored, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = batches(stored.source(stored.shards))
    for number, name in enumerate(FILES):
        plant(tmp_path / f"half{number % 4 // 2}", {name: FILES[name]})
    halves = [loader.open_folder(tmp_path / f"half{number}", dataset="digits", or_split="train") for number in (0, 1)]
    with caplog.at_level(logging.WARNING):
        assert batches(stored.source(*halves)) == wanted
    assert "half0 lacks" in caplog.text
    with pytest.raises(loader.MissingImageError, match=r"half0. Found: none"):
        batches(stored.source(halves[0]))


@pytest.mark.parametrize("timeout", [1.0, 60.0])
def test_a_store_that_hangs_is_left_within_the_timeout(timeout: float) -> None:
    class Hanging(Scripted):
        async def read(self, one: bytes, position: int, /) -> Row:
            self.reads.append(_now())
            await asyncio.sleep(1e9)
            raise AssertionError

    async def read() -> float:
        first, second = Hanging("first", lambda now: False), Scripted("second", lambda now: False)
        made = [Made(one.name, lambda one=one: one) for one in (first, second)]  # type: ignore[misc]
        fetcher, began = FailoverFetcher(made, patience=min(12.0, timeout / 3)), _now()
        await fetcher.connect()
        rows = await asyncio.gather(*(fetcher.read(b"", position) for position in range(50)))
        assert {row[2][0] for row in rows} == {"second"}
        again = await fetcher.read(b"", 3)
        assert again[2] == ("second",)
        assert len(first.reads) == 50
        return _now() - began

    assert run(read()) < min(12.0, timeout / 3) + 3


def test_a_truncated_shard_is_an_error_and_another_store_has_its_images(stored: Stored, tmp_path: Path) -> None:
    wanted = batches(stored.source(stored.folder))
    shard = min((tmp_path / "shards").glob("*.tar"))
    shard.write_bytes(shard.read_bytes()[:1500])
    assert batches(stored.source(stored.shards, stored.folder)) == wanted
    with pytest.raises(loader.ShardError, match=r"Found: fewer"):
        batches(stored.source(stored.shards))
    for index in (b"v1.2 1\njpg 512\n", b"\xff\xfe\x00", b"nothing"):
        shard.with_suffix(".idx").write_bytes(index)
        with pytest.raises(loader.ShardError, match=r"Write the shards again"):
            batches(stored.source(stored.shards))
        assert batches(stored.source(stored.shards, stored.folder)) == wanted


def test_masks_are_read_from_shards_and_class_folders_have_none(stored: Stored, tmp_path: Path) -> None:
    ids = [UUID(bytes=bytes(one)) for one in stored.split.ids]
    images, masks = list(stored.images.values()), [f"mask {number}".encode() for number in range(20)]
    sums = [checksum(image, mask) for image, mask in zip(images, masks, strict=True)]
    written = write_split_folder(tmp_path / "masks", [(ids, [0] * 20)], checksums=[sums], label_type="blob")
    split = loader.open_split(written, cache=tmp_path / "cache")
    samples = [{"jpg": image, "json": b"{}", "png": mask} for image, mask in zip(images, masks, strict=True)]
    shards = shards_of(tmp_path / "masked", samples, together=6, of=split.fingerprint, label_type="blob")
    with loader.FailoverSource(split, stores=[shards], batch_size=7, rank=0, world_size=1) as source:
        for batch in source.epoch(0):
            assert batch.label_blobs == [masks[position] for position in batch.positions]
    with pytest.raises(loader.SplitError, match="Wanted masks or arrays"):
        loader.FailoverSource(split, stores=[stored.folder], batch_size=7, rank=0, world_size=1)


def test_stores_without_the_images_of_the_split_are_refused(stored: Stored, tmp_path: Path) -> None:
    other = loader.open_folder(tmp_path / "tree", dataset="other")
    with pytest.raises(loader.SplitError, match=r"Found: none.*dataset='test'"):
        stored.source(other)
    samples = [{"jpg": b"x"}] * 20
    with pytest.raises(loader.SplitError, match=r"shard.py --split"):
        stored.source(shards_of(tmp_path / "others", samples))
    with pytest.raises(loader.SplitError, match=r"Found: 19 images"):
        stored.source(shards_of(tmp_path / "fewer", samples[1:], of=stored.split.fingerprint))
    ids = [UUID(bytes=bytes(one)) for one in stored.split.ids]
    for number, sums in enumerate((None, [[0] * 20])):
        written = write_split_folder(tmp_path / f"old{number}", [(ids, [0] * 20)], checksums=sums)
        split = loader.open_split(written, cache=tmp_path / "cache")
        with pytest.raises(loader.SplitError, match="Wanted a checksum of each image"):
            loader.FailoverSource(split, stores=[stored.folder], batch_size=7)


@pytest.mark.parametrize("stores", [[], None, "s3://bucket", ["s3://bucket"]])
def test_other_stores_are_refused(stored: Stored, stores: Any) -> None:
    with pytest.raises(loader.OptionError, match="Wanted"):
        loader.FailoverSource(stored.split, stores=stores, batch_size=7)
    accepting = loader.Cluster(hosts=["127.0.0.1"], on_changed="accept")
    with pytest.raises(loader.OptionError, match="on_changed"):
        stored.source(accepting)


class Scripted:
    """A store that answers at some times only, after a second."""

    most_in_flight = None
    connections = 1

    def __init__(self, name: str, away: Callable[[float], bool], lacking: frozenset[int] = frozenset()) -> None:
        self.name, self._away, self._lacking = name, away, lacking
        self.reads: list[float] = []

    async def connect(self) -> None:
        if self._away(_now()):
            raise loader.UnreachableError(f"{self.name} is away")

    async def read(self, one: bytes, position: int, /) -> Row:
        self.reads.append(_now())
        await asyncio.sleep(1.0)
        if self._away(_now()):
            raise loader.UnreachableError(f"{self.name} is away")
        if position in self._lacking:
            raise loader.MissingImageError(f"{self.name} lacks {position}")
        return one, None, (self.name,)

    def wanted(self, one: bytes, position: int, /) -> str:
        return f"image {position}"

    async def close(self) -> None:
        pass


def _now() -> float:
    return asyncio.get_running_loop().time()


def fetcher_of(*stores: Scripted, tables: Sequence[Scripted] = ()) -> FailoverFetcher:
    return FailoverFetcher([Made(one.name, lambda one=one: one, is_table=one in tables) for one in stores])  # type: ignore[misc]


def run(work: Any) -> Any:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def test_a_store_that_is_away_is_tried_by_one_read_each_half_minute() -> None:
    first = Scripted("first", lambda now: 10 <= now < 100)
    second = Scripted("second", lambda now: False)

    async def read() -> list[str]:
        fetcher, found = fetcher_of(first, second), []
        await fetcher.connect()
        while _now() < 200:
            rows = await asyncio.gather(*(fetcher.read(b"", position) for position in range(10)))
            found += [row[2][0] for row in rows]
        return found

    names = run(read())
    assert {*names[:80]} == {"first"}
    assert {*names[-500:]} == {"first"}
    assert "second" in names
    assert len([now for now in first.reads if 12 < now < 100]) == 2


def test_a_table_decides_that_an_image_is_missing_but_not_while_it_is_away() -> None:
    def read(*, is_table: bool, away: bool) -> Any:
        first = Scripted("first", lambda now: away, frozenset({3}))
        fetcher = fetcher_of(first, Scripted("second", lambda now: False), tables=[first] if is_table else [])
        return run(fetcher.read(b"", 3))

    with pytest.raises(loader.MissingImageError, match="first lacks 3"):
        read(is_table=True, away=False)
    assert read(is_table=False, away=False)[2] == ("second",)
    assert read(is_table=True, away=True)[2] == ("second",)


def test_an_image_that_no_store_that_answers_has_is_read_again_later() -> None:
    lacking = Scripted("lacking", lambda now: False, frozenset({3}))
    fetcher = fetcher_of(Scripted("away", lambda now: True), lacking)
    with pytest.raises(loader.UnreachableError):  # it may be in the store that is away
        run(fetcher.read(b"", 3))


def test_one_store_that_answers_is_enough_to_connect() -> None:
    gone, here = Scripted("gone", lambda now: True), Scripted("here", lambda now: False)
    run(fetcher_of(gone, here).connect())
    run(fetcher_of(here, gone).connect())
    with pytest.raises(loader.UnreachableError, match="gone is away"):
        run(fetcher_of(gone, gone).connect())


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 90), st.integers(1, 60)), max_size=6))
def test_every_read_is_answered_while_any_store_answers(outages: list[tuple[int, int, int]]) -> None:
    def away(number: int) -> Callable[[float], bool]:
        return lambda now: any(which == number and begin <= now < begin + length for which, begin, length in outages)

    stores = [Scripted(str(number), away(number)) for number in range(3)] + [Scripted("last", lambda now: False)]

    async def read() -> None:
        fetcher = fetcher_of(*stores)
        await fetcher.connect()
        for number in range(60):
            one = number.to_bytes(16, "big")
            found = await asyncio.gather(*(fetcher.read(one, number) for _ in range(4)))
            assert {row[0] for row in found} == {one}
        assert _now() <= 60 * 4

    run(read())
