"""The vector index of a feature view: its newest vectors in a table that Cassandra searches by cosine similarity."""

import asyncio
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.cassandra.deletions import delete_rows
from etl.cassandra.tables import append_rows, read_table
from etl.cassandra.task_sessions import gathered, insert_into, row_reader
from etl.errors import FunctionError, UnreachableError
from etl.features.history import newest_of_images
from etl.frames import kept
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import expiring, new_ingest_id, recorded_runs
from etl.tables.sequence import Run, take_run
from etl.workers import map_batches
from schemas import TableName
from schemas.features import FeatureView
from schemas.tables import create_vector_index, create_vectors, drop_vector_index

FEW = 1000
"""Up to so many rows are written one at a time while the index exists; for more, it is dropped and built again.

Cassandra 5.0 fails writes to an indexed vector if more of them run at once than the server has processors, plus one.
After that, the row is in the table but not in the index, also if the write is repeated. An index that is built over
existing rows has all of them.
"""

_BUILD_SECONDS = 3600.0

ROWS = "id STRING, sha256 BINARY, vector ARRAY<FLOAT>, expires BIGINT"
"""``expires`` is in seconds since 1970; 0 for vectors that do not expire."""


def check_vector(view: FeatureView) -> tuple[str, int]:
    """The field and the length of a view whose values are vectors. Raises `FunctionError` for other views."""
    if view.vector is None:
        kinds = ", ".join(f"{name} {kind}" for name, kind in view.fields.items())
        raise FunctionError(f"Wanted one field float[N] for neighbors by {view.title}. Found: {kinds}")
    return view.vector


def has_index(control: Control, view: FeatureView, *, metadata: TableName) -> bool:
    """Whether a view has a vector index for the images of a metadata table."""
    return view.vector is not None and control.columns(view.index_table_of(metadata)) is not None


def update_index(metadata: MetadataTable, view: FeatureView) -> int:
    """Bring the vector index of a view up to date with its values; create it if there is none. Runs Spark; returns the
    number of vectors that were written. Vectors of length 0 are not indexed, because they have no direction. Raises
    `FunctionError` if the values of the view are no vectors.
    """
    field, length = check_vector(view)
    spark, control = metadata.spark, metadata.control
    table, values = view.index_table_of(metadata.name), view.table_of(metadata.name)
    if control.columns(table) is None:
        control.define(create_vectors(table, length))
    run: Run | None = None  # delete.py looks for such a run, and the vectors of later runs replace those of this one
    current = partial(read_table, spark, values, columns=["id", "sequence", "sha256", "error"])
    with ExitStack() as stack:
        newest = current().transform(newest_of_images).where(F.col("error").isNull())
        indexed = read_table(spark, table, columns=["id", "sha256"])
        lacking = kept(newest.join(indexed, on=["id", "sha256"], how="left_anti"), stack=stack)
        count, written = lacking.count(), 0
        if count:
            run = index_run(metadata, view)
            vectors = read_table(spark, values, columns=["id", "sequence", field]).withColumnRenamed(field, "vector")
            found = lacking.join(vectors, on=["id", "sequence"], how="inner").select("id", "sha256", "vector")
            ends_of = values if expiring(recorded_runs(control, metadata.name)) else None
            task = partial(_as_floats, length=length, cluster=control.located, ends_of=ends_of)
            rows = kept(map_batches(found, task=task, schema=ROWS), stack=stack)
            written = rows.count()
            _write(control, rows, table=table, clock=run.clock, is_small=count <= FEW)
    # After the vectors were written: an image may have been deleted after its value was read.
    valid = current().transform(newest_of_images).where(F.col("error").isNull()).select("id")
    gone = read_table(spark, table, columns=["id"]).join(valid, on="id", how="left_anti")
    if not gone.isEmpty():
        run = run or index_run(metadata, view)
        delete_rows(gone, table=table, cluster=control.located, clock=run.last_clock)
    _build(control, table, length)
    return written


def index_run(metadata: MetadataTable, view: FeatureView) -> Run:
    """Begin a run that changes the vector index of a view."""
    return take_run(
        metadata.control,
        table=metadata.name,
        kind="features",
        dataset=metadata.dataset,
        source=f"{view.title} index",
        ingest_id=new_ingest_id(),
    )


def _write(control: Control, rows: DataFrame, *, table: TableName, clock: int, is_small: bool) -> None:
    """Write vectors, many of them without an index, which is faster."""
    if is_small:
        insert = insert_into(table, ["id", "sha256", "vector"], has_ttl=True)
        for row in rows.toLocalIterator():
            ttl = max(1, row.expires - int(time.time())) if row.expires else 0
            control.execute(insert, (uuid.UUID(row.id), bytes(row.sha256), row.vector, clock, ttl))
        return
    control.define(drop_vector_index(table))
    left = F.when(F.col("expires") > 0, F.greatest(F.lit(1), F.col("expires") - F.unix_timestamp())).otherwise(0)
    append_rows(
        rows.select("id", "sha256", "vector", left.cast("int").alias("ttl")), table=table, clock=clock, ttl="ttl"
    )
    control.define(drop_vector_index(table))  # again: another run may have created it in the meantime


def _build(control: Control, table: TableName, length: int) -> None:
    """Create the index unless it exists, and wait until it can be searched. Raises `UnreachableError`."""
    control.define(create_vector_index(table))
    query = f"SELECT id FROM {table.quoted} ORDER BY vector ANN OF ? LIMIT 1"
    deadline = time.monotonic() + _BUILD_SECONDS
    while True:
        try:
            control.execute(query, ([1.0] * length,))
            return
        except UnreachableError:  # the index is not available yet
            if time.monotonic() > deadline:
                raise
        time.sleep(1)


def _as_floats(
    batches: Iterable[pa.RecordBatch], *, length: int, cluster: Cluster, ends_of: TableName | None
) -> Iterator[pa.RecordBatch]:
    """Vectors as lists of numbers, without those of length 0, with their ends if their values can expire."""
    for batch in batches:
        ids, digests, blobs = (column.to_pylist() for column in batch.columns)
        vectors = [None if blob is None else np.frombuffer(blob, "<f4", count=length) for blob in blobs]
        chosen = [i for i, one in enumerate(vectors) if one is not None and one.any()]
        wanted = [uuid.UUID(ids[i]) for i in chosen]
        ends = [0] * len(chosen) if ends_of is None else asyncio.run(_ends(wanted, cluster, ends_of))
        columns = [
            pa.array([ids[i] for i in chosen], pa.string()),
            pa.array([digests[i] for i in chosen], pa.binary()),
            pa.array([vectors[i] for i in chosen], pa.list_(pa.float32())),
            pa.array(ends, pa.int64()),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=["id", "sha256", "vector", "expires"])


async def _ends(images: Sequence[uuid.UUID], cluster: Cluster, values: TableName) -> list[int]:
    """When the newest values of images expire, in seconds since 1970: 0 for never, 1 for those that have expired."""
    now = int(time.time())
    async with row_reader(cluster, values, columns=("id", "sha256"), has_ttl=True) as read:
        found = await gathered(read, [one.bytes for one in images])
    return [1 if row is None else now + row[1] if row[1] else 0 for row in found]
