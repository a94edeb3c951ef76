"""`split.py` with every pair of its options at least once, compared with a plain Python model of its promises."""

import pytest
from pyspark.sql import SparkSession

from tests.support.split_pairs import Suite, cases

CASES = cases()


@pytest.fixture(scope="module")
def suite(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite.make(spark, tmp_path_factory.mktemp("pairs"))


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_split_keeps_the_promises_of_all_its_options(suite: Suite, number: int) -> None:
    assert suite.faults(CASES[number], number=number) == [], CASES[number]
