"""Leaks between splits as DataFrame transforms: the same image, or images of one group, in two splits."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.splits.group_rows import has_group

# Columns of which no value should be in two splits.
WATCHED = {"exact duplicates": "sha256", "groups of the source": "group_id"}


def count_leaks(assigned: DataFrame, /, *, column: str) -> DataFrame:
    """Make one row: ``known`` images with a value, ``leaks`` values in two or more splits, and ``images`` with these.
    ``assigned`` has ``split`` and the column. A null, empty or blank value is never shared.
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
