"""Conditions over the columns of metadata rows."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from etl.columns import exact_names
from etl.errors import TableError
from etl.frames import setting
from etl.splits.conditions import meeting
from tests.support.spark_rows import rows_of


def test_a_condition_has_the_names_of_the_rows_and_not_those_of_their_table(spark: SparkSession) -> None:
    table = rows_of(spark, [("a", 1), ("b", 2)], "patch STRING, target INT")
    rows = table.select(F.col("patch").alias("id"), F.col("target").alias("label"))
    with exact_names(spark):
        assert [row["id"] for row in meeting(rows, "label = 1").collect()] == ["a"]
        for where in ("target = 1", "label = 1 AND patch = 'a'"):
            with pytest.raises(TableError, match=r"over the columns id, label for --where\. Found: .*another column"):
                meeting(rows, where)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_a_condition_means_the_same_in_sessions_of_all_time_zones(spark: SparkSession, zone: str) -> None:
    rows = spark.range(24).select("id", F.timestamp_seconds(F.col("id") * 3600).alias("at"))
    with exact_names(spark), setting(spark, "spark.sql.session.timeZone", zone):
        assert [row["id"] for row in meeting(rows, "hour(at) < 2").collect()] == [0, 1]
        assert [row["id"] for row in meeting(rows, "AT >= '1970-01-01 22:00:00'").collect()] == [22, 23]
