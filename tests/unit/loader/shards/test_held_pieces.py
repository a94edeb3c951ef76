"""The memory of a stream over shards: within its budget, in any order, without losing samples."""

import tempfile
import time
import tracemalloc
import weakref
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loader import OptionError
from loader.prefetch.stats import Meter
from loader.shards import RemoteDataset, make_client
from loader.shards.pieces import PieceReader, locations_of
from loader.shards.shard_schedule import ShardSchedule
from loader.shards.shard_set import Shards
from loader.shards.shard_stream import ShardStream
from tests.support.shard_folders import filler


class PeakMeter(Meter):
    """The counts of a source, and the largest amount held at a time."""

    peak = 0
    _held = 0

    @property  # type: ignore[override]
    def held_bytes(self) -> int:
        return self._held

    @held_bytes.setter
    def held_bytes(self, size: int) -> None:
        self._held, self.peak = size, max(size, self.peak)


class CountedReader(PieceReader):
    """A reader that counts the bytes of all buffers, in use or cached."""

    def __init__(self, shards: Shards, *, meter: Meter, budget: int) -> None:
        super().__init__(shards, threads=3, meter=meter)
        self._sizes: dict[int, int] = {}
        self._limit, self.peak = budget, 0

    def _buffer(self, size: int) -> Any:
        found = super()._buffer(size)
        if id(found) not in self._sizes:
            self._sizes[id(found)] = len(found)
            weakref.finalize(found, self._sizes.pop, id(found))
        until = time.monotonic() + 5  # a thread may be returning the buffer that it read into
        while (total := sum(self._sizes.values())) > self._limit and time.monotonic() < until:
            time.sleep(0.001)
        self.peak = max(self.peak, total)
        return found


def read(
    shards: Shards, *, budget: int, every: int = 1, is_kept: bool = True, **options: Any
) -> tuple[list[Any], CountedReader, PeakMeter]:
    """The batches of two epochs, as lists of (key, bytes) or as their lengths, with the counts of reader and meter."""
    meter = PeakMeter()
    schedule = ShardSchedule(
        fingerprint=shards.fingerprint, pieces=np.array([place.samples for place in locations_of(shards)]), seed=0,
        shuffle=True, rank=0, world_size=1, last_batch_policy="PARTIAL", **options,
    )  # fmt: skip
    reader = CountedReader(shards, meter=meter, budget=budget)
    reader.connect()
    stream = ShardStream(reader, (schedule.steps(epoch, every=every) for epoch in range(2)), budget=budget)
    found: list[Any] = []
    try:
        for _ in range(2):
            while (batch := stream.take()) is not None:
                samples = [(sample.key, sample.members["bin"]) for sample in batch.samples]
                found.append(samples if is_kept else len(samples))
    finally:
        stream.close()
        reader.close()
    assert meter.held_bytes == 0
    return found, reader, meter


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=80),
    st.integers(1, 9),
    st.floats(0, 1.2),
    st.integers(1, 12),
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(1, 5),
)
def test_no_budget_is_exceeded_and_no_order_depends_on_it(
    sizes: list[int], together: int, share: float, streams: int, mix: int, batch_size: int, every: int
) -> None:
    options = {"streams": streams, "mix": mix, "batch_size": batch_size}
    with tempfile.TemporaryDirectory() as folder:
        shards = filler(Path(folder), sizes, together=together)
        largest = max(place.bytes for place in locations_of(shards))
        budget = largest + int(share * (shards.contents.bytes - largest))
        found, reader, meter = read(shards, budget=budget, every=every, **options)
        wanted, _, ample = read(shards, budget=1 << 40, every=every, **options)
    assert found == wanted
    assert ample.rereads == 0
    assert 0 < meter.peak <= budget
    assert 0 < reader.peak <= budget
    if every == 1:
        counts = Counter(key for key, _ in chain.from_iterable(found))
        assert counts == Counter({f"{number:09}": 2 for number in range(len(sizes))})
    assert all(data[:4] == int(key).to_bytes(4, "big") for key, data in chain.from_iterable(found))


def test_allocations_stay_within_the_budget(tmp_path: Path) -> None:
    shards = filler(tmp_path, [40_000] * 600, together=10)
    for budget, mix, is_enough in [(2_000_000, 100, False), (2_000_000, 8, False), (26_000_000, 100, True)]:
        tracemalloc.start()
        try:
            batches, _, meter = read(shards, budget=budget, is_kept=False, streams=12, mix=mix, batch_size=10)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert batches == [10] * 120
        assert peak < budget + 2 * 10 * 40_000 + 600_000  # the batch being assembled, the one before, and the plan
        assert meter.peak > budget / 2
        assert meter.rereads <= 6 if is_enough else meter.rereads > 12  # of 120 pieces


def test_a_budget_below_one_piece_is_refused_with_the_least_that_works(tmp_path: Path) -> None:
    shards = filler(tmp_path / "b", [500, 9000, 700], together=1)
    least = max(place.bytes for place in locations_of(shards))
    with pytest.raises(OptionError, match=rf"memory_budget of at least {least:,} bytes, .*Found: {least - 1:,}"):
        RemoteDataset(make_client(tmp_path), "b", memory_budget=least - 1)
    assert len(list(RemoteDataset(make_client(tmp_path), "b", memory_budget=least))) == 3
