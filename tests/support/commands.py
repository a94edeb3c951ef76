"""Commands of jobs, run in the process and the Spark session of the tests."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def in_living_session() -> Iterator[None]:
    """Commands that run inside leave Spark's session, and where logs go, as they were."""
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
