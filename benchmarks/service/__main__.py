"""The dataset service: how fast bodies go up and down, beside cp and nginx, and what it stands.

    make bench-service

The service is a separate process over a folder below build/bench; curl sends and gets, from and to the page cache.
Many clients ask for ten minutes, each knowing what it must get; then the server is killed in the middle of uploads,
fifty times, and all that it tells afterwards is looked through. QUICK=1 takes less of everything; figures that mean
nothing then have no value and tell theirs in the note.
"""

import sys
from functools import partial
from pathlib import Path

from benchmarks.harness.command import Parts, run
from benchmarks.harness.pictures import require_room
from benchmarks.service import bodies, load
from benchmarks.service.figures import FIGURES, FULL, QUICK
from benchmarks.service.fixture import Fixture

PARTS = {
    bodies.UPLOADED: bodies.rows_of_upload,
    bodies.FOLDER: bodies.rows_of_folder,
    bodies.DOWNLOADED: bodies.rows_of_download,
    load.CLIENTS: load.rows_of_clients,
    load.KILLS: load.rows_of_kills,
}


def measure(parts: Parts, folder: Path) -> None:
    """The rows that are wanted."""
    sizes = QUICK if parts.is_quick else FULL
    require_room(folder, bytes=4 * sizes.file_bytes + 3 * sizes.files * sizes.of_bytes, files=10_000)
    fixture = Fixture(folder, sizes)
    for numbers, work in PARTS.items():
        parts.measure_whole(numbers, partial(work, fixture))


if __name__ == "__main__":
    sys.exit(run("service", __doc__, FIGURES, measure))
