"""Values as they were known at a point in time: transforms over the values of feature views.

Values are rows of ``id, sequence, event_timestamp`` and fields. ``sequence`` is the run that they belong to, and
``event_timestamp`` that run's clock. Both order the values of a table in the same way, whatever the clocks of the
writing machines say: each run's clock is later than that of the run before.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def known_at(values: DataFrame, /, *, sequence: int | None = None) -> DataFrame:
    """The newest values of each image.

    Args:
        values: Values, several rows for an image.
        sequence: The last run that counts; None for all.

    Returns:
        One row for each image that has values, with the same columns.
    """
    counted = values if sequence is None else values.where(F.col("sequence") <= sequence)
    newest = F.max_by(F.struct(*values.columns), "sequence").alias("newest")
    return counted.groupBy("id").agg(newest).select("newest.*")


def point_in_time(
    requests: DataFrame, /, *, values: DataFrame, fields: Sequence[str], ttl: int | None = None
) -> DataFrame:
    """Add to each request the values that were known then, never later ones.

    Args:
        requests: ``id``, and ``sequence`` (values of this run or earlier ones) or ``at`` (a timestamp: values of runs
            that began then or earlier), and other columns. If it has both, ``sequence`` decides.
        values: Values, several rows for an image.
        fields: The fields to add.
        ttl: Seconds after which a value is too old: then there is none. Needs ``at``.

    Returns:
        The requests, each once, in any order, with the fields; null if no value was known.
    """
    has_sequence = "sequence" in requests.columns
    axis = F.col("sequence" if has_sequence else "event_timestamp")
    value = F.struct("event_timestamp", *fields)
    known = values.select("id", axis.alias("axis"), value.alias("_value"), F.lit(None).alias("_request"))
    asked = requests.select(
        "id",
        F.col("sequence" if has_sequence else "at").alias("axis"),
        F.lit(None).alias("_value"),
        F.struct(*requests.columns).alias("_request"),
    )
    both = known.withColumn("_is_request", F.lit(0)).unionByName(asked.withColumn("_is_request", F.lit(1)))
    until_now = Window.partitionBy("id").orderBy("axis", "_is_request").rowsBetween(Window.unboundedPreceding, 0)
    newest = both.select("_request", F.last("_value", ignorenulls=True).over(until_now).alias("_value"))
    found = newest.where(F.col("_request").isNotNull())
    if ttl is not None:
        age = F.unix_micros("_request.at") - F.unix_micros("_value.event_timestamp")
        found = found.withColumn("_value", F.when(age <= ttl * 1_000_000, F.col("_value")))
    return found.select("_request.*", *(F.col(f"_value.{name}").alias(name) for name in fields))
