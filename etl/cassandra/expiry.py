"""Images that expire: the runs of a metadata table that wrote images with a time to live (``ingest.py --ttl``)."""

from etl.cassandra.control import Control
from etl.cassandra.runs import recorded_runs
from etl.errors import TableError
from schemas import TableName


def expiring_ingests(control: Control, metadata: TableName) -> dict[str, int]:
    """The shortest time to live, in seconds, of each ingest id whose images expire."""
    found: dict[str, int] = {}
    for run in recorded_runs(control, metadata):
        if run.writes_images and run.ttl:
            found[str(run.ingest_id)] = min(run.ttl, found.get(str(run.ingest_id), run.ttl))
    return found


def check_lasting(control: Control, metadata: TableName, *, wanted: str) -> None:
    """Raise `TableError` if images of a metadata table expire. ``wanted`` is what needs images that do not."""
    expiring = [run for run in recorded_runs(control, metadata) if run.writes_images and run.ttl]
    if expiring:
        run = expiring[0]
        raise TableError(
            f"Wanted a table whose images do not expire, for {wanted}. Found: run {run.sequence} of {metadata} with "
            f"--ttl {run.ttl}. It would write rows that do not expire."
        )
