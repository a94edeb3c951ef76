"""Passes many bytes through one executor worker, with a sink instead of the database, in a separate process.

The images of a folder are listed repeatedly under new ids, up to this many bytes. One task reads and checks them as an
ingest does; the sink holds each as long as a busy server would. The answer: {"started", "ended", "pictures", "bytes"},
with times of ``time.monotonic``.
"""

import asyncio
import os
import sys
import time
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness.picture_rows import LABELS, list_paths, session
from etl.ingest.writing.image_writer import Nowhere, WriteOrder
from etl.ingest.writing.preparation import Preparation
from etl.ingest.writing.tasks import write

# Executors cannot import the benchmarks, so tasks carry what they need of this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

HELD_SECONDS = 0.1  # long enough to fill the task's window of images in flight


class Forget(Nowhere):
    """Accepts every image, holds it for a while and drops it."""

    async def accept(self, entry: Any, picture: Any, label: int | None) -> None:
        """Hold an image for a while."""
        await asyncio.sleep(HELD_SECONDS)

    async def reject(self, entry: Any, *, stage: str, reason: str) -> None:
        """Fail: nothing must be rejected."""
        raise RuntimeError(f"Wanted every picture. Found: {entry.name} rejected: {reason}")


def entries_of(spark: SparkSession, folder: str, *, pictures: int) -> DataFrame:
    """Rows of `etl.sources.entries.ENTRIES` with distinct ids that share the files of a folder."""
    paths = list_paths(folder)
    rows = [(number, path, os.path.getsize(os.path.join(folder, path))) for number, path in enumerate(paths)]
    files = F.broadcast(spark.createDataFrame(rows, "file BIGINT, name STRING, bytes BIGINT"))
    numbers = spark.range(pictures).withColumn("file", F.col("id") % len(paths))
    nothing = {
        **{"group_id": "string", "offset": "bigint", "label_place": "binary", "label_offset": "bigint"},
        **{"label_bytes": "bigint", "reason": "string"},
    }
    return numbers.join(files, on="file", how="inner").select(
        F.unhex(F.md5(F.col("id").cast("string"))).alias("id"),
        F.lit(b"").alias("or_split"),
        F.concat(F.col("id").cast("string"), F.lit("/"), F.col("name")).cast("binary").alias("path"),
        F.substring_index("name", "/", 1).alias("or_label"),
        F.concat(F.lit(f"{folder}/"), F.col("name")).cast("binary").alias("place"),
        F.col("bytes"),
        *(F.lit(None).cast(kind).alias(name) for name, kind in nothing.items()),
    )


def pass_through(folder: str, size: int) -> dict[str, Any]:
    """Pass the bytes through, after a few to start the worker and its imports."""
    spark = session("benchmark of memory", master="local[1]")
    order = WriteOrder(target=Forget(), preparation=Preparation(), labels=LABELS)
    paths = list_paths(folder)
    each = sum(os.path.getsize(os.path.join(folder, path)) for path in paths) / len(paths)
    for pictures in (200, round(size / each)):
        started = time.monotonic()
        outcomes = write(entries_of(spark, folder, pictures=pictures), order=order, tasks=1, access="random")
        done = outcomes.agg(F.count("sha256").alias("pictures"), F.sum("bytes").alias("bytes")).collect()[0]
        ended = time.monotonic()
    spark.stop()
    return {"started": started, "ended": ended, **done.asDict()}
