"""Positions: Spark partitions rows as numpy calculates."""

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from etl.splits.positions import partition_keys
from formats.hashing import murmur3
from tests.support.spark_rows import rows_of


def test_partition_numbers_agree_with_spark(spark: SparkSession) -> None:
    numbers = np.concatenate([np.arange(-500, 500), [-(1 << 31), (1 << 31) - 1]]).astype(np.int32)
    frame = rows_of(spark, [(int(number),) for number in numbers], "number INT")
    found = {row["number"]: row["hash"] for row in frame.select("number", F.hash("number").alias("hash")).collect()}
    assert murmur3(numbers).tolist() == [found[int(number)] for number in numbers]
    keys = partition_keys(37)
    assert (murmur3(np.array(keys, dtype=np.int32)) % 37).tolist() == list(range(37))
