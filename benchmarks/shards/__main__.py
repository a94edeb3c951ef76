"""Shards on S3: how fast they are written and streamed compared with other packages, and how well they mix.

    make bench-shards

An S3 server (versitygw) runs on the same two cores. The source has 20,000 photographs of about 100 kB in 100 class
folders. Each reader and writer runs in a separate process; other packages have separate environments below
build/bench, which are made once. All read the same images over the network and add up what they read. Files below
build/bench are removed at the end. QUICK=1 measures less; a figure that means nothing at that size has no value, and
its note has what was measured.
"""

import sys
from functools import partial
from pathlib import Path

from benchmarks.harness.command import Parts, run
from benchmarks.harness.pictures import require_room
from benchmarks.shards import decoded, listing, order, streaming, writing
from benchmarks.shards.figures import FIGURES, FULL, QUICK
from benchmarks.shards.fixture import shard_fixture

LISTED = (9,)
DISK_BYTES_A_PICTURE = 600_000
"""The tree, shards of two kinds, what a baseline has written and what it keeps."""
DISK_BYTES_BESIDES = 2_000_000_000


def measure(parts: Parts, folder: Path) -> None:
    """Measure the requested rows."""
    sizes = QUICK if parts.is_quick else FULL
    require_room(folder, bytes=DISK_BYTES_BESIDES + DISK_BYTES_A_PICTURE * sizes.pictures, files=100_000)
    with shard_fixture(folder, sizes) as fixture:
        parts.measure(writing.NUMBERS, partial(writing.rows_of_writing, fixture))
        for number in streaming.BESIDE:  # separately: if one package cannot be installed, the others are still measured
            parts.measure((number,), partial(streaming.rows_of_baseline, fixture))
        parts.measure(streaming.FAR, partial(streaming.rows_of_far, fixture))
        parts.measure_whole(decoded.NUMBERS, partial(decoded.rows_of_decoded, fixture))
        parts.measure_whole(LISTED, partial(listing.rows_of_listing, fixture))
        parts.measure_whole(order.NUMBERS, partial(order.rows_of_order, fixture))


if __name__ == "__main__":
    sys.exit(run("shards", __doc__, FIGURES, measure))
