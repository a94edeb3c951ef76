"""Runs commands of jobs in the process and the Spark session of the tests."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def in_living_session() -> Iterator[None]:
    """Keep Spark's session after commands that run inside."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSession, "stop", lambda session: None)
        yield
