"""The dataset service: the speed of uploads and downloads, compared with cp and nginx, many clients, and kills.

    make bench-service

The service is a separate process with a folder below build/bench; curl uploads and downloads, from and to the page
cache. Many clients send requests for ten minutes and check each answer. Then the server is killed fifty times during
uploads, and everything that it serves afterwards is checked. QUICK=1 measures less; a figure that means nothing at
that size has no value, and its note has what was measured.
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
    """Measure the requested rows."""
    sizes = QUICK if parts.is_quick else FULL
    require_room(folder, bytes=4 * sizes.file_bytes + 3 * sizes.files * sizes.of_bytes, files=10_000)
    fixture = Fixture(folder, sizes)
    for numbers, work in PARTS.items():
        parts.measure_whole(numbers, partial(work, fixture))


if __name__ == "__main__":
    sys.exit(run("service", __doc__, FIGURES, measure))
