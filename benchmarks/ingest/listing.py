"""Lists one tree as an ingest does, in a separate process with the driver memory of Spark's configuration."""

import os
import time

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from benchmarks.harness.picture_rows import KEYSPACE, session
from etl.ingest.listed_images import count_entries
from etl.sources.plan import SourcePlan
from etl.sources.trees import list_tree


def count_files(spark: SparkSession, root: str) -> int:
    """List a tree of class folders, keep the listing as an ingest does, and count its entries."""
    plan = SourcePlan(address=os.path.realpath(root))
    listing = list_tree(spark, plan.base, plan=plan, dataset=KEYSPACE)
    entries = listing.entries.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        return sum(row.files for row in entries.transform(count_entries).collect())
    finally:
        entries.unpersist()


def list_both(root: str, small: str) -> dict[str, float]:
    """Seconds and files of a tree, without the start of Spark and after a listing of a small tree."""
    spark = session("benchmark of listing", master="local[2]")
    count_files(spark, small)
    started = time.monotonic()
    files = count_files(spark, root)
    answer = {"seconds": time.monotonic() - started, "files": files}
    spark.stop()
    return answer
