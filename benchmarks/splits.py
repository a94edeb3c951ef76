"""How fast, lean and exact a split is beside plain Spark and beside pandas.

    make bench-splits

One Spark session on two cores with a heap of 4 GB; metadata of up to 100 million images that Spark makes up. Contenders
run in turn, and what each has written is counted again by other means. Then rows that lie in an embedded Cassandra, the
whole command, its memory, and what partitions and retried tasks may not change. Files lie below build/bench and are
removed. QUICK=1 takes less of everything; figures that mean nothing then have no value and tell theirs in the note.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from benchmarks import splits_commands, splits_groups, splits_identity, splits_large, splits_tables
from benchmarks.ingest import tell
from benchmarks.results import ROOT, Row, publish
from benchmarks.splits_caches import Cache, plant
from benchmarks.splits_figures import FIGURES, failed_rows, parse_numbers, with_earlier
from benchmarks.splits_plot import draw
from benchmarks.splits_sizes import FULL, QUICK, Sizes, fitted
from benchmarks.splits_stage import Stage

PLACE = ROOT / "build" / "bench"

Measure = Callable[[Collection[int]], Mapping[int, Row]]


def measure(folder: Path, sizes: Sizes, wanted: Collection[int], *, quick: bool) -> tuple[dict[int, Row], bool]:
    """The rows that are wanted, and whether all could be measured; what fails has rows that say so."""
    rows: dict[int, Row] = {}
    is_whole = True

    def part(numbers: Collection[int], work: Measure) -> None:
        nonlocal is_whole
        if here := sorted(set(numbers).intersection(wanted)):
            try:
                rows.update(work(here))
            except Exception as error:  # whatever it is, what else was measured in an hour is worth keeping
                tell(f"failed: {error}")
                rows.update(failed_rows(here, error))
                is_whole = False

    caches: dict[int, Cache] = {}
    with Stage(folder) as stage:
        for number, count in ((4, sizes.memory), (5, sizes.command)):
            if number in wanted:
                place = folder / f"process-{count}"
                tell(f"{count:,} rows for whole processes")
                caches[number] = Cache(place, count) if place.exists() else plant(stage.spark, place, rows=count)
        part(splits_tables.NUMBERS, lambda here: splits_tables.rows_of_tables(stage, sizes, quick=quick))
        part(splits_groups.NUMBERS, lambda here: splits_groups.rows_of_groups(stage, sizes, here, quick=quick))
        part(splits_large.NUMBERS, lambda here: splits_large.rows_of_large(stage, sizes, here, quick=quick))
    part(splits_commands.NUMBERS, lambda here: splits_commands.rows_of_commands(folder, caches, sizes, quick=quick))
    part(splits_identity.NUMBERS, lambda here: splits_identity.rows_of_identity(folder, sizes.identity))
    return rows, is_whole


def main() -> int:
    """Measure and report; returns the exit code: 0 also where targets are missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything, in some five minutes")
    parser.add_argument(
        "--only", metavar="ROW,...", help=f"these rows again, by number, of {len(FIGURES)}; the others stay as they are"
    )
    args = parser.parse_args()
    try:
        wanted = parse_numbers(args.only) if args.only else frozenset(FIGURES)
    except ValueError as error:
        parser.error(str(error))
    if args.quick:
        os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # no JVM runs for long
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    PLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="splits-", dir=PLACE)).resolve()
    try:
        sizes = fitted(QUICK if args.quick else FULL, free=shutil.disk_usage(folder).free)
        if sizes.note:
            tell(sizes.note)
        rows, is_whole = measure(folder, sizes, wanted, quick=args.quick)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        tell("remove what was made")
        shutil.rmtree(folder, ignore_errors=True)
    reported = with_earlier(rows, PLACE / "splits.json", quick=args.quick)
    plot = draw(PLACE / "splits.png", reported)
    publish("splits", reported, quick=args.quick)
    print(plot)
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
