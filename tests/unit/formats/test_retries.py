"""Failed calls are retried until the deadline."""

import time

import pytest

from formats.retries import Retries


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.3])
def test_the_last_attempt_is_at_the_end_of_the_time(seconds: float) -> None:
    attempts: list[float] = []

    def fail() -> None:
        attempts.append(time.monotonic())
        raise ValueError("again")

    with pytest.raises(ValueError, match="again"):
        Retries(seconds=seconds).run(fail, ValueError)
    assert attempts[-1] - attempts[0] >= seconds
    assert (len(attempts) == 1) == (seconds == 0)


def test_it_is_given_up_at_once_when_it_is_stopped() -> None:
    attempts = Retries(least=9, is_stopped=lambda: True).begin()
    assert not attempts.again()
    assert attempts.count == 1
