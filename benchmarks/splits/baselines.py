"""The Spark baselines of a split: a copy of the same rows, and the usual way to put them in random order."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.splits.caches import Cache


def copy(spark: SparkSession, cache: Cache, out: Path) -> None:
    """Copy ids and labels."""
    _write(_rows(spark, cache), out)


def range_sort(spark: SparkSession, cache: Cache, out: Path, *, files: int) -> None:
    """Sort ids and labels by a hash of the id into this many files."""
    hashed = _rows(spark, cache).withColumn("hash", F.xxhash64("id"))
    _write(hashed.repartitionByRange(files, "hash").sortWithinPartitions("hash").select("id", "label"), out)


def _rows(spark: SparkSession, cache: Cache) -> DataFrame:
    return spark.read.parquet(f"file://{cache.folder}/rows").select("id", "label")


def _write(rows: DataFrame, out: Path) -> None:
    rows.write.option("compression", "zstd").parquet(f"file://{out}")
