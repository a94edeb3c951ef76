"""A rank that opens a large split: seconds to its first batch, and its anonymous memory from then on."""

import os
import time
from dataclasses import asdict
from typing import Any

import loader
from benchmarks.harness.background import Background
from benchmarks.harness.images import id_sum
from benchmarks.harness.processes import anonymous_mb
from benchmarks.loader.consumers import Answer, Order, connect, source_of

_SECONDS_A_LOOK = 0.02


class Peak(Background):
    """The most anonymous memory of this process in MB, looked at many times a second; a context manager."""

    def __init__(self) -> None:
        super().__init__()
        self.mb = 0.0

    def _work(self) -> None:
        while not self._stop.wait(_SECONDS_A_LOOK):
            self.mb = max(self.mb, anonymous_mb(os.getpid()))


def open_and_read(order: Order) -> Answer:
    """Open, connect, read so many batches; then leave the source alone until it has read ahead what it may.

    ``first`` are the seconds of opening the split and of reading the first batch, without those of connecting.
    """
    with Peak() as peak:
        began = time.monotonic()
        loader.open_split(order["split"], cache=order["cache"])
        opened = time.monotonic() - began
        before = anonymous_mb(os.getpid())
        with source_of(order) as source:
            connected = connect(source)
            began = time.monotonic()
            batches, sums = source.epoch(0), {"images": 0, "bytes": 0, "ids": 0}
            first = 0.0
            for number in range(order["batches"]):
                batch = next(batches)
                first = first or opened + time.monotonic() - began
                add(sums, batch)
                if number:
                    time.sleep(order["pause"])
            answer: dict[str, Any] = {"first": first, "opened": opened, "connected": connected}
            answer["stats"] = asdict(source.stats())
            del batches
    return {**answer, "sums": sums, "peak_mb": peak.mb, "opened_mb": before}


def add(sums: dict[str, int], batch: loader.Batch) -> None:
    """Add a batch up; each image must be the one that its id names."""
    if b"".join(image[-16:] for image in batch.images) != batch.ids.tobytes():
        raise RuntimeError(f"Wanted the images of the ids in batch {batch.step}. Found: others.")
    sums["images"] += len(batch)
    sums["bytes"] += sum(map(len, batch.images))
    sums["ids"] = (sums["ids"] + id_sum(batch.ids)) % (1 << 64)
