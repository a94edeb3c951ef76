"""Spark DataFrames of literal rows."""

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from etl.frames import small_table


def rows_of(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str) -> DataFrame:
    """A DataFrame of these rows, in a schema of plain types: ``"id BINARY, label INT"``.

    Rows are sent once, as Arrow. Spark's own way sends them through Python workers at each action.
    """
    rows, names = list(rows), [column.split()[0] for column in schema.split(",")]
    return small_table(spark, {name: [row[number] for row in rows] for number, name in enumerate(names)}, schema)
