"""How fast and how lean images come from Cassandra to a training loop, near and far away.

    make bench-loader

One embedded Cassandra on the same two cores, images of 110 kB, each consumer in a process of its own. A proxy makes the
server look far away: both sides of a comparison of round trips go through it. An epoch reads the same images again and
again, in the epoch's order, so that it is long enough to be steady; rates are those behind its first third. Everything
that is read is added up and compared with what was written. Files lie below build/bench and are removed. QUICK=1 takes
less of everything; figures that mean nothing then have no value and tell theirs in the note.
"""

import os
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np

from benchmarks.harness.command import PLACE, Parts, asked, run, tell
from benchmarks.harness.loader_stage import BLOBS, FULL, PICTURES, QUICK, Sizes, Stage
from benchmarks.harness.pictures import require_room
from benchmarks.harness.results import Row, publish
from benchmarks.loader import copies, decoded, opening, rates
from benchmarks.loader.figures import FIGURES
from benchmarks.loader.plot import draw

DISK_BYTES_A_ROW = 60
"""A split's files and its cache."""
DISK_BYTES_BESIDES = 6_000_000_000

Curves = dict[str, dict[float, float]]


def measure(stage: Stage, wanted: Collection[int], *, quick: bool) -> tuple[dict[int, Row], Curves, bool]:
    """The rows that are wanted, curves if all are, and whether all was measured; what fails has rows that say so."""
    parts = Parts(FIGURES, wanted)
    part = parts.measure
    curves: Curves = {}
    sizes = stage.sizes
    remark = ""
    stage.look_at_proxy()
    if set(wanted) - {*decoded.NUMBERS, *opening.NUMBERS, *copies.NUMBERS}:
        tell(f"{sizes.blobs:,} blobs")
        stage.write(BLOBS, np.arange(sizes.blobs, dtype=np.int64))
        remark = rates.warm_up(stage, quick=quick)
    part(rates.DIRECT, lambda here: rates.rows_of_direct(stage, here, remark, quick=quick))
    part(rates.FAR, lambda here: rates.rows_of_far(stage, here, curves, quick=quick))
    part(rates.DEMANDED, lambda here: rates.rows_of_demand(stage, here, quick=quick))
    part(rates.HELD, lambda here: rates.rows_of_holds(stage, here, quick=quick))
    if set(wanted) == set(FIGURES):
        try:
            rates.complete(stage, curves)
        except Exception as error:  # whatever it is, what else was measured is worth keeping
            tell(f"failed: {error}")
            parts.is_whole = False
    if set(decoded.NUMBERS).intersection(wanted):
        tell(f"{sizes.pictures:,} pictures")
        stage.write(PICTURES, np.arange(sizes.pictures, dtype=np.int64))
    part(decoded.NUMBERS, lambda here: decoded.rows_of_decoded(stage, here, quick=quick))
    part(opening.NUMBERS, lambda here: opening.rows_of_opening(stage, here, quick=quick))
    left_out = quick and set(wanted) == set(FIGURES)
    part(copies.NUMBERS, lambda here: copies.rows_of_copies(stage, here, is_left_out=left_out, quick=quick))
    return parts.rows, curves if set(wanted) == set(FIGURES) else {}, parts.is_whole


def main() -> int:
    """Measure and report; returns the exit code: 0 also where targets are missed."""
    told = asked(__doc__, FIGURES, quick="less of everything, in under three minutes")
    if told.is_quick:
        os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # no JVM runs for long
    sizes: Sizes = QUICK if told.is_quick else FULL

    def work(folder: Path) -> bool:
        large = DISK_BYTES_A_ROW * sizes.large if set(opening.NUMBERS).intersection(told.wanted) else 0
        require_room(folder, bytes=DISK_BYTES_BESIDES + large, files=10_000)
        with Stage(folder, sizes) as stage:
            rows, curves, is_whole = measure(stage, told.wanted, quick=told.is_quick)
        plot = draw(PLACE / "loader.png", curves) if curves else None
        publish("loader", FIGURES.with_earlier(rows, PLACE / "loader.json", quick=told.is_quick), quick=told.is_quick)
        if plot:
            print(plot)
        return is_whole

    return run("loader", work)


if __name__ == "__main__":
    sys.exit(main())
