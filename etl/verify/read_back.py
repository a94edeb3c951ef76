"""Reading back of written images: the data row and the metadata row."""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.batches import arrow_schema, bounded, rows_of
from etl.cassandra.cluster import Cluster
from etl.cassandra.executor import ReadPicture, picture_reader
from etl.ingest.plan import Tables
from etl.ingest.writing.outcomes import WRITTEN
from etl.workers import map_batches

_IDS = "id BINARY"
_TOGETHER = 16
_TOGETHER_BYTES = 32 << 20


def read_back(outcomes: DataFrame, /, *, cluster: Cluster, tables: Tables) -> DataFrame:
    """The ids of written images (rows of `outcomes.OUTCOMES`) whose two rows are as written.

    Executors read both rows of each image; they need `secrets_on_executors`.
    """
    written = outcomes.where(F.col("stage") == WRITTEN).select("id", "bytes", "sha256")
    return map_batches(written, task=partial(_check_batches, cluster=cluster, tables=tables), schema=_IDS)


def _check_batches(batches: Iterable[pa.RecordBatch], *, cluster: Cluster, tables: Tables) -> Iterator[pa.RecordBatch]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            data = (tables.columns.id, tables.columns.data)
            blobs = runner.run(stack.enter_async_context(picture_reader(cluster, tables.data, columns=data)))
            known = (tables.columns.id, "sha256")
            metadata = runner.run(stack.enter_async_context(picture_reader(cluster, tables.metadata, columns=known)))
            rows = rows_of(batches)
            for group in bounded(rows, most=_TOGETHER, most_bytes=_TOGETHER_BYTES, size=lambda row: int(row[1])):
                found = runner.run(_check(group, blobs, metadata))
                yield pa.record_batch([found], schema=arrow_schema(_IDS))
        finally:
            runner.run(stack.aclose())


async def _check(rows: list[tuple[Any, ...]], blobs: ReadPicture, metadata: ReadPicture) -> list[bytes]:
    async def is_right(image: bytes, digest: bytes) -> bool:
        blob, known = await asyncio.gather(blobs(image), metadata(image))
        has_blob = blob is not None and blob[0] is not None and hashlib.sha256(blob[0]).digest() == digest
        return has_blob and known is not None and known[0] == digest

    right = await asyncio.gather(*(is_right(image, digest) for image, _, digest in rows))
    return [row[0] for row, is_as_written in zip(rows, right, strict=True) if is_as_written]
