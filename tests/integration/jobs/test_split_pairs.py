"""Splits with many options at once, compared with a plain Python model of their promises.

`tests/e2e/test_split_pairs.py` makes all splits of this kind. Here are those with the most options.
"""

import pytest
from pyspark.sql import SparkSession

from tests.support.split_pairs import Suite, cases

MOST = 2
WRITTEN = [case for case in cases() if "explain" not in case and not {"extend", "balance"} <= case.keys()]
CASES = sorted(WRITTEN, key=len, reverse=True)[:MOST]


@pytest.fixture(scope="module")
def suite(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite.make(spark, tmp_path_factory.mktemp("pairs"))


@pytest.mark.parametrize("number", range(MOST))
def test_a_split_of_many_options_keeps_the_promises_of_each(suite: Suite, number: int) -> None:
    assert suite.faults(CASES[number], number=number) == [], CASES[number]
