"""The sequence of runs that write to a pair of tables, and the write time of each run, its clock.

All writes and deletes of a run are made with `USING TIMESTAMP` and the run's clock, which is later than the clocks of
all earlier runs. So a later run wins over an earlier one in both tables, whatever the system clocks of the writing
machines say. The runs are recorded in the table ``ingests``.
"""

import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.cassandra.transactions import TransactionRetries
from etl.errors import EtlError
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import FINISHED, STARTED, new_ingest_id
from schemas import TableName
from schemas.tables import check_column, create_shared

SPAN = 1_000_000
"""The number of microseconds that belong to a run, and so of write times that attempts of its tasks can have: an ingest
of 10^9 images has 500,000 tasks. Two runs never share one."""
MOST_AHEAD = 300_000_000
"""The largest difference between clocks that is accepted, in microseconds."""
# `latest_write` reads one range of tokens with each query, which returns one row. A thousand ranges keep a query within
# the request's time for tables of a billion rows.
_RANGES = 1024
_FIRST_TOKEN = -(2**63)
_STEP = 2**64 // _RANGES


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run in the sequence of runs on a metadata table. The `SPAN` microseconds from ``clock`` on are write times of
    this run only.
    """

    table: TableName
    sequence: int
    clock: int
    first_attempt: int = 0  # Spark's id of the first attempt of a task; see `in_session`

    def clock_of(self, attempt: int) -> int:
        """The write time of a task, from Spark's id of its attempt, which counts those of a session: of two attempts
        at an image, the later one wins in both tables. Raises `EtlError` if the run has no more write times.
        """
        number = attempt - self.first_attempt
        if not 0 <= number < SPAN - 1:
            raise EtlError(
                f"Wanted at most {SPAN - 1:,} attempts of tasks in {self}, because each needs its own write time. "
                f"Found: attempt {number + 1:,}. Start the job again, in a new session, with --resume."
            )
        return self.clock + number

    @property
    def task_clock(self) -> int:
        """`clock_of` the task that asks for it."""
        task = TaskContext.get()
        return self.clock_of(self.first_attempt if task is None else task.taskAttemptId())

    @property
    def last_clock(self) -> int:
        """The write time after all tasks, which wins over what the tasks have written."""
        return self.clock + SPAN - 1

    def __str__(self) -> str:
        return f"run {self.sequence} of {self.table}"


def in_session(run: Run, spark: SparkSession) -> Run:
    """The run for tasks that this session starts from now on: the attempts of earlier ones do not count."""
    (before,) = spark.sparkContext.range(1, numSlices=1).map(_attempt).collect()
    return replace(run, first_attempt=before + 1)


def _attempt(_: object) -> int:
    task = TaskContext.get()
    assert task is not None
    return task.taskAttemptId()


def now() -> int:
    """The system time of this machine, in microseconds since 1970."""
    return time.time_ns() // 1000


def next_clock(*, here: int, last: int | None, at_server: int, after: int = 0, table: TableName) -> int:
    """The clock of the next run, in microseconds, from the times of this machine and of a Cassandra node, the previous
    run's clock, and a write time to be later than. Raises `EtlError` if a time is more than five minutes ahead.
    """
    written = max(after, -1 if last is None else last + SPAN - 1)
    wrong = None
    if written - here > MOST_AHEAD:
        wrong = f"{_utc(here)} here, and the last write to {table} has {_utc(written)}, {_apart(written - here)} later"
    elif here - at_server > MOST_AHEAD:
        wrong = f"{_utc(here)} here, and {_utc(at_server)} at Cassandra, {_apart(here - at_server)} earlier"
    if wrong is not None:
        raise EtlError(
            f"Wanted clocks that agree within five minutes, to write to {table}. Found: it is {wrong}. "
            "Correct the clock that is wrong (NTP) and run again, once any write time that is ahead has passed."
        )
    return max(here, written + 1)


def take_run(
    control: Control,
    *,
    table: TableName,
    kind: str,
    dataset: str,
    source: str,
    ingest_id: uuid.UUID,
    after: int = 0,
    ttl: int | None = None,
) -> Run:
    """Register the next run in the sequence of a metadata table, with its clock, later than the write time ``after``,
    in a lightweight transaction; a resumed run too. The table ``ingests`` must exist.
    Raises `EtlError` if clocks disagree, and `UnreachableError`.
    """
    runs = TableName(table.keyspace, "ingests").quoted
    query = f"SELECT sequence, clock, last FROM {runs} WHERE table_name = ? LIMIT 1"
    names = ["table_name", "sequence", "clock", "run_id", "kind", "ingest_id", "dataset", "source", "started", "state"]
    names += [] if ttl is None else ["ttl"]
    insert = f"INSERT INTO {runs} ({', '.join(names)}) VALUES ({', '.join('?' for _ in names)})"
    update = f"UPDATE {runs} SET last = ? WHERE table_name = ? IF last = ?"
    at_place = f"SELECT run_id FROM {runs} WHERE table_name = ? AND sequence = ?"
    run_id = new_ingest_id()
    (row,) = control.execute("SELECT toUnixTimestamp(now()) AS milliseconds FROM system.local")
    ahead = now() - row.milliseconds * 1000  # of the server
    retries = TransactionRetries(f"Wanted a place in {table.keyspace}.ingests at {control.cluster}.")
    while True:
        newest = next(iter(control.execute(query, (table.table,), is_serial=True)), None)
        last = None if newest is None else newest.last
        here = now()
        clock = next_clock(
            here=here,
            last=None if newest is None else newest.clock,
            at_server=here - ahead,
            after=after,
            table=table,
        )
        sequence = 1 if last is None else last + 1
        values: tuple[Any, ...] = (table.table, sequence, clock, run_id, kind, ingest_id, dataset, source)
        values = (*values, datetime.now(UTC), STARTED, *(() if ttl is None else (ttl,)))
        is_ours = control.apply([(insert, values), (update, (sequence, table.table, last))])
        if not is_ours:  # or the answer was lost
            there = control.execute(at_place, (table.table, sequence), is_serial=True)
            is_ours = any(row.run_id == run_id for row in there)
        if is_ours:
            return Run(table=table, sequence=sequence, clock=clock)
        retries.wait()


def take_lone_run(table: MetadataTable, /, *, kind: str, dataset: str = "") -> Run:
    """Register a run that reads no source, on tables that may come from other tools. Its clock is later than all
    writes. Raises as `take_run` does.
    """
    control, name = table.control, table.name
    create_sequence(control, keyspace=name.keyspace)
    has_writes = not table.runs and "path" in table.fields
    after = latest_write(control, name, key=table.columns.id, column="path") if has_writes else 0
    return take_run(control, table=name, kind=kind, dataset=dataset, source="", ingest_id=new_ingest_id(), after=after)


def latest_write(control: Control, table: TableName, *, key: str, column: str) -> int:
    """The latest write to a column of a whole table, in microseconds since 1970; 0 if no row has a value in it. The
    servers read all rows; only the result is sent. ``key`` is the one column of the partition key, and ``column`` is
    not part of the key. Raises `TableError` if the table lacks one of them.
    """
    token = f'token("{check_column(key)}")'
    query = (
        f'SELECT max(writetime("{check_column(column)}")) AS latest FROM {table.quoted} '
        f"WHERE {token} > ? AND {token} <= ?"
    )
    starts = range(_FIRST_TOKEN, 2**63, _STEP)
    ranges = [(start, min(start + _STEP, 2**63 - 1)) for start in starts]
    return max((rows[0].latest or 0) for rows in control.execute_all(query, ranges))


def finish_run(control: Control, run: Run) -> None:
    """Record that a run is finished, and which run is the newest then: it writes nothing any more. Raises
    `UnreachableError`.
    """
    runs = TableName(run.table.keyspace, "ingests").quoted
    query = f"SELECT last FROM {runs} WHERE table_name = ? LIMIT 1"
    update = f"UPDATE {runs} SET state = ?, newest = ? WHERE table_name = ? AND sequence = ? IF clock = ?"
    retries = TransactionRetries(f"Wanted to record the end of {run}.")
    while True:
        newest = control.execute(query, (run.table.table,), is_serial=True)[0].last
        if control.apply([(update, (FINISHED, newest, run.table.table, run.sequence, run.clock))]):
            return
        retries.wait()


def create_sequence(control: Control, *, keyspace: str) -> None:
    """Create the table ``ingests`` of a keyspace unless it exists."""
    control.create_table(TableName(keyspace, "ingests"), create_shared("ingests", keyspace))


def _utc(time: int) -> str:
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time):%Y-%m-%d %H:%M:%S} UTC"


def _apart(microseconds: int) -> str:
    seconds = microseconds // 1_000_000
    return f"{seconds // 3600} h {seconds // 60 % 60} min {seconds % 60} s"
