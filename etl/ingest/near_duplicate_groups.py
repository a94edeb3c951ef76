"""Groups of near duplicates in a whole table, whenever the images were ingested.

The perceptual hash of an image depends only on its bytes, so hashes are stored by SHA-256 in a small table in the
metadata's keyspace. An ingest adds the hashes of its images, computes those of older images once, and groups all rows.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.batches import arrow_schema, batch_of
from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.cassandra.executor import picture_reader
from etl.cassandra.tables import append_rows, read_table, uuid_bytes, uuid_text
from etl.errors import TableError
from etl.frames import kept
from etl.ingest.plan import Tables
from etl.ingest.writing.outcomes import WRITTEN
from etl.pictures.near_duplicates import group_near_duplicates, picture_hash
from etl.workers import map_batches
from schemas import Columns, TableName
from schemas.tables import LOOK_ALIKES

HASHES = "sha256 BINARY, phash BIGINT"
ROWS = "id BINARY, sha256 BINARY, group_id STRING"

_IN_FLIGHT = 8
_TASK_PICTURES = 2_000

log = logging.getLogger(__name__)


def grouped_rows(spark: SparkSession, *, tables: Tables) -> DataFrame:
    """The metadata rows as `ROWS`."""
    names = (tables.columns.id, "sha256", "group_id")
    rows = read_table(spark, tables.metadata, columns=names)
    return rows.select(uuid_bytes(tables.columns.id).alias("id"), "sha256", "group_id")


def refuse_other_groups(rows: DataFrame, *, tables: Tables) -> None:
    """Raise `TableError` if images have groups from their source. Runs Spark.

    Args:
        rows: Rows of `ROWS`.
        tables: The tables that they are in.
    """
    others = rows.where(F.col("group_id").isNotNull() & ~F.col("group_id").startswith(LOOK_ALIKES))
    if count := others.count():
        raise TableError(
            f"Wanted no groups in {tables.metadata} but those of near duplicates. Found: {count:,} images with a group "
            "from their source (--group-column), which --near-duplicates would replace. Leave out --near-duplicates."
        )


def group_again(spark: SparkSession, *, outcomes: DataFrame, tables: Tables, cluster: Cluster, clock: int) -> int:
    """Set a common ``group_id`` for all images of a table that look alike, and remove it where they no longer do.

    Runs Spark. Images of earlier ingests without a hash are read once, and their hashes are stored.

    Args:
        spark: The session. The password for executors must be set.
        outcomes: The outcomes of this run, rows of `OUTCOMES` with perceptual hashes; persisted.
        tables: The tables, including the table of perceptual hashes.
        cluster: The cluster from which executors read older images.
        clock: The clock of this run, in microseconds.

    Returns:
        The number of groups.
    """
    with ExitStack() as stack:
        keep = partial(kept, stack=stack)
        rows = keep(grouped_rows(spark, tables=tables))
        known = keep(read_table(spark, tables.perceptual_hashes, columns=("sha256", "phash")))
        written = outcomes.where((F.col("stage") == WRITTEN) & F.col("sha256").isNotNull())
        own = keep(
            written.select("sha256", "phash").dropDuplicates(["sha256"]).join(known, on="sha256", how="left_anti")
        )
        append_rows(own, table=tables.perceptual_hashes)
        looked = keep(_look(rows, known=known.union(own), tables=tables, cluster=cluster))
        append_rows(looked, table=tables.perceptual_hashes)
        hashes = known.union(own).union(looked)
        groups = keep(group_near_duplicates(rows.join(hashes, on="sha256", how="inner").select("id", "phash")))
        named = rows.withColumnRenamed("group_id", "before").join(groups, on="id", how="left")
        changed = named.where(~F.col("before").eqNullSafe(F.col("group_id"))).select("id", "group_id")
        append_rows(_as_rows(changed, tables=tables), table=tables.metadata, clock=clock)
        return groups.select("group_id").distinct().count()


def clear_replaced(control: Control, *, before: DataFrame, outcomes: DataFrame, tables: Tables, clock: int) -> int:
    """Remove the group from images whose bytes have changed: they have no perceptual hash yet.

    Runs Spark. If the run is interrupted, the next run does this: it recognizes such images by bytes without a hash.

    Args:
        control: A connection.
        before: The rows of this run's files before the run, as `ROWS`; persisted.
        outcomes: The outcomes of this run, rows of `OUTCOMES`; persisted.
        tables: The tables.
        clock: The clock of this run, in microseconds.

    Returns:
        The number of images that lost their group.
    """
    spark, has_hashes = before.sparkSession, control.columns(tables.perceptual_hashes) is not None
    grouped = before.where(F.col("group_id").startswith(LOOK_ALIKES))
    if not has_hashes and grouped.isEmpty():
        return 0
    now = outcomes.where(F.col("stage") == WRITTEN).select("id", F.col("sha256").alias("now"))
    found = grouped.join(now, on="id", how="inner").where(~F.col("sha256").eqNullSafe(F.col("now"))).select("id")
    if has_hashes:
        hashes = read_table(spark, tables.perceptual_hashes, columns=["sha256"])
        rows = grouped_rows(spark, tables=tables).where(F.col("group_id").startswith(LOOK_ALIKES))
        found = found.union(rows.join(hashes, on="sha256", how="left_anti").select("id")).distinct()
    found = found.persist()
    try:
        if count := found.count():
            rows = found.withColumn("group_id", F.lit(None).cast("string"))
            append_rows(_as_rows(rows, tables=tables), table=tables.metadata, clock=clock)
        return count
    finally:
        found.unpersist()


def _as_rows(groups: DataFrame, *, tables: Tables) -> DataFrame:
    return groups.select(uuid_text("id").alias(tables.columns.id), "group_id")


def _look(rows: DataFrame, *, known: DataFrame, tables: Tables, cluster: Cluster) -> DataFrame:
    """Compute the missing hashes, as `HASHES`; each distinct image is read once."""
    older = rows.where(F.col("sha256").isNotNull()).join(known, on="sha256", how="left_anti")
    older = older.groupBy("sha256").agg(F.min("id").alias("id")).select("id", "sha256")
    if count := older.count():
        log.info("hash %s images of earlier ingests", f"{count:,}")
    cores = rows.sparkSession.sparkContext.defaultParallelism
    tasks = max(min(count, cores), count // _TASK_PICTURES, 1)
    task = partial(_hash_batches, cluster=cluster, table=tables.data, columns=tables.columns)
    return map_batches(older.repartition(tasks, "id"), task=task, schema=HASHES)


def _hash_batches(
    batches: Iterable[pa.RecordBatch], *, cluster: Cluster, table: TableName, columns: Columns
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids, digests = (column.to_pylist() for column in batch.columns)
        found = asyncio.run(_hashes(ids, cluster=cluster, table=table, columns=columns))
        rows = {digest: value for digest, (is_there, value) in zip(digests, found, strict=True) if is_there}
        yield batch_of(list(rows.items()), arrow_schema(HASHES))


async def _hashes(
    ids: Sequence[bytes], *, cluster: Cluster, table: TableName, columns: Columns
) -> list[tuple[bool, int | None]]:
    """Whether each image exists, and its perceptual hash."""
    async with picture_reader(cluster, table, columns=[columns.id, columns.data]) as read:
        window = asyncio.Semaphore(_IN_FLIGHT)

        async def one(image: bytes) -> tuple[bool, int | None]:
            async with window:
                row = await read(image)
                if row is None or row[0] is None:  # `verify.py` reports it
                    return False, None
                return True, await asyncio.to_thread(picture_hash, bytes(row[0]))

        return await asyncio.gather(*map(one, ids))
