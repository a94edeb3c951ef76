"""The images with the highest values of each class, from literal rows."""

import itertools
import math
from collections.abc import Iterator
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from etl.splits import top as module
from etl.splits.plan import Top
from etl.splits.top import take_top

ROWS = [
    ("a", 0, 1.0), ("b", 0, 5.0), ("c", 0, 5.0), ("d", 0, 3.0), ("e", 0, float("nan")),
    ("f", 1, 9.0), ("g", 1, None), ("h", None, 2.0),
]  # fmt: skip
INFINITE = float("inf")
# By type: numbers that are hard to negate or to tell apart.
NUMBERS: dict[str, list[Any]] = {
    "DOUBLE": [0.0, -0.0, INFINITE, -INFINITE, float("nan"), None, 0.1, 1e308, -5e-324],
    "FLOAT": [0.1, 0.3, -0.0, 0.0, None],
    "BIGINT": [-(1 << 63), (1 << 63) - 1, 0, 1, 1 << 53, (1 << 53) + 1, None],
    "TINYINT": [-128, 127, 0, None],
    "DECIMAL(38,2)": [Decimal("9" * 36 + ".99"), Decimal("9" * 36 + ".98"), Decimal(0), None],
}


@pytest.mark.parametrize(
    ("top", "wanted"),
    [
        ("value=1", "bfh"),  # of equal values, the smallest id
        ("value=40%", "bcfh"),  # 2 of 5, 0.8 of 2 rounded up, 0.4 of 1 rounded up
        ("value=40.1%", "bcdfh"),
        ("value=100%", "abcdfh"),  # never a row without a value
    ],
)
@pytest.mark.parametrize("most_sorted", [0, 3, 100])
def test_the_highest_values_of_each_class_are_taken(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, top: str, wanted: str, most_sorted: int
) -> None:
    monkeypatch.setattr(module, "MOST_SORTED", most_sorted)
    monkeypatch.setattr(module, "_ROUNDS", 1)
    rows = spark.createDataFrame(ROWS, "id STRING, label INT, value DOUBLE").repartition(3)
    found = take_top(rows, top=Top.parse(top))
    assert found.columns == rows.columns
    assert "".join(sorted(row.id for row in found.collect())) == wanted


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("top", ["value=10%", "value=7"])
def test_the_highest_values_of_large_classes_are_those_that_sorting_gives(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str, top: str
) -> None:
    # so narrow around the last image that it is often not between the bounds
    for name, value in {"MOST_SORTED": 20, "_SAMPLED": 20, "_DEVIATIONS": 0, "_ROWS_AROUND": 1}.items():
        monkeypatch.setattr(module, name, value)
    values, labels = itertools.cycle(NUMBERS[kind]), itertools.cycle([None, None, None, 0, 1, 0, None])
    plain = [(bytes([n % 251, n // 251]), next(labels), next(values)) for n in range(500)]
    plain += [(bytes([n, 9]), 2, plain[n][2]) for n in range(15)]  # a small class
    rows = spark.createDataFrame(plain, f"id BINARY, label INT, value {kind}").repartition(3)
    found = [bytes(row.id) for row in take_top(rows, top=Top.parse(top)).collect()]
    assert sorted(found) == sorted(highest(plain, top=Top.parse(top)))


def highest(rows: list[tuple[bytes, int | None, Any]], *, top: Top) -> Iterator[bytes]:
    """The ids that are taken, by sorting."""
    for label in {label for _, label, _ in rows}:
        values = sorted((row_id, value) for row_id, own, value in rows if own == label)
        best = sorted(
            (row for row in values if row[1] is not None and row[1] == row[1]), key=itemgetter(1), reverse=True
        )
        taken = top.count if top.share is None else math.ceil(len(values) * top.share)
        yield from (row_id for row_id, _ in best[:taken])
