"""The Spark baselines of a split: a copy of the same rows, and the usual ways to order them, all or by class."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from benchmarks.splits.caches import Cache


def copy(spark: SparkSession, cache: Cache, out: Path) -> None:
    """Copy ids and labels."""
    _write(_rows(spark, cache), out)


def range_sort(spark: SparkSession, cache: Cache, out: Path, *, files: int) -> None:
    """Sort ids and labels by a hash of the id into this many files."""
    hashed = _rows(spark, cache).withColumn("hash", F.xxhash64("id"))
    _write(hashed.repartitionByRange(files, "hash").sortWithinPartitions("hash").select("id", "label"), out)


def sorted_top(rows: DataFrame, *, percent: int) -> DataFrame:
    """The rows of each class with the highest values, by a window over the whole class: ``id, label, value``."""
    of_class = Window.partitionBy("label")
    place = F.row_number().over(of_class.orderBy(F.desc_nulls_last("value"), "id"))
    ranked = rows.withColumn("place", place).withColumn("rows", F.count("*").over(of_class))
    is_taken = (100 * (F.col("place") - 1) < percent * F.col("rows")) & F.col("value").isNotNull()
    return ranked.where(is_taken).select("id", "label", "value")


def _rows(spark: SparkSession, cache: Cache) -> DataFrame:
    return spark.read.parquet(f"file://{cache.folder}/rows").select("id", "label")


def _write(rows: DataFrame, out: Path) -> None:
    rows.write.option("compression", "zstd").parquet(f"file://{out}")
