"""How fast images come from Cassandra to a training loop, near and far away, and how much CPU and memory that takes.

    make bench-loader

An embedded Cassandra runs on the same two cores; images have 110 kB, and each consumer runs in a separate process. A
proxy simulates distance; both sides of a comparison of round trips go through it. An epoch reads the same images
several times, in the epoch's order, until the rate is steady; the first third does not count. Sums over everything
that is read are compared with what was written. Files below build/bench are removed at the end. QUICK=1 measures
less; a figure that means nothing at that size has no value, and its note has what was measured.
"""

import os
import sys
from functools import partial
from pathlib import Path

from benchmarks.harness.command import Draw, Parts, run
from benchmarks.harness.loader_fixture import BLOBS, FULL, PICTURES, QUICK, loader_fixture
from benchmarks.harness.pictures import require_room
from benchmarks.harness.results import PLACE, tell
from benchmarks.loader import copies, decoded, opening, rates
from benchmarks.loader.figures import FIGURES
from benchmarks.loader.plot import draw

DISK_BYTES_A_ROW = 60
"""A split's files and its cache."""
DISK_BYTES_BESIDES = 6_000_000_000


def measure(parts: Parts, folder: Path) -> Draw | None:
    """Measure the requested rows, and the plot's curves if all rows are requested."""
    if parts.is_quick:
        os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # JVMs here are short-lived
    sizes = QUICK if parts.is_quick else FULL
    is_all = parts.wanted == set(FIGURES)
    large = DISK_BYTES_A_ROW * sizes.large if parts.wants(opening.NUMBERS) else 0
    require_room(folder, bytes=DISK_BYTES_BESIDES + large, files=10_000)
    curves: rates.Curves = {}
    with loader_fixture(folder, sizes) as fixture:
        fixture.proxy.look()
        remark = ""
        if parts.wants(rates.NUMBERS):
            fixture.write_all(BLOBS)
            remark = rates.warm_up(fixture, quick=parts.is_quick)
        parts.measure(rates.DIRECT, lambda here: rates.rows_of_direct(fixture, here, remark))
        parts.measure(rates.FAR, lambda here: rates.rows_of_far(fixture, here, curves))
        parts.measure(rates.DEMANDED, partial(rates.rows_of_demand, fixture))
        parts.measure_whole(rates.HELD, partial(rates.rows_of_holds, fixture))
        if is_all:
            try:
                rates.complete(fixture, curves)
            except Exception as error:  # keep what else was measured, whatever the error
                tell(f"failed: {error}")
                parts.is_whole = False
        if parts.wants(decoded.NUMBERS):
            fixture.write_all(PICTURES)
        parts.measure(decoded.NUMBERS, partial(decoded.rows_of_decoded, fixture))
        parts.measure(opening.NUMBERS, partial(opening.rows_of_opening, fixture))
        is_left_out = parts.is_quick and is_all
        parts.measure_whole(copies.NUMBERS, partial(copies.rows_of_copies, fixture, is_left_out=is_left_out))
    return (lambda _: draw(PLACE / "loader.png", curves)) if is_all else None


if __name__ == "__main__":
    sys.exit(run("loader", __doc__, FIGURES, measure))
