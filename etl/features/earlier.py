"""Metadata tables as they were after an earlier run, for splits and shards."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.cassandra.runs import FINISHED, STARTED, RecordedRun, recorded_runs, sequences_by_ingest
from etl.cassandra.tables import read_table, uuid_bytes
from etl.columns import column, ours
from etl.errors import TableError
from etl.features.history import CURRENT, REPLACED, THEN, metadata_as_of, states_at
from etl.frames import small_table
from etl.ingest.removal import image_states, newest_removals
from formats.sizes import counted
from schemas import Columns, TableName
from schemas.as_of import AsOf
from schemas.tables import DELETED, create_history, defined_columns, history_of

_SHOWN = 5
_BROADCAST = 1_000_000
SKIP = "--skip-replaced"


def resolve(as_of: AsOf, runs: Sequence[RecordedRun], /, *, table: TableName, now: datetime) -> int:
    """Find the run that a point in the history means.

    Args:
        as_of: The point.
        runs: All runs on the table, the newest first.
        table: The metadata table, for messages.
        now: The current time.

    Returns:
        The sequence of the run.

    Raises:
        TableError: There is no such run, or the point is in the future.
    """
    if not runs:
        raise TableError(
            f"Wanted the runs on {table}, for --as-of. Found: none are recorded. Only ingest.py records a history."
        )
    newest, oldest = runs[0], runs[-1]
    if as_of.sequence is not None:
        if not any(run.sequence == as_of.sequence for run in runs):
            raise TableError(
                f"Wanted a run on {table} from {oldest.sequence} to {newest.sequence} for --as-of. "
                f"Found: {as_of.sequence}"
            )
        return as_of.sequence
    if as_of.ingest_id is not None:
        for run in runs:
            if run.ingest_id == as_of.ingest_id:
                return run.sequence
        known = ", ".join(f"{run.ingest_id} ({run})" for run in runs if run.kind == "ingest") or "none"
        raise TableError(f"Wanted an ingest into {table} for --as-of. Found: {as_of}. The ingests are {known}.")
    time = as_of.time or now
    if time > now:
        raise TableError(
            f"Wanted a time up to now for --as-of, {now:%Y-%m-%dT%H:%M:%S} UTC. Found: {as_of}, in the future: later "
            "runs could still change the result."
        )
    moment = (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    for run in runs:
        if run.clock <= moment:
            return run.sequence
    first = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=oldest.clock)
    raise TableError(
        f"Wanted a time after the first run on {table}, {first:%Y-%m-%dT%H:%M:%S} UTC, for --as-of. Found: {as_of}"
    )


def unfinished(runs: Sequence[RecordedRun], /, *, until: int) -> list[RecordedRun]:
    """The runs up to ``until`` that may still write images: no later run has finished the same ingest."""
    ended = {run.ingest_id for run in runs if run.state == FINISHED}
    begun = (run for run in runs if run.sequence <= until and run.writes_images and run.state == STARTED)
    return [run for run in begun if run.ingest_id not in ended]


def newest_run(control: Control, table: TableName) -> tuple[int | None, tuple[int, ...]]:
    """The newest run on a metadata table, and the runs that may still write images; None if no run is recorded."""
    runs = recorded_runs(control, table)
    if not runs:
        return None, ()
    return runs[0].sequence, tuple(sorted(run.sequence for run in unfinished(runs, until=runs[0].sequence)))


def half_deleted(spark: SparkSession, control: Control, *, metadata: TableName, columns: Columns) -> DataFrame | None:
    """The images that are recorded as deleted and are still there, because a run that deletes was interrupted.

    Args:
        spark: The session.
        control: The session for small queries.
        metadata: The metadata table.
        columns: The names of its columns.

    Returns:
        ``id`` (16 bytes); None if all runs that delete have finished.
    """
    begun = (run for run in recorded_runs(control, metadata) if run.kind == "delete" and run.state == STARTED)
    removals = newest_removals(spark, control, metadata=metadata) if any(begun) else None
    if removals is None:
        return None
    deleted = removals.where(F.col("kind") == DELETED).select("id", "until")
    states = image_states(spark, control, metadata=metadata, columns=columns).select("id", "since")
    return states.join(deleted, on="id", how="inner").where(F.col("since") < F.col("until")).select("id")


def with_since(rows: DataFrame, /, *, runs: Mapping[uuid.UUID, int]) -> DataFrame:
    """Fill in ``since`` of metadata rows of earlier versions: the last run of their ``ingest_id``, else 0.

    Args:
        rows: Rows with ``since`` and ``ingest_id``.
        runs: The last run of each ingest id.

    Returns:
        The rows without ``ingest_id``.
    """
    ingest, last = ours("ingest"), ours("last")
    columns: dict[str, Sequence[Any]] = {ingest: [str(one) for one in runs], last: [*runs.values()]}
    known = F.broadcast(small_table(rows.sparkSession, columns, f"`{ingest}` STRING, `{last}` BIGINT"))
    joined = rows.join(known, on=F.col("ingest_id") == F.col(ingest), how="left")
    since = F.coalesce("since", last, F.lit(0)).alias("since")
    return joined.select(*(since if name == "since" else column(name) for name in rows.columns if name != "ingest_id"))


def read_history(spark: SparkSession, control: Control, metadata: TableName) -> DataFrame | None:
    """The history of a metadata table, with ids as text; None if no run has replaced or removed a row."""
    table = history_of(metadata)
    if control.columns(table) is None:
        return None
    return read_table(spark, table, columns=list(defined_columns(create_history(metadata))))


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierMetadata:
    """A metadata table as it was after a run.

    Attributes:
        table: The table.
        columns: The names of its columns.
        label_type: The label type of the tables.
        sequence: The run.
        runs: The last run of each ingest id.
        states: The states of images then that were replaced or removed later; None if there are none.
        count: Their number.
        has_since: Whether the table has the column ``since``.
        skips: Whether to leave out images whose bytes of then no longer exist, or whose state is unknown.
        warnings: What users should know.
    """

    table: TableName
    columns: Columns
    label_type: str
    sequence: int
    runs: Mapping[uuid.UUID, int]
    states: DataFrame | None
    count: int
    has_since: bool
    skips: bool
    warnings: tuple[str, ...]

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        control: Control,
        *,
        table: TableName,
        columns: Columns,
        label_type: str,
        as_of: AsOf,
        skips: bool,
    ) -> "EarlierMetadata":
        """Find the run that ``as_of`` means, and the states of images then.

        Raises `TableError` if there is no such run, or if later runs kept no history.
        """
        runs = recorded_runs(control, table)
        sequence = resolve(as_of, runs, table=table, now=datetime.now(UTC))
        there = control.columns(table) or {}
        if missing := {"sha256", "ingest_id"} - there.keys():
            raise TableError(f"Wanted the columns {', '.join(sorted(missing))} in {table}, for --as-of. Found: none.")
        warnings = [f"{run} has not finished: it was killed, or can still add images" for run in
                    unfinished(runs, until=sequence)]  # fmt: skip
        old = [run for run in runs if run.sequence > sequence and run.writes_images and run.state is None]
        if old:
            more = f" and {len(old) - 1:,} more" if len(old) > 1 else ""
            found = f"{old[-1]}{more} of an earlier version, which kept no history of what it replaced or removed"
            if not skips:
                raise TableError(
                    f"Wanted the history of {table} since run {sequence}. Found: {found}. Use --as-of "
                    f"{old[0].sequence} or later, or set {SKIP} to leave out images that such a run wrote."
                )
            warnings.append(f"images are left out that were written or removed by {found}")
        states, count = _states(spark, control, table, sequence=sequence)
        return cls(
            table=table,
            columns=columns,
            label_type=label_type,
            sequence=sequence,
            runs=sequences_by_ingest(runs),
            states=states,
            count=count,
            has_since="since" in there,
            skips=skips,
            warnings=tuple(warnings),
        )

    @property
    def needed(self) -> list[str]:
        """The columns of the table that `rows` needs."""
        labels = ["labels"] if self.label_type == "multi" else []
        return ["sha256", "ingest_id", *(["since"] if self.has_since else []), *labels]

    def rows(self, rows: DataFrame) -> DataFrame:
        """The rows of then that have a row now, from the current rows with the columns `needed`.

        If there are ``states``, there is the column `THEN`, which `checked` needs.
        """
        if not self.has_since:
            rows = rows.withColumn("since", F.lit(None).cast("bigint"))
        rows = rows.transform(with_since, runs=self.runs)
        if self.states is None:
            return rows.where(F.col("since") <= self.sequence)
        states = F.broadcast(self.states) if self.count <= _BROADCAST else self.states
        return rows.transform(
            metadata_as_of, states=states, sequence=self.sequence, columns=self.columns, label_type=self.label_type
        )

    def checked(self, rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        """Check that the bytes of then exist, in a pass over the rows.

        Args:
            rows: Rows of `rows`, with ``id`` of 16 bytes.

        Returns:
            The rows whose bytes exist, without the column `THEN`, and warnings.

        Raises:
            TableError: Bytes of then no longer exist, and the plan does not leave out such images.
        """
        if self.states is None:
            return rows, self.warnings
        is_replaced = F.col(THEN) == REPLACED
        sums = [F.count_if(is_replaced).alias("replaced"), F.count_if(F.col(THEN) != CURRENT).alias("known")]
        (found,) = rows.agg(*sums).collect()
        removed = self.count - found["known"]
        warnings = self.warnings
        if gone := found["replaced"] + removed:
            what = f"{counted(gone, 'image')} ({found['replaced']:,} replaced, {removed:,} removed since)"
            if not self.skips:
                raise TableError(
                    f"Wanted the images of {self.table} as of run {self.sequence}. Found: {what} whose bytes of then "
                    f"no longer exist: {self._examples(rows, self.states, gone=gone)}. Set {SKIP} to leave them out."
                )
            warnings = (*warnings, f"left out, because their bytes of run {self.sequence} no longer exist: {what}")
        return rows.where(~is_replaced).drop(THEN), warnings

    def confirm(self, spark: SparkSession) -> None:
        """Check, after the rows were read, that no run has replaced or removed some of them in the meantime.

        Raises `TableError` if one has.
        """
        with Control.from_spark(spark) as control:
            _, count = _states(spark, control, self.table, sequence=self.sequence)
        if count != self.count:
            raise TableError(
                f"Wanted {self.table} while no run replaces or removes its images. Found: {count - self.count:,} "
                "images that were replaced or removed in the meantime. Run again."
            )

    def _examples(self, rows: DataFrame, states: DataFrame, *, gone: int) -> str:
        """The first few images whose bytes no longer exist: their ids, and their paths if they have rows."""
        ids = [row["id"] for row in rows.where(F.col(THEN) == REPLACED).select("id").orderBy("id").head(_SHOWN)]
        if len(ids) < _SHOWN:
            known = rows.where(F.col(THEN) != CURRENT).select("id")
            of_then = states.select(uuid_bytes("id").alias("id"))
            left = of_then.join(known, on="id", how="left_anti").orderBy("id")
            ids += [row["id"] for row in left.head(_SHOWN - len(ids))]
        names = [uuid.UUID(bytes=bytes(one)) for one in ids]
        query = f'SELECT or_split, path FROM {self.table.quoted} WHERE "{self.columns.id}" = ?'
        shown = []
        with Control.from_spark(rows.sparkSession) as control:
            answers = list(control.execute_all(query, [(name,) for name in names]))
        for name, answer in zip(names, answers, strict=True):
            path = "/".join(part for row in answer for part in (row.or_split, row.path) if part)
            shown.append(f"{name} ({path})" if path else f"{name} (removed)")
        return ", ".join(shown) + (", ..." if gone > _SHOWN else "")


def _states(spark: SparkSession, control: Control, table: TableName, *, sequence: int) -> tuple[DataFrame | None, int]:
    history = read_history(spark, control, table)
    if history is None:
        return None, 0
    states = history.transform(states_at, sequence=sequence)
    count = states.count()
    return (states, count) if count else (None, 0)
