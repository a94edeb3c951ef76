"""What jobs keep while they run: DataFrames that are used several times, and settings of Spark's for a block."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pandas as pd
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_PICTURES_TOGETHER = 32
_ARROW = "spark.sql.execution.arrow.pyspark.enabled"
_SIDE_BY_SIDE = "spark.sql.maxConcurrentOutputFileWriters"
_ADAPTIVE_INSIDE = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


def kept(frame: DataFrame, *, stack: ExitStack) -> DataFrame:
    """A DataFrame that is computed once, until the stack is closed; inside a block of `plain_inside`."""
    frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
    stack.callback(frame.unpersist)
    return frame


@contextmanager
def plain_inside(spark: SparkSession) -> Iterator[None]:
    """Let kept DataFrames have plans that are not adaptive.

    With adaptive ones, a kept DataFrame that stands on another can wait for it for ever (seen with Spark 3.5.9).
    """
    with _setting(spark, _ADAPTIVE_INSIDE, "false"):
        yield


@contextmanager
def pictures_in_rows(spark: SparkSession) -> Iterator[None]:
    """Let few rows travel to Python at a time, where each of them has a picture."""
    with _setting(spark, _BATCH_ROWS, str(_PICTURES_TOGETHER)):
        yield


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """A setting of Spark's for a block."""
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


@contextmanager
def files_side_by_side(spark: SparkSession, files: int) -> Iterator[None]:
    """Let a task write up to so many folders' files at once, so that its rows need not be sorted by folder."""
    with _setting(spark, _SIDE_BY_SIDE, str(files)):
        yield


def small_table(spark: SparkSession, columns: Mapping[str, Sequence[Any]], schema: str) -> DataFrame:
    """A DataFrame of what the driver knows, in the schema's order.

    It travels as Arrow: rows would need Python workers of a kind of their own.
    """
    return from_pandas(
        spark, pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()}), schema
    )


def from_pandas(spark: SparkSession, frame: pd.DataFrame, schema: str) -> DataFrame:
    """A DataFrame of pandas' columns, as Arrow: else each row would become several objects of Python's."""
    with _setting(spark, _ARROW, "true"):
        return spark.createDataFrame(frame, schema)


def fetched(frame: DataFrame) -> pd.DataFrame:
    """The rows of a small DataFrame, as Arrow: columns of numbers, without a Python object for each."""
    with _setting(frame.sparkSession, _ARROW, "true"):
        return frame.toPandas()
