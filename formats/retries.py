"""When a request that failed is sent again, and when it is given up."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

_FIRST_PAUSE = 0.1
_WAKE_SECONDS = 0.25


def pause(failures: int, /, *, longest: float) -> float:
    """Seconds before a request that failed so often is sent again: they double with each failure, up to ``longest``."""
    return float(min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), longest))


def jittered_pause(failures: int, /) -> float:
    """A `pause` of up to three seconds, at random, so that clients that failed together do not come back together."""
    return pause(failures, longest=3.0) * random.uniform(0.5, 1.0)


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
        wake = time.monotonic() + jittered_pause(self.count)
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
