"""Shards on S3: how fast they are written and streamed beside other packages, near and far, and how well they mix.

    make bench-shards

One S3 server (versitygw) on the same two cores, 20,000 photographs of about 100 kB in 100 class folders, every reader
and writer in a process of its own; other packages in environments of their own, below build/bench, which are made once.
All read the same pictures over the network and add up what they read. Files lie below build/bench and are removed.
QUICK=1 takes less of everything; figures that mean nothing then have no value and tell theirs in the note.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from benchmarks import shards_decoded, shards_listing, shards_order, shards_streaming, shards_writing
from benchmarks.ingest import tell
from benchmarks.ingest_pictures import require_room
from benchmarks.results import ROOT, Row, publish
from benchmarks.shards_figures import FIGURES, FULL, QUICK
from benchmarks.shards_stage import Stage
from devstack import DevstackError

PLACE = ROOT / "build" / "bench"
LISTED = (9,)
DISK_BYTES_A_PICTURE = 600_000
"""The tree, shards of two kinds, what a rival has written and what it keeps."""
DISK_BYTES_BESIDES = 2_000_000_000

Measure = Callable[[Collection[int]], Mapping[int, Row]]


def measure(stage: Stage, wanted: Collection[int], *, quick: bool) -> tuple[dict[int, Row], bool]:
    """The rows that are wanted, and whether all was measured; what fails has rows that say so."""
    rows: dict[int, Row] = {}
    is_whole = True

    def part(numbers: Collection[int], work: Measure) -> None:
        nonlocal is_whole
        if here := sorted(set(numbers).intersection(wanted)):
            try:
                rows.update(work(here))
            except Exception as error:  # whatever it is, what else was measured is worth keeping
                tell(f"failed: {error}")
                rows.update(FIGURES.failed_rows(here, error))
                is_whole = False

    def read_part(numbers: Collection[int], work: Measure) -> None:
        def written(here: Collection[int]) -> Mapping[int, Row]:
            shards_writing.prepare(stage)
            return work(here)

        part(numbers, written)

    part(shards_writing.NUMBERS, partial(shards_writing.rows_of_writing, stage, quick=quick))
    for number in shards_streaming.BESIDE:  # each alone: one that cannot be installed takes no other with it
        read_part((number,), partial(shards_streaming.rows_of_rival, stage, quick=quick))
    read_part(shards_streaming.FAR, partial(shards_streaming.rows_of_far, stage, quick=quick))
    read_part(shards_decoded.NUMBERS, partial(shards_decoded.rows_of_decoded, stage, quick=quick))
    part(LISTED, partial(shards_listing.rows_of_listing, stage, quick=quick))
    part(shards_order.NUMBERS, partial(shards_order.rows_of_order, stage, quick=quick))
    return rows, is_whole


def main() -> int:
    """Measure and report; returns the exit code: 0 also where targets are missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument(
        "--only",
        metavar="ROW,...",
        help=f"these rows again, by number, of {len(FIGURES)}; the others stay as they are",
    )
    args = parser.parse_args()
    try:
        wanted = FIGURES.parse_numbers(args.only) if args.only else frozenset(FIGURES)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    PLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="shards-", dir=PLACE)).resolve()
    sizes = QUICK if args.quick else FULL
    try:
        require_room(folder, bytes=DISK_BYTES_BESIDES + DISK_BYTES_A_PICTURE * sizes.pictures, files=100_000)
        with Stage(folder, sizes) as stage:
            rows, is_whole = measure(stage, wanted, quick=args.quick)
    except (OSError, DevstackError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        tell("remove what was made")
        shutil.rmtree(folder, ignore_errors=True)
    publish("shards", FIGURES.with_earlier(rows, PLACE / "shards.json", quick=args.quick), quick=args.quick)
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
