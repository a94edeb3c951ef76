"""DataFrames that are persisted while a job runs."""

from contextlib import ExitStack

from pyspark.sql import SparkSession

from etl.frames import kept


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
