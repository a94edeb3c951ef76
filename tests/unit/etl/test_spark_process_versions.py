"""Versions of Spark, pyspark and Python that do not fit."""

import sys

import pytest

from etl.errors import EtlError
from etl.spark_process import check_versions


@pytest.mark.parametrize(
    ("running", "installed", "python", "match"),
    [
        ("4.3.0", "4.3.1", (3, 13), None),
        ("3.5.9", "3.5.9", (3, 11), None),
        (
            "3.5.9",
            "4.3.0",
            (3, 11),
            r"Wanted Spark 4\.3\.0, the version of .*Found: Spark 3\.5\.9 in SPARK_HOME=/opt/spark",
        ),
        ("4.0.1", "4.3.0", (3, 11), r"Unset SPARK_HOME, or install 'pyspark==4\.0\.1'\."),
        ("3.5.9", "3.5.9", (3, 13), r"Wanted Python 3\.11 for Spark 3\.5\.9\. Found: Python 3\.13"),
        ("3.5.9", "4.3.0", (3, 13), r"Wanted Python 3\.11 for Spark 3\.5\.9\. Found: Python 3\.13"),
    ],
)
def test_a_spark_that_does_not_fit_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, running: str, installed: str, python: tuple[int, int], match: str | None
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    monkeypatch.setattr(sys, "version_info", (*python, 0))
    if match is None:
        check_versions(running, installed)
    else:
        with pytest.raises(EtlError, match=match):
            check_versions(running, installed)
