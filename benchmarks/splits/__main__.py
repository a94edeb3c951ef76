"""How fast, lean and exact a split is beside plain Spark and beside pandas.

    make bench-splits

One Spark session on two cores with a heap of 4 GB; metadata of up to 100 million images that Spark makes up. Contenders
run in turn, and what each has written is counted again by other means. Then rows that lie in an embedded Cassandra, the
whole command, its memory, and what partitions and retried tasks may not change. Files lie below build/bench and are
removed. QUICK=1 takes less of everything; figures that mean nothing then have no value and tell theirs in the note.
"""

import os
import shutil
import sys
from collections.abc import Collection
from pathlib import Path

from benchmarks.harness.command import PLACE, Parts, asked, run, tell
from benchmarks.harness.results import Row, publish
from benchmarks.splits import commands, groups, identity, large, tables
from benchmarks.splits.caches import Cache, plant
from benchmarks.splits.figures import FIGURES
from benchmarks.splits.plot import draw
from benchmarks.splits.sizes import FULL, QUICK, Sizes, fitted
from benchmarks.splits.stage import Stage


def measure(folder: Path, sizes: Sizes, wanted: Collection[int], *, quick: bool) -> tuple[dict[int, Row], bool]:
    """The rows that are wanted, and whether all could be measured; what fails has rows that say so."""
    parts = Parts(FIGURES, wanted)
    part = parts.measure
    caches: dict[int, Cache] = {}
    with Stage(folder) as stage:
        for number, count in ((4, sizes.memory), (5, sizes.command)):
            if number in wanted:
                place = folder / f"process-{count}"
                tell(f"{count:,} rows for whole processes")
                caches[number] = Cache(place, count) if place.exists() else plant(stage.spark, place, rows=count)
        part(tables.NUMBERS, lambda here: tables.rows_of_tables(stage, sizes, quick=quick))
        part(groups.NUMBERS, lambda here: groups.rows_of_groups(stage, sizes, here, quick=quick))
        part(large.NUMBERS, lambda here: large.rows_of_large(stage, sizes, here, quick=quick))
    part(commands.NUMBERS, lambda here: commands.rows_of_commands(folder, caches, sizes, quick=quick))
    part(identity.NUMBERS, lambda here: identity.rows_of_identity(folder, sizes.identity))
    return parts.rows, parts.is_whole


def main() -> int:
    """Measure and report; returns the exit code: 0 also where targets are missed."""
    told = asked(__doc__, FIGURES, quick="less of everything, in some five minutes")
    if told.is_quick:
        os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # no JVM runs for long

    def work(folder: Path) -> bool:
        sizes = fitted(QUICK if told.is_quick else FULL, free=shutil.disk_usage(folder).free)
        if sizes.note:
            tell(sizes.note)
        rows, is_whole = measure(folder, sizes, told.wanted, quick=told.is_quick)
        reported = FIGURES.with_earlier(rows, PLACE / "splits.json", quick=told.is_quick)
        plot = draw(PLACE / "splits.png", reported)
        publish("splits", reported, quick=told.is_quick)
        print(plot)
        return is_whole

    return run("splits", work)


if __name__ == "__main__":
    sys.exit(main())
