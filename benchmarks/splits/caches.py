"""Synthetic metadata for the benchmark of splits, made by Spark and the same each time.

Each row is computed from its number: 16 random bytes as id, a class with the requested probability, a group.
"""

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness.hashes import hash_digits
from etl.splits.metadata import sums
from etl.splits.positions import added_up
from formats.origin import created
from formats.splits.fingerprint import rows_fingerprint
from schemas import Columns, SplitFile
from schemas.cache import NAME, CacheManifest

CLASSES = 1_000
ROWS_A_FILE = 1_000_000
_ID, _LABEL, _GROUP, _ORDER = ((1, 2), 3, 4, 5)
"""Seeds of the hashes that a row is made of."""


@dataclass(frozen=True)
class Cache:
    """A metadata cache on disk."""

    folder: Path
    rows: int

    @property
    def files(self) -> list[Path]:
        """Its Parquet files."""
        return sorted((self.folder / "rows").glob("*.parquet"))


def class_column(chance: Column, *, heavy: float = 0.0) -> Column:
    """A Zipf class number from a chance in (0, 1]: sizes 1, 1/2, 1/3, ...; or class 0 takes the share ``heavy`` first.

    The sum 1 + 1/2 + ... + 1/k is about ln(k + 1/2) plus Euler's constant (2 % off at k = 1), which can be inverted.
    """
    classes = CLASSES - (heavy > 0)
    whole = math.log(classes + 0.5) + np.euler_gamma
    zipf = F.greatest(F.ceil(F.exp((chance - heavy) * (whole / (1 - heavy)) - np.euler_gamma) - 0.5), F.lit(1))
    number = F.least(zipf, F.lit(classes)) - 1
    return (F.when(chance <= heavy, F.lit(0)).otherwise(number + 1) if heavy else number).cast("int")


def metadata(spark: SparkSession, *, rows: int, tasks: int, heavy: float = 0.0, groups: int = 0) -> DataFrame:
    """Rows of ``id, label`` and, with ``groups``, ``group_id``; all groups have about the same size."""
    number = F.col("number")

    def hashed(seed: int) -> Column:
        return F.xxhash64(F.lit(seed).cast("long"), number)

    chance = (F.shiftrightunsigned(hashed(_LABEL), 11) + 1) / float(1 << 53)
    columns = [
        F.unhex(F.concat(*(hash_digits(F.lit(seed).cast("long"), number) for seed in _ID))).alias("id"),
        class_column(chance, heavy=heavy).alias("label"),
    ]
    if groups:
        columns.append(F.concat(F.lit("g"), F.pmod(hashed(_GROUP), F.lit(groups)).cast("string")).alias("group_id"))
    return spark.range(0, rows, 1, tasks).withColumnRenamed("id", "number").select(*columns)


def plant(
    spark: SparkSession,
    folder: Path,
    *,
    rows: int,
    heavy: float = 0.0,
    groups: int = 0,
    files: int | None = None,
    is_shuffled: bool = False,
) -> Cache:
    """Write a metadata cache; see `metadata`. ``is_shuffled`` rows are in another order."""
    files = files or -(-rows // ROWS_A_FILE)
    frame = metadata(spark, rows=rows, tasks=files, heavy=heavy, groups=groups)
    if is_shuffled:
        order = F.xxhash64(F.lit(_ORDER).cast("long"), "id")
        frame = frame.repartitionByRange(files, order).sortWithinPartitions(order)
    aside, place = folder / "aside", folder / "rows"
    frame.write.option("compression", "zstd").parquet(f"file://{aside}")
    place.mkdir()
    for number, part in enumerate(sorted(aside.glob("part-*.parquet"))):
        part.rename(place / f"{number:05}.parquet")
    shutil.rmtree(aside)
    cache = Cache(folder, rows)
    found = [SplitFile(f"rows/{file.name}", pq.read_metadata(file).num_rows) for file in cache.files]
    if sum(file.rows for file in found) != rows:
        raise RuntimeError(f"Wanted {rows:,} rows in {folder}. Found: {sum(file.rows for file in found):,}")
    (folder / NAME).write_text(_manifest(spark, cache, tuple(found)).to_json(), encoding="utf-8")
    return cache


def _manifest(spark: SparkSession, cache: Cache, files: tuple[SplitFile, ...]) -> CacheManifest:
    found = spark.read.parquet(f"file://{cache.folder}/rows").agg(*sums()).collect()[0].asDict()
    return CacheManifest(
        data_table="bench.data",
        metadata_table="bench.metadata",
        columns=Columns(),
        label_type="int",
        class_names={number: f"class {number}" for number in range(CLASSES)},
        rows=cache.rows,
        fingerprint=rows_fingerprint(rows=cache.rows, sums=added_up([found])),
        files=files,
        created=created(),
    )
