"""DataFrames that are persisted while a job runs, and Spark settings that hold for a block."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pandas as pd
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_PICTURES_TOGETHER = 32
_ROWS_AT_A_TIME = 100_000
_ARROW = "spark.sql.execution.arrow.pyspark.enabled"
_SIDE_BY_SIDE = "spark.sql.maxConcurrentOutputFileWriters"
_ADAPTIVE = "spark.sql.adaptive.enabled"

MOST_BROADCAST = 2_000_000
"""The most ids to send to all executors. With 1 GB for the driver, Spark's default, 4 million of 16 bytes worked, and 8
million did not."""


def persisted(frame: DataFrame, level: StorageLevel = StorageLevel.MEMORY_AND_DISK) -> DataFrame:
    """Persist a DataFrame, without adaptive execution of its plan."""
    start_anywhere(frame.sparkSession)
    # With adaptive execution, persisted DataFrames that depend on others hung in local sessions (Spark 3.5 and 4.3).
    # `start_anywhere` may prevent that alone; this was not tried.
    with setting(frame.sparkSession, _ADAPTIVE, "false"):  # the plan is made now
        return frame.persist(level)


def start_anywhere(spark: SparkSession) -> None:
    """In a local session, let tasks start at once that prefer some host, such as that of a Cassandra node."""
    # A local session looks for tasks to start only when one ends or new ones come. Tasks that still wait for the host
    # that they prefer (for 3 s) when the last other one ends then wait forever. Clusters look every second.
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        context._jsc.sc().conf().set("spark.locality.wait", "0")


def kept(frame: DataFrame, *, stack: ExitStack) -> DataFrame:
    """Persist a DataFrame until the stack is closed, as `persisted`."""
    frame = persisted(frame)
    stack.callback(frame.unpersist)
    return frame


def joined_by_id(rows: DataFrame, ids: DataFrame, *, how: str) -> DataFrame:
    """Join rows that contain bytes with other rows by ``id``. The bytes are not shuffled unless there are too many ids
    to send them to all executors. Counts ids, which is fast if they are persisted.
    """
    is_small = ids.limit(MOST_BROADCAST + 1).count() <= MOST_BROADCAST
    return rows.join(F.broadcast(ids) if is_small else ids, on="id", how=how)


def in_order(rows: DataFrame, *by: str) -> Iterator[Row]:
    """The rows sorted by columns, for the driver, which has some 100,000 of them at a time. Counts them first."""
    parts = -(-rows.count() // _ROWS_AT_A_TIME)
    ordered = rows.repartitionByRange(max(1, parts), *by).sortWithinPartitions(*by).rdd
    for part in range(ordered.getNumPartitions()):
        # `toLocalIterator` keeps all that it has passed on in the memory of Spark's driver (Spark 4.3).
        yield from rows.sparkSession.sparkContext.runJob(ordered, list, [part])


@contextmanager
def pictures_in_rows(spark: SparkSession) -> Iterator[None]:
    """Send only a few rows to Python at a time, because each of them contains an image."""
    with setting(spark, _BATCH_ROWS, str(_PICTURES_TOGETHER)):
        yield


@contextmanager
def setting(spark: SparkSession, name: str, value: str | None) -> Iterator[None]:
    """Change a Spark setting for a block; None leaves it as it is."""
    before = spark.conf.get(name, None)
    if value is not None:
        spark.conf.set(name, value)
    try:
        yield
    finally:
        if value is not None:
            spark.conf.unset(name) if before is None else spark.conf.set(name, before)


@contextmanager
def files_side_by_side(spark: SparkSession, files: int) -> Iterator[None]:
    """Let a task write to up to ``files`` folders at once, so that its rows need not be sorted by folder."""
    with setting(spark, _SIDE_BY_SIDE, str(files)):
        yield


def small_table(spark: SparkSession, columns: Mapping[str, Sequence[Any]], schema: str) -> DataFrame:
    """Make a DataFrame from columns on the driver, in the order of the schema."""
    # Sent as Arrow: rows would need a different kind of Python worker.
    return from_pandas(
        spark, pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()}), schema
    )


def from_pandas(spark: SparkSession, frame: pd.DataFrame, schema: str) -> DataFrame:
    """Make a DataFrame from a pandas one through Arrow. Otherwise each row would become several Python objects."""
    if frame.empty:  # here Spark does not use Arrow, and starts other Python workers, which takes a second
        return spark.range(0).select(F.from_json(F.lit(None).cast("string"), schema).alias("row")).select("row.*")
    with setting(spark, _ARROW, "true"):
        return spark.createDataFrame(frame, schema)


def fetched(frame: DataFrame) -> pd.DataFrame:
    """Collect a small DataFrame as Arrow, without a Python object for each value."""
    with setting(frame.sparkSession, _ARROW, "true"):
        return frame.toPandas()
