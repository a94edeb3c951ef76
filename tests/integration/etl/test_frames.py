"""DataFrames that are persisted while a job runs, and joins of rows with bytes."""

from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

from etl import frames
from etl.frames import in_order, joined_by_id, kept, small_table
from tests.support.spark_rows import rows_of


def test_a_persisted_frame_of_another_one_is_not_planned_adaptively(spark: SparkSession) -> None:
    """Spark would sometimes wait for such a frame forever."""
    with ExitStack() as stack:
        first = kept(spark.range(100).groupBy("id").count(), stack=stack)
        second = kept(first.groupBy("count").count(), stack=stack)
        _, *inner = second._jdf.queryExecution().executedPlan().toString().split("InMemoryRelation")
        assert len(inner) == 2
        assert not any("AdaptiveSparkPlan" in plan for plan in inner)
        assert second.collect()[0][1] == 100
    assert spark.sparkContext._jsc.sc().conf().get("spark.locality.wait") == "0"  # such tasks could wait forever, too
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"


def test_the_driver_gets_sorted_rows_a_part_at_a_time(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_ROWS_AT_A_TIME", 10)
    rows = spark.range(100).selectExpr("id % 7 AS first", "100 - id AS second")
    wanted = sorted((row.first, row.second) for row in rows.collect())
    assert [tuple(row) for row in in_order(rows, "first", "second")] == wanted
    assert list(in_order(rows.where("false"), "first")) == []


def test_too_many_ids_are_not_sent_to_all_executors(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(spark, [(1, "a"), (2, "b"), (3, "c")], "id INT, data STRING")
    ids = rows_of(spark, [(1,), (3,)], "id INT")
    for most, is_sent in ((2, True), (1, False)):
        monkeypatch.setattr(frames, "MOST_BROADCAST", most)
        joined = joined_by_id(rows, ids, how="left_anti")
        assert [tuple(row) for row in joined.collect()] == [(2, "b")]
        assert ("ResolvedHint" in joined._jdf.queryExecution().analyzed().toString()) == is_sent


def test_a_table_without_rows_needs_no_python_workers(spark: SparkSession) -> None:
    columns: dict[str, list[object]] = {"id": [], "labels": [], "at": []}
    found = small_table(spark, columns, "id BINARY, labels ARRAY<INT>, at TIMESTAMP")
    assert found.dtypes == [("id", "binary"), ("labels", "array<int>"), ("at", "timestamp")]
    assert found.collect() == []
    assert "ExistingRDD" not in found._jdf.queryExecution().executedPlan().toString()  # Python objects
