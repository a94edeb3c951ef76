"""Images that expire: the runs of a metadata table that wrote images with a time to live (``ingest.py --ttl``)."""

from dataclasses import dataclass

from etl.cassandra.control import Control
from etl.errors import TableError
from schemas import TableName


@dataclass(frozen=True, slots=True)
class RunTtl:
    """The time to live, in seconds, of the images of a run; 0 if they do not expire."""

    sequence: int
    ingest_id: str
    source: str
    ttl: int


def run_ttls(control: Control, metadata: TableName) -> list[RunTtl]:
    """The ingests and repairs of a metadata table with their times to live, the newest first."""
    runs = TableName(metadata.keyspace, "ingests")
    columns = control.columns(runs)
    if columns is None or "ttl" not in columns:
        return []
    query = f"SELECT sequence, ingest_id, source, kind, ttl FROM {runs.quoted} WHERE table_name = ?"
    rows = control.execute(query, (metadata.table,), is_serial=True)
    return [
        RunTtl(row.sequence, str(row.ingest_id), row.source or "", row.ttl or 0)
        for row in rows
        if row.kind in ("ingest", "repair")
    ]


def expiring_ingests(control: Control, metadata: TableName) -> dict[str, int]:
    """The shortest time to live, in seconds, of each ingest id whose images expire."""
    found: dict[str, int] = {}
    for run in run_ttls(control, metadata):
        if run.ttl:
            found[run.ingest_id] = min(run.ttl, found.get(run.ingest_id, run.ttl))
    return found


def check_lasting(control: Control, metadata: TableName, *, wanted: str) -> None:
    """Raise `TableError` if images of a metadata table expire. ``wanted`` is what needs images that do not."""
    expiring = [run for run in run_ttls(control, metadata) if run.ttl]
    if expiring:
        run = expiring[0]
        raise TableError(
            f"Wanted a table whose images do not expire, for {wanted}. Found: run {run.sequence} of {metadata} with "
            f"--ttl {run.ttl}. It would write rows that do not expire."
        )
