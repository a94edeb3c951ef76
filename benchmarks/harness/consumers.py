"""Consumers of the loader and of its baselines, each in a separate process.

Each takes a request and answers with the times at which each batch was asked for and received (seconds since the first
request), its number of images, the CPU seconds of this process, the sums over all images, the seconds to connect
(before the first request), and the statistics of the source.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import loader
from benchmarks.harness import cassandra
from benchmarks.harness.pictures import id_sum
from loader.adapters.crops import CROP_AREA
from loader.adapters.graphs import normalized
from loader.dali import EpochReader
from loader.order.permutation import epoch_order

Order = Mapping[str, Any]
Answer = dict[str, Any]


class Recorder:
    """Takes batches from an iterator, at most ``demand`` images a second, and records when each arrived."""

    def __init__(self, order: Order, *, cpu: Callable[[], float] = time.process_time) -> None:
        self._seconds = 1 / order["demand"] if order.get("demand") else 0.0
        self._cpu = cpu
        self._began = time.monotonic()
        self.asked: list[float] = []
        self.got: list[float] = []
        self.cpu: list[float] = []
        self.counts: list[int] = []

    def take(self, batches: Iterator[Any], size: Callable[[Any], int]) -> Iterator[Any]:
        """Yield the batches, and wait after each as long as its images take at the demanded rate."""
        asked = time.monotonic()
        for batch in batches:
            got = time.monotonic()
            self.cpu.append(self._cpu())
            self.asked.append(asked - self._began)
            self.got.append(got - self._began)
            self.counts.append(size(batch))
            yield batch
            time.sleep(max(0.0, got + self._seconds * self.counts[-1] - time.monotonic()))
            asked = time.monotonic()

    def take_decoded(self, batches: Iterator[Any], *, size: int) -> int:
        """Take decoded images; return the sum of their labels. Raises RuntimeError for images of another size."""
        labels = 0
        for images, numbers in self.take(batches, lambda batch: len(batch[1])):
            if images.shape != (len(numbers), 3, size, size):
                raise RuntimeError(f"Wanted {len(numbers)} pictures of {size} pixels. Found: {images.shape}")
            labels += int(numbers.sum())
        return labels

    def answer(self, sums: Mapping[str, int], **more: Any) -> Answer:
        """The answer of the process."""
        course = {"asked": self.asked, "got": self.got, "counts": self.counts, "cpu": self.cpu}
        return {**course, "sums": {"images": sum(self.counts), **sums}, **more}


def source_of(order: Order) -> loader.CassandraSource:
    """A source as requested, over a split whose cache exists."""
    split = loader.open_split(order["split"], cache=order["cache"])
    return loader.CassandraSource(
        split,
        hosts=order["hosts"],
        port=order["port"],
        batch_size=order["batch_size"],
        seed=order.get("seed", 0),
        memory_budget=order["budget"],
        in_order=order.get("in_order", True),
        consistency=order.get("consistency"),
        features=order.get("features", ()),
        sampling=order.get("sampling", "shuffled"),
        client=order.get("client"),
        access=loader.Access(ca=order.get("ca")),
    )


def connect(source: loader.CassandraSource) -> float:
    """Connect before anything is read; return the seconds that took."""
    began = time.monotonic()
    source.connect()
    return time.monotonic() - began


def no_sums() -> dict[str, int]:
    """The sums of no images."""
    return dict.fromkeys(("images", "bytes", "labels", "ids"), 0)


def fetch(order: Order) -> Answer:
    """Fetch one epoch without decoding, and check that each image matches its id."""
    with source_of(order) as source:
        connected, sums, recorder = connect(source), no_sums(), Recorder(order)
        for batch in recorder.take(source.epoch(0), len):
            add(sums, batch)
        return recorder.answer(sums, connected=connected, stats=asdict(source.stats()))


def add(sums: dict[str, int], batch: loader.Batch) -> None:
    """Add a batch to the sums, and check that each image matches its id, and each vector its position."""
    if any((values != batch.positions[:, None]).any() for values in batch.features.values()):
        raise RuntimeError(f"Wanted the features of the images in batch {batch.step}. Found: others.")
    if b"".join(image[-16:] for image in batch.images) != batch.ids.tobytes():
        raise RuntimeError(f"Wanted the images of the ids in batch {batch.step}. Found: others.")
    sums["images"] += len(batch)
    sums["bytes"] += sum(map(len, batch.images))
    sums["labels"] += int(batch.labels.sum())
    sums["ids"] = (sums["ids"] + id_sum(batch.ids)) % (1 << 64)


def feed(order: Order) -> Answer:
    """Read one epoch as DALI's external source does, without DALI's own work."""
    with source_of(order) as source:
        connected = connect(source)
        recorder = Recorder(order)
        reader = EpochReader(source, source.reader(recorder))
        size = labels = 0
        inputs = iter(partial(reader, SimpleNamespace(epoch_idx=0)), None)  # until it raises StopIteration
        for images, numbers in recorder.take(inputs, lambda batch: len(batch[0])):
            size += sum(image.size for image in images)
            labels += int(numbers.sum())
            reader.given()
        return recorder.answer({"bytes": size, "labels": labels}, connected=connected, stats=asdict(source.stats()))


def decode(order: Order) -> Answer:
    """Decode, crop and normalise one epoch on the CPU."""
    with source_of(order) as source:
        connected = connect(source)
        batches = loader.ClassificationIterator(source, size=order["size"], train=True, num_threads=order["threads"])
        recorder = Recorder(order)
        labels = recorder.take_decoded(iter(batches), size=order["size"])
        return recorder.answer({"labels": labels}, connected=connected, stats=asdict(source.stats()))


def read_files(names: Sequence[str], labels: Sequence[int], *, order: Order) -> Iterator[tuple[Any, Any]]:
    """Decode files endlessly with DALI's own reader, from the page cache.

    The graph is that of `loader.ClassificationIterator` for training, with DALI's own random numbers.
    """
    fn, pipelines = (import_module(f"nvidia.dali.{name}") for name in ("fn", "pipeline"))
    for name in set(names):
        Path(name).read_bytes()  # into the page cache
    usual = {"device_id": None, "seed": 1, "prefetch_queue_depth": 2, "exec_dynamic": True}
    pipeline = pipelines.Pipeline(batch_size=order["batch_size"], num_threads=order["threads"], **usual)
    with pipeline:
        pictures, numbers = fn.readers.file(files=list(names), labels=list(labels), random_shuffle=True)
        pipeline.set_outputs(*random_by_dali(pictures, numbers, size=order["size"]))
    pipeline.build()
    return (tuple(np.from_dlpack(found.as_tensor()) for found in pipeline.run()) for _ in count())  # type: ignore[misc]


def random_by_dali(files: Any, labels: Any, *, size: int) -> tuple[Any, Any]:
    """The graph of `loader.ClassificationIterator` for training, with DALI's own random numbers."""
    fn, types = (import_module(f"nvidia.dali.{name}") for name in ("fn", "types"))
    images = fn.decoders.image_random_crop(
        files, output_type=types.RGB, random_area=CROP_AREA, random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=100
    )
    images = fn.resize(images, size=[size, size], interp_type=types.INTERP_TRIANGULAR)
    images = normalized(images, size=size, mirror=fn.random.coin_flip())
    return images, fn.cast(fn.squeeze(labels, axes=[0]), dtype=types.INT64)


def read_bare(order: Order) -> Answer:
    """Read the same ids in the same order with the bare client."""
    split = loader.open_split(order["split"], cache=order["cache"])
    places = epoch_order(len(split), fingerprint=split.fingerprint, seed=0, epoch=0, shuffle=True)
    assert places is not None
    positions = places(np.arange(len(split), dtype=np.int64))
    return cassandra.read({**order, "table": split.data_table}, np.asarray(split.ids[positions]))
