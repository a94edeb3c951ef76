"""How fast and exact a split is, and how much memory it takes, compared with plain Spark and with pandas.

    make bench-splits

One Spark session runs on two cores with a heap of 4 GB; Spark makes up metadata of up to 100 million images. The
contenders run in turn, and what each has written is counted again in another way. Then follow rows in an embedded
Cassandra, the whole command, its memory, and checks that partitions and retried tasks change nothing. Files below
build/bench are removed at the end. QUICK=1 measures less; a figure that means nothing at that size has no value, and
its note has what was measured.
"""

import os
import shutil
import sys
from functools import partial
from pathlib import Path

from benchmarks.harness.command import Draw, Parts, run
from benchmarks.harness.results import PLACE, tell
from benchmarks.splits import commands, groups, highest, identity, large, tables
from benchmarks.splits.caches import Cache, plant
from benchmarks.splits.figures import FIGURES
from benchmarks.splits.fixture import split_fixture
from benchmarks.splits.plot import draw
from benchmarks.splits.sizes import FULL, QUICK, fitted


def measure(parts: Parts, folder: Path) -> Draw:
    """Measure the requested rows."""
    if parts.is_quick:
        os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # JVMs here are short-lived
    sizes = fitted(QUICK if parts.is_quick else FULL, free=shutil.disk_usage(folder).free)
    if sizes.note:
        tell(sizes.note)
    caches: dict[int, Cache] = {}
    with split_fixture(folder) as fixture:
        for number, count in ((4, sizes.memory), (5, sizes.command)):
            if parts.wants([number]):
                place = folder / f"process-{count}"
                tell(f"{count:,} rows for whole processes")
                caches[number] = Cache(place, count) if place.exists() else plant(fixture.spark, place, rows=count)
        parts.measure_whole(tables.NUMBERS, partial(tables.rows_of_tables, fixture, sizes))
        parts.measure(groups.NUMBERS, partial(groups.rows_of_groups, fixture, sizes))
        parts.measure(highest.NUMBERS, partial(highest.rows_of_highest, fixture, sizes))
        parts.measure(large.NUMBERS, partial(large.rows_of_large, fixture, sizes))
    commanded = partial(commands.rows_of_commands, folder, caches, sizes, quick=parts.is_quick)
    parts.measure_whole(commands.NUMBERS, commanded)
    parts.measure_whole(identity.NUMBERS, partial(identity.rows_of_identity, folder, sizes.identity))
    return partial(draw, PLACE / "splits.png")


if __name__ == "__main__":
    sys.exit(run("splits", __doc__, FIGURES, measure, quick="less of everything, in some five minutes"))
