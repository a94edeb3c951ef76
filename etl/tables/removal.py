"""Removal of images from the tables, with a record of each removed image in the history of its metadata table.

The record is written first, then the image's feature values are removed, and at last its data row and metadata row. So
a run that was killed leaves images that the next run finds again by their metadata. The data row is not removed but
written without an image, so that one read tells a removed image from a missing one. Labels are removed on request only:
a pruned image may come back, and a label version never changes. So are the bytes that an ingest has kept.
"""

import asyncio
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.cassandra.registry import registered_views
from etl.cassandra.tables import append_rows, read_table, uuid_bytes, uuid_text
from etl.cassandra.task_sessions import TaskSession, gathered, insert_into, task_session
from etl.errors import TableError
from etl.tables.metadata_table import MetadataTable
from etl.tables.sequence import Run
from etl.tables.table_records import read_records
from etl.workers import map_batches
from formats.checksums import COLUMN as CHECKSUM
from schemas import Columns, IdentifierError, TableName
from schemas.tables import DELETED, create_history, history_of, kept_of, label_bucket

_PAGE_ROWS = 100  # of a table with images, of which keys and sizes are read
RECORDED = ("since", "label", "labels", "or_label", "or_split", "sha256", "source")
# The columns that tell tables of values and vectors from other tables, by the columns of their keys.
_OF_VALUES: Mapping[tuple[str, ...], Collection[str]] = {
    ("id", "sequence"): ("created_timestamp", "sha256"),
    ("id",): ("vector", "sha256"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The tables that images are removed from, and the run that removes them."""

    cluster: Cluster
    data: TableName
    metadata: TableName
    columns: Columns
    has_label: bool  # whether the data table has labels
    values: tuple[TableName, ...]  # of features, by id
    labels: tuple[TableName, ...]  # with versions, by bucket and id
    kept: TableName | None  # of replaced bytes, by id
    run: Run  # what a later run writes stays

    @classmethod
    def begin(cls, table: MetadataTable, *, data: TableName, run: Run, on_request: bool = False) -> "Removal":
        """Find the tables, and create the history of the metadata table unless it exists. ``on_request`` is whether
        labels of label versions and replaced bytes are removed too. Raises `TableError`.
        """
        control, metadata = table.control, table.name
        try:
            history = history_of(metadata)
        except IdentifierError as error:
            raise TableError(str(error)) from None
        if control.columns(history) is None:
            control.define(create_history(metadata))
        return cls(
            cluster=control.located,
            data=data,
            metadata=metadata,
            columns=table.columns,
            has_label=table.columns.label in (control.columns(data) or {}),
            values=value_tables(control, metadata),
            labels=label_tables(control, metadata) if on_request else (),
            kept=kept_in(control, data) if on_request else None,
            run=run,
        )


def kept_in(control: Control, data: TableName) -> TableName | None:
    """The table with the replaced bytes of a data table; None if no run has kept any."""
    kept = kept_of(data)  # another table may have this name
    return kept if (control.columns(kept) or {}).keys() >= {"id", CHECKSUM, "bytes", "data"} else None


def kept_copies(spark: SparkSession, control: Control, data: TableName) -> DataFrame | None:
    """The copies of a data table's replaced bytes: ``id`` (16 bytes), the checksum, ``until, bytes``; None if no run
    has kept any.
    """
    if (kept := kept_in(control, data)) is None:
        return None
    copies = read_table(spark, kept, columns=["id", CHECKSUM, "until", "bytes"], page_rows=_PAGE_ROWS)
    return copies.withColumn("id", uuid_bytes("id"))


def value_tables(control: Control, metadata: TableName) -> tuple[TableName, ...]:
    """The tables with values of features, and vector indexes, of a metadata table: those of registered views, and those
    that a run left which was killed before it registered its view, or whose view was removed.
    """
    found: dict[TableName, None] = {}
    for view in registered_views(control, keyspace=metadata.keyspace):
        for table_of in (view.table_of, view.index_table_of):
            with suppress(IdentifierError):  # too long a name: there are no values for this table
                if control.columns(table := table_of(metadata)) is not None:
                    found[table] = None
    beside = _beside(control, metadata, kinds=_OF_VALUES)
    return tuple(dict.fromkeys([*found, *beside]))


def label_tables(control: Control, metadata: TableName) -> tuple[TableName, ...]:
    """The tables of labels of a metadata table, also of runs that were killed and of views that were removed."""
    return tuple(_beside(control, metadata, kinds={("bucket", "id"): ()}))


def _beside(
    control: Control, metadata: TableName, *, kinds: Mapping[tuple[str, ...], Collection[str]]
) -> list[TableName]:
    """The tables beside a metadata table that have one of these keys, and the columns that go with it."""
    found = []
    names = control.tables(metadata.keyspace)
    others = {record.metadata_table.table for record in read_records(control, keyspace=metadata.keyspace)}
    for name in tables_beside(metadata.table, names, others=others):
        table = TableName(metadata.keyspace, name)
        needed = kinds.get(tuple(control.key(table)))
        if needed is not None and (control.columns(table) or {}).keys() >= {*needed}:
            found.append(table)
    return found


def tables_beside(metadata: str, names: Iterable[str], /, *, others: Collection[str]) -> list[str]:
    """Those of a keyspace's tables whose names begin with that of a metadata table, not with a longer one of others."""
    # `people_old_phash_v1` belongs to the metadata table `people_old` if there is one, not to `people`.
    longer = tuple(f"{other}_" for other in others if other.startswith(f"{metadata}_"))
    return sorted(name for name in names if name.startswith(f"{metadata}_") and not f"{name}_".startswith(longer))


def remove_images(
    ids: DataFrame, /, *, count: int, states: DataFrame, removal: Removal, kind: str, reason: str
) -> None:
    """Remove ``count`` images (``id`` of 16 bytes). Before that, write the states of those that were not removed
    earlier, rows of `metadata_table.STATE` with ``id``, to the history, as `DELETED` or `PRUNED`. Runs Spark. Raises
    `TableError` unless all images were removed.
    """
    _record(states, removal=removal, kind=kind, reason=reason)
    removed = ids.transform(remove, removal=removal).count()
    if removed != count:  # Spark may have lost their list with an executor
        raise TableError(
            f"Wanted to remove {count:,} images from {removal.metadata}. Found: {removed:,} removed. Run this again."
        )


def _record(states: DataFrame, *, removal: Removal, kind: str, reason: str) -> None:
    history, run = history_of(removal.metadata), removal.run
    if kind == DELETED:  # an image is deleted since the first run that recorded it, also if that run was killed
        known = read_table(states.sparkSession, history, columns=["id", "since", "kind"])
        known = known.where(F.col("kind") == kind).select(uuid_bytes("id").alias("id"), "since")
        states = states.join(known, on=["id", "since"], how="left_anti")
    rows = states.select(
        uuid_text("id").alias("id"),
        F.lit(run.sequence).cast("bigint").alias("until"),
        F.lit(kind).alias("kind"),
        *RECORDED,
        F.lit(reason).alias("reason"),
        F.timestamp_millis(F.lit(run.clock // 1000)).alias("at"),
    )
    append_rows(rows, table=history, clock=run.clock)


def remove(ids: DataFrame, /, *, removal: Removal) -> DataFrame:
    """Remove feature values of images, and then their data and metadata rows, when the result, the removed ids, is
    computed. Rows that a later run has written stay.
    """
    return map_batches(ids.select("id"), task=partial(_remove_batches, removal=removal), schema="id BINARY")


def _remove_batches(batches: Iterable[pa.RecordBatch], *, removal: Removal) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        asyncio.run(_remove(batch.column(0).to_pylist(), removal))
        yield batch


async def _remove(ids: Sequence[bytes], removal: Removal) -> None:
    async with task_session(removal.cluster) as session:
        remover = await Remover.prepare(session, removal)
        await gathered(remover.remove, [uuid.UUID(bytes=one) for one in ids])


@dataclass(frozen=True, slots=True, kw_only=True)
class Remover:
    """Prepared statements that remove an image: its values and labels by table, its replaced bytes, then its data and
    metadata rows.
    """

    session: TaskSession
    removal: Removal
    values: list[Any]
    labels: list[Any]
    kept: Any  # None if no replaced bytes are removed
    data: Any
    metadata: Any

    @classmethod
    async def prepare(cls, session: TaskSession, removal: Removal) -> "Remover":
        """Prepare the statements."""
        names = removal.columns
        delete = "DELETE FROM {} USING TIMESTAMP ? WHERE {}"
        empty = [names.id, names.data, *([names.label] if removal.has_label else [])]
        metadata = delete.format(removal.metadata.quoted, f'"{names.id}" = ?')
        return cls(
            session=session,
            removal=removal,
            values=[await session.prepare(delete.format(table.quoted, "id = ?")) for table in removal.values],
            labels=[
                await session.prepare(delete.format(table.quoted, "bucket = ? AND id = ?")) for table in removal.labels
            ],
            kept=None if removal.kept is None else await session.prepare(delete.format(removal.kept.quoted, "id = ?")),
            data=await session.prepare(insert_into(removal.data, empty)),
            metadata=await session.prepare(metadata),
        )

    async def remove(self, image: uuid.UUID) -> None:
        """Remove an image, unless a later run has written it. Raises `UnreachableError`."""
        removal, clock = self.removal, self.removal.run.last_clock
        about = f"the removal of image {image} from {removal.data} and {removal.metadata}"
        for statement in self.values:
            await self.session.write([(statement, (clock, image))], about=about)
        for statement in self.labels:
            await self.session.write([(statement, (clock, label_bucket(image), image))], about=about)
        if self.kept is not None:
            await self.session.write([(self.kept, (clock, image))], about=about)
        nothing = (None, None) if removal.has_label else (None,)
        rows = [(self.data, (image, *nothing, clock)), (self.metadata, (clock, image))]
        is_one_mutation = removal.data.keyspace == removal.metadata.keyspace
        for together in [rows] if is_one_mutation else [[row] for row in rows]:
            await self.session.write(together, about=about)
