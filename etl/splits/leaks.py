"""What lies in two splits at once, as DataFrame transforms: the same picture, look-alikes, or members of a group."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.splits.group_rows import has_group

WATCHED = {"exact duplicates": "sha256", "look-alikes": "group_id"}
"""Columns of which no value should lie in two splits."""


def count_leaks(assigned: DataFrame, /, *, column: str) -> DataFrame:
    """One row: ``known`` images with a value, ``leaks`` values that lie in two splits or more, ``images`` with these.

    ``assigned``: ``split`` and the column; images whose value is null, empty or blank share it with none.
    """
    by_value = (
        assigned.where(has_group(assigned, column))
        .groupBy(column)
        .agg(F.min("split").alias("least"), F.max("split").alias("most"), F.count("*").alias("rows"))
    )
    is_leak = F.col("least") != F.col("most")
    return by_value.agg(
        F.coalesce(F.sum("rows"), F.lit(0)).alias("known"),
        F.count_if(is_leak).alias("leaks"),
        F.coalesce(F.sum(F.when(is_leak, F.col("rows"))), F.lit(0)).alias("images"),
    )
