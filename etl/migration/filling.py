"""Values that rows of earlier versions lack: the run since which an image is there, and its checksum.

A value is written with the write time and the end of its row. So a run that replaces or deletes the row at the same
time wins, and a value that was written before is written again unchanged. If the column was dropped once, Cassandra
discards values from before that: then they are written with the time after it.
"""

import asyncio
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.batches import arrow_schema, batch_of, bounded, rows_of
from etl.cassandra.cluster import Cluster
from etl.cassandra.tables import uuid_bytes
from etl.cassandra.task_sessions import TaskSession, task_session
from etl.ingest.plan import Tables
from etl.ingest.writing.table_rows import checksum_of
from etl.workers import map_batches
from formats.checksums import COLUMN as CHECKSUM
from schemas.tables import check_column

_FILLED = "rows BIGINT, checksums BIGINT, unlike BIGINT"
_TOGETHER = 64
_TOGETHER_BYTES = 32 << 20  # of images
LACKS_SINCE = "ingest_id IS NOT NULL AND since IS NULL"
LACKS_CHECKSUM = f"ingest_id IS NOT NULL AND {CHECKSUM} IS NULL AND sha256 IS NOT NULL"
"""The conditions of rows of earlier versions."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The rows that got the run since which they are there, those that got a checksum, and those that did not, because
    the stored bytes have another SHA-256.
    """

    rows: int
    checksums: int
    unlike: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """What rows of a metadata table get: ``since`` is the last run of their ingest id in ``runs``, else 0. With
    ``checksums``, their images are read. Values are not written before the time ``earliest``, in microseconds.
    """

    cluster: Cluster
    tables: Tables
    runs: Mapping[str, int]
    checksums: bool
    earliest: int


def fill(rows: DataFrame, /, *, filling: Filling) -> Filled:
    """Fill in rows of a metadata table, with ``id`` (text) and ``bytes``. Runs Spark, within `secrets_on_executors`."""
    task = partial(_fill_batches, filling=filling)
    named = rows.select(uuid_bytes("id").alias("id"), F.coalesce("bytes", F.lit(0)).cast("bigint").alias("bytes"))
    counts = map_batches(named, task=task, schema=_FILLED)
    (found,) = counts.agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in counts.columns)).collect()
    return Filled(found["rows"], found["checksums"], found["unlike"])


def _fill_batches(batches: Iterable[pa.RecordBatch], *, filling: Filling) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            yield batch_of([asyncio.run(_fill(list(rows_of([batch])), filling))], arrow_schema(_FILLED))


async def _fill(rows: Sequence[tuple[bytes, int]], filling: Filling) -> tuple[int, ...]:
    done: list[tuple[int, int, int]] = []
    async with task_session(filling.cluster) as session:
        filler = await _Filler.prepare(session, filling)
        size = (lambda row: row[1]) if filling.checksums else (lambda _: 0)
        for group in bounded(rows, most=_TOGETHER, most_bytes=_TOGETHER_BYTES, size=size):
            done += await asyncio.gather(*(filler.fill(uuid.UUID(bytes=image)) for image, _ in group))
    return tuple(map(sum, zip(*done, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filler:
    """Reads a row, and its image if it needs a checksum, and writes what it lacks."""

    session: TaskSession
    filling: Filling
    row: Any
    image: Any  # the query of the image, and of its mask or array; None without checksums
    since: Any
    checksum: Any

    @classmethod
    async def prepare(cls, session: TaskSession, filling: Filling) -> "_Filler":
        tables = filling.tables
        columns, name = tables.columns, check_column(tables.columns.id)
        of_row = f"ingest_id, since, {CHECKSUM}, sha256, WRITETIME(ingest_id), TTL(ingest_id)"
        masks = [columns.label] if tables.label_type in ("multi", "blob") else []
        of_image = ", ".join(f'"{check_column(one)}"' for one in (columns.data, *masks))
        metadata = tables.metadata.quoted
        of_data = f'SELECT {of_image} FROM {tables.data.quoted} WHERE "{name}" = ?'
        update = f'UPDATE {metadata} USING TIMESTAMP ? AND TTL ? SET %s = ? WHERE "{name}" = ?'
        return cls(
            session=session,
            filling=filling,
            row=await session.prepare(f'SELECT {of_row} FROM {metadata} WHERE "{name}" = ?'),
            image=await session.prepare(of_data) if filling.checksums else None,
            since=await session.prepare(update % "since"),
            checksum=await session.prepare(update % CHECKSUM),
        )

    async def fill(self, image: uuid.UUID) -> tuple[int, int, int]:
        """Fill in one row, and return 0 or 1 for each field of `Filled`."""
        about = f"the row of image {image} in {self.filling.tables.metadata}"
        row = await self.session.read(self.row, image, about=about)
        if row is None or row[0] is None or row[-1] == 0:  # removed since, or about to expire: 0 would mean never
            return 0, 0, 0
        ingest_id, since, known, sha256, written, ttl = row
        end = (max(written, self.filling.earliest), ttl or 0)
        values: list[tuple[Any, tuple[Any, ...]]] = []
        if since is None:
            values.append((self.since, (*end, self.filling.runs.get(str(ingest_id), 0), image)))
        found, needs = None, self.image is not None and known is None and sha256 is not None
        if needs:
            stored = await self.session.read(self.image, image, about=f"image {image} of {self.filling.tables.data}")
            found = None if stored is None else checksum_of(stored, sha256=bytes(sha256))
        if found is not None:
            values.append((self.checksum, (*end, found, image)))
        if values:
            await self.session.write(values, about=about)
        return int(since is None), int(found is not None), int(needs and found is None)
