"""Versions of Spark and Python that do not fit, and Ctrl-C, which waits until Spark has started."""

import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from etl.errors import EtlError
from etl.spark_process import check_versions, interrupted_afterwards, stopping


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def other(number: int, frame: object) -> None:
    """The handler of pyspark, for example."""


def test_one_ctrl_c_waits_for_the_end_of_the_start() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupted_afterwards():
        signal.raise_signal(signal.SIGINT)
        signal.signal(signal.SIGINT, other)
        done.append("started")
    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_does_not_wait() -> None:
    with pytest.raises(KeyboardInterrupt), interrupted_afterwards():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("not ended")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("handler", [signal.SIG_IGN, other])
def test_signals_that_someone_else_handles_are_left_alone(handler: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, handler)
    with interrupted_afterwards():
        assert signal.getsignal(signal.SIGINT) is handler
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is handler


class _Session:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.sparkContext, self.asked = self, []  # type: ignore[var-annotated]

    def setLogLevel(self, level: str) -> None:
        self.asked.append(level)

    def stop(self) -> None:
        self.asked.append("stop")


def test_a_failure_after_ctrl_c_is_an_interruption() -> None:
    session: Any = _Session()
    with pytest.raises(KeyboardInterrupt), stopping(session):
        with suppress(KeyboardInterrupt):  # as in a destructor
            signal.raise_signal(signal.SIGINT)
        raise RuntimeError("a worker has ended")
    assert session.asked == ["OFF", "stop"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_failure_without_ctrl_c_stays_one() -> None:
    session: Any = _Session()
    with pytest.raises(RuntimeError, match="a worker has ended"), stopping(session):
        raise RuntimeError("a worker has ended")
    assert session.asked == ["stop"]


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
