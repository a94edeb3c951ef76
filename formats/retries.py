"""When a request that failed is sent again, and when it is given up."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

_FIRST_PAUSE = 0.1
"""Seconds before the first repetition; the pause doubles with each, up to the longest."""
_LONGEST_PAUSE = 3.0
_WAKE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Retries:
    """How long a request is repeated: at least ``least`` times in all, and until ``seconds`` have passed.

    It is given up earlier once ``is_stopped`` says so. ``note`` is called before each repetition.
    """

    least: int = 1
    seconds: float = 0.0
    is_stopped: Callable[[], bool] = lambda: False
    note: Callable[[], None] = lambda: None

    def begin(self) -> "Attempts":
        """The attempts of one request; its time begins now."""
        return Attempts(self)


class Attempts:
    """The attempts of one request."""

    def __init__(self, retries: Retries) -> None:
        self._retries, self._until = retries, time.monotonic() + retries.seconds
        self.count = 1

    def again(self) -> bool:
        """After a failure: wait and return True, or return False if the request is given up."""
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self.count - 1)) * random.uniform(0.5, 1.0)
        wake = time.monotonic() + pause
        if self.count >= self._retries.least and wake > self._until:
            return False
        while not self._retries.is_stopped():
            left = wake - time.monotonic()
            if left <= 0:
                self.count += 1
                self._retries.note()
                return True
            time.sleep(min(left, _WAKE_SECONDS))
        return False
