"""Listing one tree, as an ingest does it; a process of its own, with the driver memory of Spark's configuration.

    python -m benchmarks.ingest.listing ROOT WARM_UP_ROOT

The last line is JSON: {"seconds", "files"}, without the start of Spark and the listing of the small second tree.
"""

import json
import os
import sys
import time

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from benchmarks.harness.picture_rows import KEYSPACE, session
from etl.ingest import count_entries
from etl.sources.trees import list_tree


def count_files(spark: SparkSession, root: str) -> int:
    """List a tree of class folders, keep the listing as an ingest does, and count what is in it."""
    listing = list_tree(spark, os.path.realpath(root), dataset=KEYSPACE, splits=[b""], or_split=b"", by_folder=True)
    entries = listing.entries.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        return sum(row.files for row in entries.transform(count_entries).collect())
    finally:
        entries.unpersist()


def main() -> int:
    """List both."""
    root, small = sys.argv[1:]
    spark = session("benchmark of listing", master="local[2]")
    count_files(spark, small)
    started = time.monotonic()
    files = count_files(spark, root)
    print(json.dumps({"seconds": time.monotonic() - started, "files": files}), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
