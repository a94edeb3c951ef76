"""How fast and how lean images come from Cassandra to a training loop, near and far away.

    make bench-loader

One embedded Cassandra on the same two cores, images of 110 kB, each consumer in a process of its own. A proxy makes the
server look far away: both sides of a comparison of round trips go through it. An epoch reads the same images again and
again, in the epoch's order, so that it is long enough to be steady; rates are those behind its first third. Everything
that is read is added up and compared with what was written. Files lie below build/bench and are removed. QUICK=1 takes
less of everything; figures that mean nothing then have no value and tell theirs in the note.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np

from benchmarks import loader_decoded, loader_opening, loader_rates
from benchmarks.ingest import tell
from benchmarks.ingest_pictures import require_room
from benchmarks.loader_figures import FIGURES, FULL, QUICK, Sizes
from benchmarks.loader_plot import draw
from benchmarks.loader_stage import BLOBS, PICTURES, Stage
from benchmarks.results import ROOT, Row, publish
from devstack import DevstackError

PLACE = ROOT / "build" / "bench"
DISK_BYTES_A_ROW = 60
"""A split's files and its cache."""
DISK_BYTES_BESIDES = 6_000_000_000

Curves = dict[str, dict[float, float]]
Measure = Callable[[Collection[int]], Mapping[int, Row]]


def measure(stage: Stage, wanted: Collection[int], *, quick: bool) -> tuple[dict[int, Row], Curves, bool]:
    """The rows that are wanted, curves if all are, and whether all was measured; what fails has rows that say so."""
    rows: dict[int, Row] = {}
    curves: Curves = {}
    is_whole = True
    sizes = stage.sizes

    def part(numbers: Collection[int], work: Measure) -> None:
        nonlocal is_whole
        if here := sorted(set(numbers).intersection(wanted)):
            try:
                rows.update(work(here))
            except Exception as error:  # whatever it is, what else was measured is worth keeping
                tell(f"failed: {error}")
                rows.update(FIGURES.failed_rows(here, error))
                is_whole = False

    remark = ""
    stage.look_at_proxy()
    if set(wanted) - set(loader_decoded.NUMBERS) - set(loader_opening.NUMBERS):
        tell(f"{sizes.blobs:,} blobs")
        stage.write(BLOBS, np.arange(sizes.blobs, dtype=np.int64))
        remark = loader_rates.warm_up(stage, quick=quick)
    part(loader_rates.DIRECT, lambda here: loader_rates.rows_of_direct(stage, here, remark, quick=quick))
    part(loader_rates.FAR, lambda here: loader_rates.rows_of_far(stage, here, curves, quick=quick))
    part(loader_rates.DEMANDED, lambda here: loader_rates.rows_of_demand(stage, here, quick=quick))
    part(loader_rates.HELD, lambda here: loader_rates.rows_of_holds(stage, here, quick=quick))
    if set(wanted) == set(FIGURES):
        try:
            loader_rates.complete(stage, curves)
        except Exception as error:  # as above
            tell(f"failed: {error}")
            is_whole = False
    if set(loader_decoded.NUMBERS).intersection(wanted):
        tell(f"{sizes.pictures:,} pictures")
        stage.write(PICTURES, np.arange(sizes.pictures, dtype=np.int64))
    part(loader_decoded.NUMBERS, lambda here: loader_decoded.rows_of_decoded(stage, here, quick=quick))
    part(loader_opening.NUMBERS, lambda here: loader_opening.rows_of_opening(stage, here, quick=quick))
    return rows, curves if set(wanted) == set(FIGURES) else {}, is_whole


def main() -> int:
    """Measure and report; returns the exit code: 0 also where targets are missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything, in under three minutes")
    parser.add_argument(
        "--only",
        metavar="ROW,...",
        help=f"these rows again, by number, of {len(FIGURES)}; the others, and the plot, stay as they are",
    )
    args = parser.parse_args()
    try:
        wanted = FIGURES.parse_numbers(args.only) if args.only else frozenset(FIGURES)
    except ValueError as error:
        parser.error(str(error))
    if args.quick:
        os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # no JVM runs for long
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    PLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="loader-", dir=PLACE)).resolve()
    sizes: Sizes = QUICK if args.quick else FULL
    try:
        large = DISK_BYTES_A_ROW * sizes.large if set(loader_opening.NUMBERS).intersection(wanted) else 0
        require_room(folder, bytes=DISK_BYTES_BESIDES + large, files=10_000)
        with Stage(folder, sizes) as stage:
            rows, curves, is_whole = measure(stage, wanted, quick=args.quick)
    except (OSError, DevstackError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        tell("remove what was made")
        shutil.rmtree(folder, ignore_errors=True)
    plot = draw(PLACE / "loader.png", curves) if curves else None
    publish("loader", FIGURES.with_earlier(rows, PLACE / "loader.json", quick=args.quick), quick=args.quick)
    if plot:
        print(plot)
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
