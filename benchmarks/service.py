"""The dataset service: how fast bodies go up and down, beside cp and nginx, and what it stands.

    make bench-service

The service is a process of its own over a folder below build/bench; curl sends and gets, from and to the page cache.
Many clients ask for ten minutes, each knowing what it must get; then the server is killed in the middle of uploads,
fifty times, and all that it tells afterwards is looked through. QUICK=1 takes less of everything; figures that mean
nothing then have no value and tell theirs in the note.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from benchmarks import service_bodies, service_load
from benchmarks.ingest import tell
from benchmarks.ingest_pictures import require_room
from benchmarks.results import ROOT, Row, publish
from benchmarks.service_figures import FIGURES, FULL, QUICK
from benchmarks.service_stage import Stage

PLACE = ROOT / "build" / "bench"

Measure = Callable[..., Mapping[int, Row]]
PARTS: Mapping[tuple[int, ...], Measure] = {
    service_bodies.UPLOADED: service_bodies.rows_of_upload,
    service_bodies.FOLDER: service_bodies.rows_of_folder,
    service_bodies.DOWNLOADED: service_bodies.rows_of_download,
    service_load.CLIENTS: service_load.rows_of_clients,
    service_load.KILLS: service_load.rows_of_kills,
}


def measure(stage: Stage, wanted: Collection[int], *, quick: bool) -> tuple[dict[int, Row], bool]:
    """The rows that are wanted, and whether all was measured; what fails has rows that say so."""
    rows: dict[int, Row] = {}
    is_whole = True
    for numbers, work in PARTS.items():
        if here := sorted(set(numbers).intersection(wanted)):
            try:
                rows.update(work(stage, here, quick=quick))
            except Exception as error:  # whatever it is, what else was measured is worth keeping
                tell(f"failed: {error}")
                rows.update(FIGURES.failed_rows(here, error))
                is_whole = False
    return rows, is_whole


def main() -> int:
    """Measure and report; returns the exit code: 0 also where targets are missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--only", metavar="ROW,...", help=f"these rows again, by number, of {len(FIGURES)}")
    args = parser.parse_args()
    try:
        wanted = FIGURES.parse_numbers(args.only) if args.only else frozenset(FIGURES)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    PLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="service-", dir=PLACE)).resolve()
    sizes = QUICK if args.quick else FULL
    try:
        require_room(folder, bytes=4 * sizes.file_bytes + 3 * sizes.files * sizes.of_bytes, files=10_000)
        rows, is_whole = measure(Stage(folder, sizes), wanted, quick=args.quick)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        tell("remove what was made")
        shutil.rmtree(folder, ignore_errors=True)
    publish("service", FIGURES.with_earlier(rows, PLACE / "service.json", quick=args.quick), quick=args.quick)
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
