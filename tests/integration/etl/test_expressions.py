"""Expressions of users, as Spark analyzes them."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from etl.expressions import is_repeatable


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("date('2026-01-01') > at", True),
        ("to_date(text) > at", True),  # a text of the row never means today
        ("text = 'today'", True),
        ("at > 'today'", False),
        ("date('now') > at", False),
        ("cast(concat('to', 'day') as timestamp) > at", False),
        ("to_date('tomorrow ') > at", False),
        ("try_to_timestamp('yesterday') > at", False),
        ("current_date() > at", False),
        ("concat(version(), text)", False),
    ],
)
def test_expressions_that_mean_another_time_each_day_are_not_repeatable(
    spark: SparkSession, expression: str, wanted: bool
) -> None:
    rows = spark.createDataFrame([], "text STRING, at TIMESTAMP").select(F.expr(expression))
    assert is_repeatable(rows._jdf.queryExecution().analyzed().projectList().apply(0)) == wanted
