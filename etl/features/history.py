"""Values as they were known at a point in time: transforms over values of feature views.

Values are rows of ``id, sequence, event_timestamp`` and fields. ``sequence`` is the run that they belong to, and
``event_timestamp`` that run's clock. Both order the values of a table in the same way, whatever the clocks of the
writing machines say: each run's clock is later than that of the run before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from etl.columns import column


def newest_of_images(values: DataFrame, /, *, of: str | None = None) -> DataFrame:
    """The newest values of each image, and with ``of`` of each value of this column: a row with the same columns."""
    of_image = F.max_by(F.struct(*values.columns), "sequence").alias("newest")
    return values.groupBy("id", *([of] if of else [])).agg(of_image).select("newest.*")


@dataclass(frozen=True, slots=True)
class KnownValues:
    """The values of a view, several rows for an image, and the fields to take from it."""

    values: DataFrame
    fields: Sequence[str]


def points_in_time(requests: DataFrame, /, *, views: Sequence[KnownValues]) -> DataFrame:
    """Add to each request the values of several views, with different fields, that were known then, never later ones;
    null if none was. Requests have ``id``, and ``sequence`` (values of this run or earlier ones) or ``at`` (a
    timestamp: values of runs that began then or earlier), and other columns; if they have both, ``sequence`` decides.
    The result has each request once, in any order.
    """
    has_sequence = "sequence" in requests.columns
    axis = F.col("sequence" if has_sequence else "event_timestamp")
    together = requests.select(
        "id",
        F.col("sequence" if has_sequence else "at").alias("axis"),
        F.lit(1).alias("_is_request"),
        F.struct(*map(column, requests.columns)).alias("_request"),
    )
    for number, one in enumerate(views):
        value = F.struct(*one.fields).alias(f"_value{number}")
        known = one.values.select("id", axis.alias("axis"), F.lit(0).alias("_is_request"), value)
        together = together.unionByName(known, allowMissingColumns=True)
    until_now = Window.partitionBy("id").orderBy("axis", "_is_request").rowsBetween(Window.unboundedPreceding, 0)
    names = [f"_value{number}" for number in range(len(views))]
    newest = [F.last(name, ignorenulls=True).over(until_now).alias(name) for name in names]
    found = together.select("_request", *newest).where(F.col("_request").isNotNull())
    fields = [F.col(f"{name}.{field}") for name, one in zip(names, views, strict=True) for field in one.fields]
    return found.select("_request.*", *fields)


def values_of_bytes(values: DataFrame, /, *, fields: Sequence[str]) -> DataFrame:
    """The values of an image's bytes, a row for each ``id, sha256`` of ``values``: the newest fields, and the first
    ``created_timestamp`` of a row with a value, since which a value of these bytes is there.
    """
    newest = F.max_by(F.struct(*fields), "sequence").alias("newest")
    is_value = F.coalesce(*(F.col(name).cast("string") for name in fields)).isNotNull()  # none if it has failed
    first = F.min(F.when(is_value, F.col("created_timestamp"))).alias("created_timestamp")
    return values.groupBy("id", "sha256").agg(newest, first).select("id", "sha256", "created_timestamp", "newest.*")
