"""Metadata tables as they were after an earlier run, for splits and shards."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.cassandra.tables import uuid_bytes
from etl.columns import column, ours
from etl.errors import TableError
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import RecordedRun, expired, overlapping, unfinished
from etl.tables.states import states_at
from formats.checksums import COLUMN as CHECKSUM
from formats.sizes import counted
from schemas import Columns, TableName
from schemas.as_of import AsOf

_SHOWN = 5
_BROADCAST = 1_000_000
SKIP = "--skip-replaced"
THEN = ours("then")
"""The column that `metadata_as_of` adds: `CURRENT`, `EARLIER`, `REPLACED` or `KEPT`."""
CURRENT, EARLIER, REPLACED, KEPT = 0, 1, 2, 3
_OF_BYTES = ("format", "width", "height", "bytes", CHECKSUM)
_ID, _STATE = ours("id"), ours("state")


def resolve(as_of: AsOf, runs: Sequence[RecordedRun], /, *, table: TableName, now: datetime) -> int:
    """The run that a point in the history means, of all runs on a table, the newest first. Raises `TableError` if there
    is no such run, or the point is in the future.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierMetadata:
    """A metadata table as it was after a run."""

    table: MetadataTable
    label_type: str
    sequence: int
    states: DataFrame | None  # The states of images then that were replaced or removed later; None if there are none.
    count: int  # of the states
    kept: int  # of the states, those whose bytes are kept
    skips: bool  # Whether to leave out images whose bytes of then no longer exist, or whose state is unknown.
    warnings: tuple[str, ...]

    @classmethod
    def open(cls, table: MetadataTable, *, label_type: str, as_of: str | None, skips: bool) -> "EarlierMetadata | None":
        """Find the run that ``as_of`` means, and the states of images then; None without ``as_of``. Raises `TableError`
        if there is no such run, or if later runs kept no history.
        """
        if as_of is None:
            return None
        now = datetime.now(UTC)
        sequence = resolve(AsOf.parse(as_of), table.runs, table=table.name, now=now)
        if missing := {"sha256", "ingest_id"} - table.fields.keys():
            names = ", ".join(sorted(missing))
            raise TableError(f"Wanted the columns {names} in {table.name}, for --as-of. Found: none.")
        warnings = [f"{run} has not finished: it was killed, or can still add images" for run in
                    unfinished(table.runs, until=sequence)]  # fmt: skip
        if both := overlapping(table.runs, until=sequence):
            names = ", ".join(f"run {run.sequence}" for run in reversed(both))
            warnings.append(
                f"{names} began before a run up to {sequence} had ended: images that both wrote can be missing, or be "
                f"as they were before. --as-of {both[0].sequence} has them"
            )
        if ended := expired(table.runs, now=now):
            warnings.append(
                f"{ended[0]} wrote images that expire (--ttl {ended[0].ttl}): those that have expired are left out, "
                "because the history does not have them"
            )
        old = [run for run in table.runs if run.sequence > sequence and run.writes_images and run.state is None]
        if old:
            more = f" and {len(old) - 1:,} more" if len(old) > 1 else ""
            found = f"{old[-1]}{more} of an earlier version, which kept no history of what it replaced or removed"
            if not skips:
                raise TableError(
                    f"Wanted the history of {table.name} since run {sequence}. Found: {found}. Use --as-of "
                    f"{old[0].sequence} or later, or set {SKIP} to leave out images that such a run wrote."
                )
            warnings.append(f"images are left out that were written or removed by {found}")
        states, count, kept = _states(table, sequence=sequence)
        return cls(
            table=table,
            label_type=label_type,
            sequence=sequence,
            states=states,
            count=count,
            kept=kept,
            skips=skips,
            warnings=tuple(warnings),
        )

    @property
    def needed(self) -> list[str]:
        """The columns of the table that `rows` needs."""
        labels = ["labels"] if self.label_type == "multi" else []
        return ["sha256", "ingest_id", *(["since"] if "since" in self.table.fields else []), *labels]

    def rows(self, rows: DataFrame) -> DataFrame:
        """The rows of then that have a row now, from the current rows with the columns `needed`. If there are
        ``states``, there is the column `THEN`, which `checked` needs.
        """
        rows = rows.transform(self.table.with_since)
        if self.states is None:
            return rows.where(F.col("since") <= self.sequence)
        states = F.broadcast(self.states) if self.count <= _BROADCAST else self.states
        return rows.transform(
            metadata_as_of,
            states=states,
            sequence=self.sequence,
            columns=self.table.columns,
            label_type=self.label_type,
        )

    def checked(self, rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        """Check, in a pass over rows of `rows` with ids of 16 bytes, that the bytes of then exist; returns those rows
        without the column `THEN`, and warnings. Raises `TableError` if bytes of then no longer exist and such images
        are not to be left out.
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
                    f"Wanted the images of {self.table.name} as of run {self.sequence}. Found: {what} whose bytes "
                    f"of then no longer exist: {self._examples(rows, self.states, gone=gone)}. Set {SKIP} to leave "
                    "them out."
                )
            warnings = (*warnings, f"left out, because their bytes of run {self.sequence} no longer exist: {what}")
        return rows.where(~is_replaced).drop(THEN), warnings

    def confirm(self) -> None:
        """Raise `TableError` if a run has replaced or removed some of the rows while they were read."""
        spark = self.table.spark
        with Control.from_spark(spark) as control:
            _, count, kept = _states(
                MetadataTable.open(spark, control, self.table.name, columns=self.table.columns), sequence=self.sequence
            )
        if kept < self.kept:
            raise TableError(
                f"Wanted the replaced bytes of {self.table.name} while they are read. Found: those of "
                f"{self.kept - kept:,} images were deleted in the meantime. Run again."
            )
        if count != self.count:
            raise TableError(
                f"Wanted {self.table.name} while no run replaces or removes its images. Found: {count - self.count:,} "
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
        query = f'SELECT or_split, path FROM {self.table.name.quoted} WHERE "{self.table.columns.id}" = ?'
        shown = []
        with Control.from_spark(rows.sparkSession) as control:
            answers = list(control.execute_all(query, [(name,) for name in names]))
        for name, answer in zip(names, answers, strict=True):
            path = "/".join(part for row in answer for part in (row.or_split, row.path) if part)
            shown.append(f"{name} ({path})" if path else f"{name} (removed)")
        return ", ".join(shown) + (", ..." if gone > _SHOWN else "")


def _states(table: MetadataTable, *, sequence: int) -> tuple[DataFrame | None, int, int]:
    if table.history is None:
        return None, 0, 0
    states = table.replaced().transform(states_at, sequence=sequence)
    (found,) = states.agg(F.count("*").alias("count"), F.count_if("kept").alias("kept")).collect()
    return states if found["count"] else None, found["count"], found["kept"]


def metadata_as_of(
    rows: DataFrame, /, *, states: DataFrame, sequence: int, columns: Columns, label_type: str
) -> DataFrame:
    """Current metadata rows (with ``since``, ``sha256``, and ``labels`` for label type ``multi``) as they were after a
    run, from `states_at` it. These are the images that existed then and have a row now, with the labels, the source and
    the SHA-256 of then, and a column `THEN`: `CURRENT` if nothing has changed, `EARLIER` for a row whose state was
    replaced since but whose bytes are the same, and `REPLACED` if the data table has other bytes, another mask or
    another array now; `KEPT` if those of then are kept, and the rows have the checksums that name them.
    """
    named = {columns.label: "label", **{name: name for name in ("labels", "or_label", "source", "sha256", "since")}}
    named = {name: state for name, state in named.items() if name in rows.columns}
    of_bytes = [name for name in _OF_BYTES if name in rows.columns]
    is_named = CHECKSUM in rows.columns
    wanted = dict.fromkeys(["sha256", "since", *named.values(), *of_bytes, *(["kept"] if is_named else [])])
    then = states.select(F.col("id").alias(_ID), F.struct(*wanted).alias(_STATE))
    joined = rows.join(then, on=F.col(columns.id) == F.col(_ID), how="left")
    is_current = F.col("since") <= sequence
    is_known = F.col(_ID).isNotNull()
    is_same = F.col("sha256").eqNullSafe(F.col(f"{_STATE}.sha256"))
    if label_type == "blob":  # the checksum is of the image and its mask
        is_same &= F.col(CHECKSUM) == F.col(f"{_STATE}.{CHECKSUM}") if CHECKSUM in of_bytes else F.lit(False)
    if label_type == "multi":
        is_same = is_same & F.col("labels").eqNullSafe(F.col(f"{_STATE}.labels"))
    is_kept = F.col(f"{_STATE}.kept") if is_named else F.lit(False)
    kind = F.when(~is_known, CURRENT).when(is_current | is_same, EARLIER).when(is_kept, KEPT).otherwise(REPLACED)
    of_then = {name: F.when(is_current, F.col(name)).otherwise(F.col(f"{_STATE}.{named[name]}")) for name in named}
    of_then |= {name: F.when(kind == KEPT, F.col(f"{_STATE}.{name}")).otherwise(F.col(name)) for name in of_bytes}
    values = [of_then[name].alias(name) if name in of_then else column(name) for name in rows.columns]
    return joined.where(is_current | is_known).select(*values, kind.alias(THEN))
