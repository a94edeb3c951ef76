"""Unit tests have no services: the fixtures of services are unknown here, and whoever asks for Spark fails."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_jvm() -> Iterator[None]:
    """Let nothing use a Spark session, or start the JVM of one."""
    with pytest.MonkeyPatch.context() as patched:
        if "pyspark" in sys.modules:
            patched.setattr(sys.modules["pyspark"].SparkContext, "_ensure_initialized", _refuse)
        yield


def _refuse(*_: object, **__: object) -> None:
    raise AssertionError("a unit test asked for Spark: it belongs in tests/integration")
