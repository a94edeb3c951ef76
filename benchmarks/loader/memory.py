"""A rank that opens a large split: seconds to its first batch, and its anonymous memory afterwards."""

import os
import time
from dataclasses import asdict
from functools import partial
from typing import Any

import loader
from benchmarks.harness.consumers import Answer, Order, add, connect, no_sums, source_of
from benchmarks.harness.processes import anonymous_mb, peak, watched

_SECONDS_A_LOOK = 0.02


def open_and_read(order: Order) -> Answer:
    """Open, connect and read some batches; then wait until the source has read ahead all that it may.

    ``first`` is the time to open the split and to read the first batch, without connecting.
    """
    with watched(partial(anonymous_mb, os.getpid()), seconds=_SECONDS_A_LOOK) as samples:
        began = time.monotonic()
        loader.open_split(order["split"], cache=order["cache"])
        opened = time.monotonic() - began
        before = anonymous_mb(os.getpid())
        with source_of(order) as source:
            connected = connect(source)
            began = time.monotonic()
            batches, sums = source.epoch(0), no_sums()
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
    return {**answer, "sums": sums, "peak_mb": peak(samples), "opened_mb": before}
