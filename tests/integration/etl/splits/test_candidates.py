"""The images with the highest values of each class, from literal rows."""

import pytest
from pyspark.sql import SparkSession

from etl.splits.candidates import take_top
from etl.splits.plan import Top

ROWS = [
    ("a", 0, 1.0), ("b", 0, 5.0), ("c", 0, 5.0), ("d", 0, 3.0), ("e", 0, float("nan")),
    ("f", 1, 9.0), ("g", 1, None), ("h", None, 2.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("top", "wanted"),
    [
        ("value=1", "bfh"),  # of equal values, the smallest id
        ("value=40%", "bcfh"),  # 2 of 5, 0.8 of 2 rounded up, 0.4 of 1 rounded up
        ("value=40.1%", "bcdfh"),
        ("value=100%", "abcdfh"),  # never a row without a value
    ],
)
@pytest.mark.parametrize("partitions", [1, 3])
def test_the_highest_values_of_each_class_are_taken(
    spark: SparkSession, top: str, wanted: str, partitions: int
) -> None:
    rows = spark.createDataFrame(ROWS, "id STRING, label INT, value DOUBLE").repartition(partitions)
    found = rows.transform(take_top, top=Top.parse(top))
    assert found.columns == rows.columns
    assert "".join(sorted(row.id for row in found.collect())) == wanted
