"""Ctrl-C while Spark starts waits for it; a second one does not."""

import signal
from collections.abc import Iterator

import pytest

from etl.spark_process import interrupted_afterwards


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
