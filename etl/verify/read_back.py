"""Reading back of written images: the data row and the metadata row, by id."""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.batches import arrow_schema, batch_of, bounded, rows_of
from etl.cassandra.cluster import Cluster
from etl.cassandra.task_sessions import ReadRow, row_reader
from etl.ingest.plan import Tables
from etl.ingest.writing.image_rows import METADATA_COLUMNS
from etl.ingest.writing.outcomes import WRITTEN
from etl.verify.comparison import mark
from etl.verify.problems import STORED
from etl.workers import map_batches
from formats.checksums import checksum

_TOGETHER = 16
_TOGETHER_BYTES = 32 << 20


def read_back(outcomes: DataFrame, /, *, cluster: Cluster, tables: Tables) -> DataFrame:
    """The rows of written images (rows of `outcomes.OUTCOMES`), as rows of `STORED` with digests. Executors read both
    rows of each image; they need `secrets_on_executors`.
    """
    written = outcomes.where(F.col("stage") == WRITTEN).select("id", "bytes")
    return map_batches(written, task=partial(_read_batches, cluster=cluster, tables=tables), schema=STORED)


def _read_batches(batches: Iterable[pa.RecordBatch], *, cluster: Cluster, tables: Tables) -> Iterator[pa.RecordBatch]:
    columns = tables.columns
    data = [columns.id, columns.data] + ([] if tables.label_type == "none" else [columns.label])
    names = [name for name in METADATA_COLUMNS if name != "labels" or tables.label_type == "multi"]
    known = [columns.id, "ingest_id", *(columns.label if name == "label" else name for name in names)]
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            blobs = runner.run(stack.enter_async_context(row_reader(cluster, tables.data, columns=data)))
            metadata = runner.run(stack.enter_async_context(row_reader(cluster, tables.metadata, columns=known)))
            rows = rows_of(batches)
            for group in bounded(rows, most=_TOGETHER, most_bytes=_TOGETHER_BYTES, size=lambda row: int(row[1])):
                found = runner.run(_read([image for image, _ in group], blobs, metadata, names))
                yield batch_of(found, arrow_schema(STORED))
        finally:
            runner.run(stack.aclose())


async def _read(images: list[bytes], blobs: ReadRow, metadata: ReadRow, names: list[str]) -> list[tuple[Any, ...]]:
    async def one(image: bytes) -> tuple[Any, ...] | None:
        blob, known = await asyncio.gather(blobs(image), metadata(image))
        if blob is None and known is None:
            return None
        ingest_id, *values = known or (None,)
        row = dict(zip(names, values, strict=False))
        data, label = ((*blob, None)[:2]) if blob is not None else (None, None)
        of_blob: tuple[Any, ...] = (None, None, None)
        if data is not None:
            mask = label if isinstance(label, bytes) else None
            of_blob = len(data), hashlib.sha256(data).digest(), checksum(data, mask)
        of_row = [row.get(name) for name in METADATA_COLUMNS]
        has_metadata = None if known is None else True
        return image, has_metadata, None if ingest_id is None else str(ingest_id), *of_row, *of_blob, mark(label)

    return [row for row in await asyncio.gather(*map(one, images)) if row is not None]
