"""Retry policies."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_FIRST_PAUSE = 0.1  # seconds
_LONGEST_PAUSE = 3.0  # so that a store that is back is soon noticed
_WAKE_SECONDS = 0.25  # how soon a pause ends once `is_stopped` is true

Found = TypeVar("Found")


def pause(
    failures: int,
    /,
    *,
    longest: float = _LONGEST_PAUSE,
    uniform: Callable[[float, float], float] = random.uniform,
) -> float:
    """The pause before the next attempt, in seconds: up to twice as long after each failure."""
    # Random, so that clients that failed together do not retry together.
    return float(min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), longest) * uniform(0.5, 1.0))


@dataclass(frozen=True, slots=True)
class Retries:
    """A retry policy: at least ``least`` attempts in all, and further ones until ``seconds`` have passed."""

    least: int = 1
    seconds: float = 0.0
    is_stopped: Callable[[], bool] = lambda: False  # then there are no further attempts
    note: Callable[[], None] = lambda: None  # called before each retry
    clock: Callable[[], float] = time.monotonic  # seconds
    sleep: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.uniform

    def begin(self) -> "Attempts":
        """Start counting attempts and time for one operation."""
        return Attempts(self)

    def run(
        self,
        call: Callable[[], Found],
        errors: type[Exception] | tuple[type[Exception], ...],
        /,
        *,
        is_passing: Callable[[Exception], bool] = lambda error: True,
    ) -> Found:
        """Call ``call`` and return its result. It is retried while it raises ``errors`` that are passing."""
        attempts = self.begin()
        while True:
            try:
                return call()
            except errors as error:
                if not is_passing(error) or not attempts.again():
                    raise


class Attempts:
    """The number of attempts at one operation, and the time since the first."""

    def __init__(self, retries: Retries) -> None:
        self._retries, self._begun = retries, retries.clock()
        self.count = 1

    @property
    def seconds(self) -> float:
        """The seconds since the first attempt began."""
        return self._retries.clock() - self._begun

    def again(self) -> bool:
        """After a failure, wait and return True, or return False if there is no further attempt."""
        clock = self._retries.clock
        wait = pause(self.count, uniform=self._retries.uniform)
        if self.count >= self._retries.least:
            left = self._retries.seconds - self.seconds
            if left <= 0:
                return False
            wait = min(wait, left)  # the last attempt is at the time limit
        wake = clock() + wait
        while not self._retries.is_stopped():
            left = wake - clock()
            if left <= 0:
                self.count += 1
                self._retries.note()
                return True
            self._retries.sleep(min(left, _WAKE_SECONDS))
        return False
