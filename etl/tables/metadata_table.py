"""A metadata table, opened once: its columns, its runs, and what they replaced or removed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.cassandra.tables import read_table, uuid_bytes
from etl.errors import TableError
from etl.tables.current_form import check_current, not_migrated
from etl.tables.runs import STARTED, RecordedRun, recorded_runs
from etl.tables.states import is_deleted, kept_bytes, last_removals
from etl.tables.table_records import TableRecord, record_of
from formats.checksums import COLUMN as CHECKSUM
from formats.sizes import counted
from schemas import Columns, IdentifierError, TableName
from schemas.tables import (
    DELETED,
    LabelType,
    create_history,
    create_metadata,
    defined_columns,
    history_of,
    is_ingested,
)

_KINDS = {
    "id": "string",
    "label": "int",
    "labels": "array<int>",
    "or_label": "string",
    "or_split": "string",
    "path": "string",
    "format": "string",
    "width": "int",
    "height": "int",
    "bytes": "bigint",
    "sha256": "binary",
    CHECKSUM: "bigint",
    "kept": "boolean",
    "source": "string",
    "group_id": "string",
    "ingest_id": "string",
    "since": "bigint",
    "until": "bigint",
    "kind": "string",
    "reason": "string",
    "at": "timestamp",
}
"""The Spark types of columns of a metadata table, by their usual names, and of its history."""
# A killed run stays unfinished forever, also once its deletion was completed. For so many images, it is faster to look
# for their rows than to read the whole table each time.
_LOOKED_UP = 100_000
OF_THE_INGEST = ("ingest_id", "ingested_at", "since")
"""The columns that differ between ingests of the same images."""
STATE = ("label", "labels", "or_label", "or_split", "path", "bytes", "sha256", "source", "ingest_id", "since")
"""The columns of a row that say what an image is."""


def history_in(control: Control, metadata: TableName) -> TableName | None:
    """The table with the history of a metadata table; None if no run has replaced or removed a row."""
    try:
        history = history_of(metadata)
    except IdentifierError:  # too long a name for a history
        return None
    return history if control.columns(history) is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTable:
    """A metadata table, and what its keyspace recorded of it when it was opened."""

    spark: SparkSession
    control: Control
    name: TableName
    columns: Columns  # the names of its id and label columns
    fields: dict[str, str]  # The CQL types of its columns; empty if it does not exist.
    runs: tuple[RecordedRun, ...]  # the newest first
    history: TableName | None  # None if no run has replaced or removed a row
    record: TableRecord | None  # what it and its data table hold; None if no ingest has recorded it

    @classmethod
    def open(
        cls, spark: SparkSession, control: Control, name: TableName, *, columns: Columns | None = None
    ) -> "MetadataTable":
        """Look a table up. Raises `UnreachableError`, and `TableError` if it is one of an earlier version, or if
        ``columns`` do not have its labels: without them, it would look like a table without labels.
        """
        fields, history = dict(control.columns(name) or {}), history_in(control, name)
        if is_ingested(fields):
            check_current(name, fields, definition=create_metadata(name, Columns()), metadata=name)
        if history is not None:
            there = control.columns(history) or {}
            check_current(history, there, definition=create_history(name), metadata=name)
        record = record_of(control, name)
        if columns is not None and record is not None and record.label_type != "none":
            in_data = control.columns(record.data_table)
            if in_data is not None and columns.label not in in_data:
                raise TableError(
                    f"Wanted the column {columns.label} with labels in {record.data_table}. Found: "
                    f"{', '.join(in_data)}. Name it with --label-col."
                )
        return cls(
            spark=spark,
            control=control,
            name=name,
            columns=columns or Columns(),
            fields=fields,
            runs=tuple(recorded_runs(control, name)),
            history=history,
            record=record,
        )

    @property
    def dataset(self) -> str:
        """The dataset that it holds; its keyspace's name if no ingest has recorded it."""
        return self.name.keyspace if self.record is None else self.record.dataset

    def label_type(self, data: TableName) -> LabelType:
        """The type of the labels that a data table has, from the columns of both tables."""
        return label_type_of((self.control.columns(data) or {}).get(self.columns.label), self.fields)

    def has_checksums(self, data: TableName) -> bool:
        """Whether it has the checksums of the images in a data table, because both are one pair."""
        return self.record is not None and self.record.data_table == data

    @property
    def newest(self) -> int | None:
        """The newest run; None if no run is recorded."""
        return self.runs[0].sequence if self.runs else None

    @property
    def clocks(self) -> dict[int, int]:
        """The clock of each run, in microseconds since 1970."""
        return {run.sequence: run.clock for run in self.runs}

    def rows(self, names: Sequence[str]) -> DataFrame:
        """All images: ``id`` (16 bytes) and these columns, by their usual names. Those that the table lacks are null,
        ``since`` as `with_since` says.
        """
        wanted = [*names, *(["ingest_id"] if "since" in names and "ingest_id" not in names else [])]
        has = {name: self.columns.label if name == "label" else name for name in wanted}
        has = {name: named for name, named in has.items() if named in self.fields}
        if self.fields.get(has.get("label", "")) != "int":  # of another tool, or none
            has.pop("label", None)
        rows = read_table(self.spark, self.name, columns=[self.columns.id, *has.values()])
        rows = rows.select(
            uuid_bytes(self.columns.id).alias("id"),
            *((F.col(has[name]) if name in has else F.lit(None)).cast(_KINDS[name]).alias(name) for name in wanted),
        )
        return (self.with_since(rows) if "since" in names else rows).select("id", *names)

    def with_since(self, rows: DataFrame, /) -> DataFrame:
        """Fill in ``since`` where there are no runs, in tables of other tools: with 0. A row that an ingest of an
        earlier version wrote, without it, is an error when it is read.
        """
        if "since" not in rows.columns:
            return rows.withColumn("since", F.lit(0).cast("bigint"))
        old = not_migrated(f"{self.name} has rows of an earlier version, without since", metadata=self.name)
        since = F.coalesce("since", F.when(F.col("ingest_id").isNotNull(), F.raise_error(F.lit(str(old)))), F.lit(0))
        return rows.withColumn("since", since.cast("bigint"))

    def replaced(self) -> DataFrame:
        """The rows of the history, with ids as text."""
        names = list(defined_columns(create_history(self.name)))
        if self.history is None:
            return self.spark.range(0).select(*(F.lit(None).cast(_KINDS[name]).alias(name) for name in names))
        return read_table(self.spark, self.history, columns=names)

    def removals(self) -> DataFrame | None:
        """The removal that counts of each image that was ever removed, also of those that are there again: ``id`` (16
        bytes), ``until, kind, source, reason, at``; None if there are none.
        """
        if self.history is None:
            return None
        return self.replaced().transform(last_removals).select(uuid_bytes("id").alias("id"), "removed.*")

    def copies(self) -> DataFrame:
        """The replaced bytes that runs have kept, each once: ``id`` (16 bytes), ``xxhash64``, ``bytes``."""
        return self.replaced().transform(kept_bytes).withColumn("id", uuid_bytes("id"))

    def deleted(self) -> DataFrame | None:
        """The ids (16 bytes) of images that are deleted, also of those that are still there; None if there are none."""
        removals = self.removals()
        # a table without deletions is not read
        if removals is None or not self.fields or removals.where(F.col("kind") == DELETED).isEmpty():
            return None
        return self._deleted(removals, how="left")

    def half_deleted(self) -> DataFrame | None:
        """The ids (16 bytes) of deleted images that are still there; None if there are none, or all runs that delete
        have finished. Runs Spark.
        """
        begun = [run.sequence for run in self.runs if run.kind == "delete" and run.state == STARTED]
        if self.history is None or not begun:
            return None
        recorded = (
            self.replaced().where((F.col("kind") == DELETED) & F.col("until").isin(begun)).select("id").distinct()
        )
        found = recorded.limit(_LOOKED_UP + 1).collect()
        if len(found) <= _LOOKED_UP and not self._has_some([UUID(row.id) for row in found]):
            return None
        removals = self.removals()
        return None if removals is None else self._deleted(removals, how="inner")

    def _has_some(self, images: Sequence[UUID]) -> bool:
        """Whether some of these images have rows."""
        query = f'SELECT "{self.columns.id}" FROM {self.name.quoted} WHERE "{self.columns.id}" = ?'
        with Control.from_spark(self.spark) as control:  # the one that opened the table may be closed
            return any(control.execute_all(query, [(image,) for image in images]))

    def without_half_deleted(self, rows: DataFrame, /) -> tuple[DataFrame, tuple[str, ...]]:
        """The rows of images that are not half deleted, and a warning if there are others. Runs Spark."""
        half = self.half_deleted()
        if half is None or not (count := half.count()):
            return rows, ()
        told = f"left out: {counted(count, 'image')} recorded as deleted but still there, because delete.py was "
        return rows.join(half, on="id", how="left_anti"), (f"{told}interrupted. Run it again",)

    def _deleted(self, removals: DataFrame, *, how: str) -> DataFrame:
        since = F.coalesce("since", F.lit(0))
        found = removals.select("id", "kind", "until").join(self.rows(["since"]), on="id", how=how)
        return found.where(is_deleted(since, kind=F.col("kind"), until=F.col("until"))).select("id")


def full_path(or_split: Column, path: Column) -> Column:
    """A path with its split folder, as in the quarantine table."""
    return F.when(F.coalesce(or_split, F.lit("")) == "", path).otherwise(F.concat_ws("/", or_split, path))


def label_type_of(in_data: str | None, fields: Collection[str]) -> LabelType:
    """The label type of a data table with labels of this CQL type, and a metadata table with these columns."""
    if in_data in (None, "int"):
        return "none" if in_data is None else "int"
    if "labels" in fields:
        return "multi"
    return "blob" if in_data == "blob" else "int"
