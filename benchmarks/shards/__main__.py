"""Shards on S3: how fast they are written and streamed beside other packages, near and far, and how well they mix.

    make bench-shards

One S3 server (versitygw) on the same two cores, 20,000 photographs of about 100 kB in 100 class folders, every reader
and writer in a process of its own; other packages in environments of their own, below build/bench, which are made once.
All read the same pictures over the network and add up what they read. Files lie below build/bench and are removed.
QUICK=1 takes less of everything; figures that mean nothing then have no value and tell theirs in the note.
"""

import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from benchmarks.harness.command import PLACE, Parts, asked, run
from benchmarks.harness.pictures import require_room
from benchmarks.harness.results import Row, publish
from benchmarks.shards import decoded, listing, order, streaming, writing
from benchmarks.shards.figures import FIGURES, FULL, QUICK
from benchmarks.shards.stage import Stage

LISTED = (9,)
DISK_BYTES_A_PICTURE = 600_000
"""The tree, shards of two kinds, what a rival has written and what it keeps."""
DISK_BYTES_BESIDES = 2_000_000_000

Measure = Callable[[Collection[int]], Mapping[int, Row]]


def measure(stage: Stage, wanted: Collection[int], *, quick: bool) -> tuple[dict[int, Row], bool]:
    """The rows that are wanted, and whether all was measured; what fails has rows that say so."""
    parts = Parts(FIGURES, wanted)
    part = parts.measure

    def read_part(numbers: Collection[int], work: Measure) -> None:
        def written(here: Collection[int]) -> Mapping[int, Row]:
            writing.prepare(stage)
            return work(here)

        part(numbers, written)

    part(writing.NUMBERS, partial(writing.rows_of_writing, stage, quick=quick))
    for number in streaming.BESIDE:  # each alone: one that cannot be installed takes no other with it
        read_part((number,), partial(streaming.rows_of_rival, stage, quick=quick))
    read_part(streaming.FAR, partial(streaming.rows_of_far, stage, quick=quick))
    read_part(decoded.NUMBERS, partial(decoded.rows_of_decoded, stage, quick=quick))
    part(LISTED, partial(listing.rows_of_listing, stage, quick=quick))
    part(order.NUMBERS, partial(order.rows_of_order, stage, quick=quick))
    return parts.rows, parts.is_whole


def main() -> int:
    """Measure and report; returns the exit code: 0 also where targets are missed."""
    told = asked(__doc__, FIGURES)
    sizes = QUICK if told.is_quick else FULL

    def work(folder: Path) -> bool:
        require_room(folder, bytes=DISK_BYTES_BESIDES + DISK_BYTES_A_PICTURE * sizes.pictures, files=100_000)
        with Stage(folder, sizes) as stage:
            rows, is_whole = measure(stage, told.wanted, quick=told.is_quick)
        publish("shards", FIGURES.with_earlier(rows, PLACE / "shards.json", quick=told.is_quick), quick=told.is_quick)
        return is_whole

    return run("shards", work)


if __name__ == "__main__":
    sys.exit(main())
