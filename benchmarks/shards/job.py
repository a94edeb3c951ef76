"""Runs our job twice in one Spark session, started as spark-submit does: a cold run, as users have it, and a warm one.

Prints one JSON object: the images, the seconds of both runs and the fingerprint of the shards, which must be the same.
"""

import json
import sys

from pyspark.sql import SparkSession

from etl.secrets import HIDDEN
from etl.shards.sharding import run
from jobs.shard import parse_args


def main(argv: list[str]) -> int:
    """Run the job with these arguments: ``TREE --out ADDRESS ...``."""
    plan, _ = parse_args([*argv, "--overwrite"])
    spark = SparkSession.builder.appName("benchmark of shards").config(map=HIDDEN).getOrCreate()
    cold = run(spark, plan=plan)
    warm = run(spark, plan=plan)
    spark.stop()
    if cold.fingerprint != warm.fingerprint:
        raise RuntimeError(f"Wanted the same shards twice. Found: {cold.fingerprint} and {warm.fingerprint}")
    print(json.dumps({"images": warm.images, "cold": cold.seconds, "seconds": warm.seconds}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
