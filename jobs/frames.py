"""What jobs keep while they run: DataFrames that are used several times, and settings of Spark's for a block."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_PICTURES_TOGETHER = 32
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
