"""Runs commands of jobs in the process and the Spark session of the tests."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def in_living_session() -> Iterator[None]:
    """Restore Spark's session and the logging after commands that run inside."""
    from pyspark.sql import SparkSession

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSession, "stop", lambda session: None)
        try:
            yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
