"""Unit tests have no services. Their fixtures do not exist here, and a test that uses Spark fails."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_jvm() -> Iterator[None]:
    """Fail any use of a Spark session, or the start of its JVM."""
    from pyspark import SparkContext

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SparkContext, "_ensure_initialized", _refuse)
        yield


def _refuse(*_: object, **__: object) -> None:
    raise AssertionError("a unit test asked for Spark: it belongs in tests/integration")
