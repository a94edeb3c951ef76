"""The runs that are recorded for a metadata table, in the table ``ingests`` of its keyspace."""

import secrets
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from etl.cassandra.control import Control
from etl.tables.current_form import check_current
from schemas import TableName
from schemas.tables import create_shared

STARTED, FINISHED = "started", "finished"
"""The states of runs."""
_COLUMNS = ("sequence", "clock", "kind", "ingest_id", "dataset", "source", "started", "state", "ttl", "newest")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A run as it is recorded."""

    sequence: int
    clock: int  # the write time of its rows, in microseconds since 1970
    kind: str  # ``ingest``, ``repair``, ``features``, ...
    ingest_id: uuid.UUID | None
    source: str
    started: datetime | None  # UTC, without saying so
    state: str | None  # `STARTED` or `FINISHED`; None for runs of earlier versions
    dataset: str = ""
    ttl: int = 0  # the seconds after which its images expire; 0 if they do not
    newest: int | None = None  # the newest run when this one ended

    @property
    def writes_images(self) -> bool:
        """Whether a run of this kind writes metadata rows."""
        return self.kind in ("ingest", "repair")

    def __str__(self) -> str:
        source = f" of {self.source}" if self.source else ""
        return f"run {self.sequence} ({self.kind}{source})"


def recorded_runs(control: Control, table: TableName) -> list[RecordedRun]:
    """The runs on a metadata table, the newest first; empty if none are recorded. Raises `UnreachableError`, and
    `TableError` if they are recorded in the form of an earlier version.
    """
    runs = TableName(table.keyspace, "ingests")
    if (there := control.columns(runs)) is None:
        return []
    check_current(runs, there, definition=create_shared("ingests", table.keyspace), metadata=table)
    query = f"SELECT {', '.join(_COLUMNS)} FROM {runs.quoted} WHERE table_name = ?"
    return [
        RecordedRun(
            sequence=row.sequence,
            clock=row.clock,
            kind=row.kind or "",
            ingest_id=row.ingest_id,
            dataset=row.dataset or "",
            source=row.source or "",
            started=row.started,
            state=row.state,
            ttl=row.ttl or 0,
            newest=row.newest,
        )
        for row in control.execute(query, (table.table,), is_serial=True)
        if row.sequence is not None
    ]


def sequences_by_ingest(runs: Iterable[RecordedRun]) -> dict[uuid.UUID, int]:
    """The last run of each ingest id."""
    ordered = sorted(runs, key=lambda run: run.sequence)
    return {run.ingest_id: run.sequence for run in ordered if run.ingest_id is not None}


def unfinished(runs: Sequence[RecordedRun], /, *, until: int | None = None) -> list[RecordedRun]:
    """The runs that may still write images: neither they nor a later run has finished their ingest. With ``until``,
    those of the runs up to it, as if there were no later ones.
    """
    known = [run for run in runs if until is None or run.sequence <= until]
    ended = sequences_by_ingest(run for run in known if run.state == FINISHED)
    begun = (run for run in known if run.writes_images and run.state == STARTED)
    return [run for run in begun if run.ingest_id is None or run.sequence > ended.get(run.ingest_id, 0)]


def overlapping(runs: Sequence[RecordedRun], /, *, until: int) -> list[RecordedRun]:
    """The runs after ``until`` that wrote or deleted images before all runs up to it had ended."""
    of_images = [run for run in runs if run.writes_images or run.kind == "delete"]
    ends = max((run.newest or 0 for run in of_images if run.sequence <= until), default=0)
    return [run for run in of_images if until < run.sequence <= ends]


def is_shared(before: Sequence[RecordedRun], now: Sequence[RecordedRun], /, *, own: int = 0) -> bool:
    """Whether other runs than ``own`` may have written images since the runs were those of ``before``, or still may."""
    newest = max((run.sequence for run in before), default=0)
    others = [*unfinished(before), *(run for run in now if run.writes_images and run.sequence > newest)]
    return any(run.sequence != own for run in others)


def expiring(runs: Iterable[RecordedRun]) -> dict[str, int]:
    """The shortest time to live, in seconds, of each ingest id whose images expire."""
    found: dict[str, int] = {}
    for run in runs:
        if run.writes_images and run.ttl:
            found[str(run.ingest_id)] = min(run.ttl, found.get(str(run.ingest_id), run.ttl))
    return found


def expired(runs: Iterable[RecordedRun], /, *, now: datetime) -> list[RecordedRun]:
    """The runs that wrote images some of which can have expired by now."""
    return [
        run
        for run in runs
        if run.writes_images
        and run.ttl
        and run.ingest_id is not None
        and ingest_time(run.ingest_id) + timedelta(seconds=run.ttl) <= now
    ]


def new_ingest_id() -> uuid.UUID:
    """A time-based UUID with a random node (RFC 9562, 6.10), which has a time but does not identify the machine."""
    return uuid.uuid1(node=secrets.randbits(48) | 1 << 40, clock_seq=secrets.randbits(14))


def ingest_time(ingest_id: uuid.UUID) -> datetime:
    """The time in a time-based UUID, to the millisecond as in Cassandra. A resumed run writes the same time."""
    milliseconds = (ingest_id.time - 0x01B21DD213814000) // 10_000
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
