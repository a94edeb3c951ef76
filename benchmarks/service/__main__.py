"""The dataset service: how fast bodies go up and down, beside cp and nginx, and what it stands.

    make bench-service

The service is a process of its own over a folder below build/bench; curl sends and gets, from and to the page cache.
Many clients ask for ten minutes, each knowing what it must get; then the server is killed in the middle of uploads,
fifty times, and all that it tells afterwards is looked through. QUICK=1 takes less of everything; figures that mean
nothing then have no value and tell theirs in the note.
"""

import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path

from benchmarks.harness.command import PLACE, Parts, asked, run
from benchmarks.harness.pictures import require_room
from benchmarks.harness.results import Row, publish
from benchmarks.service import bodies, load
from benchmarks.service.figures import FIGURES, FULL, QUICK
from benchmarks.service.stage import Stage

PARTS = {
    bodies.UPLOADED: bodies.rows_of_upload,
    bodies.FOLDER: bodies.rows_of_folder,
    bodies.DOWNLOADED: bodies.rows_of_download,
    load.CLIENTS: load.rows_of_clients,
    load.KILLS: load.rows_of_kills,
}


def measure(stage: Stage, wanted: Collection[int], *, quick: bool) -> tuple[dict[int, Row], bool]:
    """The rows that are wanted, and whether all was measured; what fails has rows that say so."""
    parts = Parts(FIGURES, wanted)
    for numbers, work in PARTS.items():
        parts.measure(numbers, partial(work, stage, quick=quick))
    return parts.rows, parts.is_whole


def main() -> int:
    """Measure and report; returns the exit code: 0 also where targets are missed."""
    told = asked(__doc__, FIGURES)
    sizes = QUICK if told.is_quick else FULL

    def work(folder: Path) -> bool:
        require_room(folder, bytes=4 * sizes.file_bytes + 3 * sizes.files * sizes.of_bytes, files=10_000)
        rows, is_whole = measure(Stage(folder, sizes), told.wanted, quick=told.is_quick)
        reported = FIGURES.with_earlier(rows, PLACE / "service.json", quick=told.is_quick)
        publish("service", reported, quick=told.is_quick)
        return is_whole

    return run("service", work)


if __name__ == "__main__":
    sys.exit(main())
