"""Consumers of the loader and of what it is compared with, each in a process of its own.

They take an order, and answer for each batch when it was asked for and when it came (seconds since the first request),
its images, the CPU seconds of this process; what all images add up to; how long it took to connect, which is before the
first request; the source's own statistics.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import numpy as np

import loader
from benchmarks.harness import bare_client
from benchmarks.harness.images import id_sum
from loader.dali import EpochReader
from loader.order.permutation import epoch_order

Order = Mapping[str, Any]
Answer = dict[str, Any]


class Recorder:
    """Takes batches from an iterator, at most ``demand`` images a second, and takes down when each came."""

    def __init__(self, order: Order) -> None:
        self._seconds = 1 / order["demand"] if order.get("demand") else 0.0
        self._began = self._due = time.monotonic()
        self.asked: list[float] = []
        self.got: list[float] = []
        self.cpu: list[float] = []
        self.counts: list[int] = []

    def take(self, batches: Iterator[Any], count: Callable[[Any], int]) -> Iterator[Any]:
        """The batches; each is worked on as long as its images take at the demanded rate."""
        while True:
            time.sleep(max(0.0, self._due - time.monotonic()))
            asked = time.monotonic()
            try:
                batch = next(batches)
            except StopIteration:
                return
            got = time.monotonic()
            self.cpu.append(time.process_time())
            self.asked.append(asked - self._began)
            self.got.append(got - self._began)
            self.counts.append(count(batch))
            self._due = got + self._seconds * self.counts[-1]
            yield batch

    def answer(self, sums: Mapping[str, int], **more: Any) -> Answer:
        """What the process tells."""
        course = {"asked": self.asked, "got": self.got, "counts": self.counts, "cpu": self.cpu}
        return {**course, "sums": {"images": sum(self.counts), **sums}, **more}


def source_of(order: Order) -> loader.CassandraSource:
    """The source that is ordered, of a split that this host has opened before."""
    split = loader.open_split(order["split"], cache=order["cache"])
    return loader.CassandraSource(
        split,
        hosts=order["hosts"],
        port=order["port"],
        batch_size=order["batch_size"],
        memory_budget=order["budget"],
        in_order=order.get("in_order", True),
        consistency=order.get("consistency", "LOCAL_QUORUM"),
        client=order.get("client"),
        access=loader.Access(ca=order.get("ca")),
    )


def connect(source: loader.CassandraSource) -> float:
    """Make the connections before anything is read; returns the seconds that took."""
    began = time.monotonic()
    source.connect()
    return time.monotonic() - began


def fetch(order: Order) -> Answer:
    """Batches of one epoch as they are, not decoded; each image must be the one that its id names."""
    with source_of(order) as source:
        connected = connect(source)
        sums = dict.fromkeys(("images", "bytes", "labels", "ids"), 0)
        recorder = Recorder(order)
        for batch in recorder.take(source.epoch(0), len):
            add(sums, batch)
        return recorder.answer(sums, connected=connected, stats=asdict(source.stats()))


def add(sums: dict[str, int], batch: loader.Batch) -> None:
    """Add a batch up; each image must be the one that its id names."""
    if b"".join(image[-16:] for image in batch.images) != batch.ids.tobytes():
        raise RuntimeError(f"Wanted the images of the ids in batch {batch.step}. Found: others.")
    sums["images"] += len(batch)
    sums["bytes"] += sum(map(len, batch.images))
    sums["labels"] += int(batch.labels.sum())
    sums["ids"] = (sums["ids"] + id_sum(batch.ids)) % (1 << 64)


def feed(order: Order) -> Answer:
    """One epoch as a DALI pipeline is given it: what its external source calls, without DALI's own work."""
    with source_of(order) as source:
        connected = connect(source)
        reader = EpochReader(source)
        size = labels = 0
        recorder = Recorder(order)

        def inputs() -> Iterator[Any]:
            while True:
                try:
                    yield reader(SimpleNamespace(epoch_idx=0))
                except StopIteration:
                    return

        for images, numbers in recorder.take(inputs(), lambda batch: len(batch[0])):
            size += sum(image.size for image in images)
            labels += int(numbers.sum())
            reader.given()
        return recorder.answer({"bytes": size, "labels": labels}, connected=connected, stats=asdict(source.stats()))


def decode(order: Order) -> Answer:
    """One epoch, decoded, cropped and normalised on the CPU."""
    with source_of(order) as source:
        connected = connect(source)
        size, labels = order["size"], 0
        batches = loader.ClassificationIterator(source, size=size, train=True, num_threads=order["threads"])
        recorder = Recorder(order)
        for images, numbers in recorder.take(iter(batches), lambda batch: len(batch[1])):
            if images.shape != (len(numbers), 3, size, size):
                raise RuntimeError(f"Wanted {len(numbers)} pictures of {size} pixels. Found: {images.shape}")
            labels += int(numbers.sum())
        return recorder.answer({"labels": labels}, connected=connected, stats=asdict(source.stats()))


def read_bare(order: Order) -> Answer:
    """The same ids in the same order, read by the bare client."""
    split = loader.open_split(order["split"], cache=order["cache"])
    places = epoch_order(len(split), fingerprint=split.fingerprint, seed=0, epoch=0, shuffle=True)
    assert places is not None
    positions = places(np.arange(len(split), dtype=np.int64))
    return bare_client.read({**order, "table": split.data_table}, np.asarray(split.ids[positions]))
