"""Unit tests have no services: the fixtures of services are unknown here, and a test that asks for Spark fails."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_jvm() -> Iterator[None]:
    """Let nothing use a Spark session, or start the JVM of one."""
    from pyspark import SparkContext

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SparkContext, "_ensure_initialized", _refuse)
        yield


def _refuse(*_: object, **__: object) -> None:
    raise AssertionError("a unit test asked for Spark: it belongs in tests/integration")
