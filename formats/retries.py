"""When something that failed is tried again, and when it is given up."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 3.0
_WAKE_SECONDS = 0.25

Found = TypeVar("Found")


def pause(failures: int, /, *, longest: float = _LONGEST_PAUSE) -> float:
    """Seconds before the next attempt after so many failures: they double with each, up to ``longest``."""
    return float(min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), longest))


@dataclass(frozen=True, slots=True)
class Retries:
    """How long something is repeated: at least ``least`` times in all, and until ``seconds`` have passed.

    It is given up earlier once ``is_stopped`` says so. ``note`` is called before each repetition.
    """

    least: int = 1
    seconds: float = 0.0
    is_stopped: Callable[[], bool] = lambda: False
    note: Callable[[], None] = lambda: None

    def begin(self) -> "Attempts":
        """The attempts at one thing; its time begins now."""
        return Attempts(self)

    def run(self, call: Callable[[], Found], error: type[Exception], /) -> Found:
        """What ``call`` returns. It is repeated while it raises ``error``, which is raised when it is given up."""
        attempts = self.begin()
        while True:
            try:
                return call()
            except error:
                if not attempts.again():
                    raise


class Attempts:
    """The attempts at one thing: how many there were, and since when."""

    def __init__(self, retries: Retries) -> None:
        self._retries, self._begun = retries, time.monotonic()
        self.count = 1

    @property
    def seconds(self) -> float:
        """How long ago the first one began."""
        return time.monotonic() - self._begun

    def again(self) -> bool:
        """After a failure: wait and return True, or return False if it is given up.

        Pauses are at random, so that those who failed together do not come back together.
        """
        wait = pause(self.count) * random.uniform(0.5, 1.0)
        if self.count >= self._retries.least:
            left = self._retries.seconds - self.seconds
            if left <= 0:
                return False
            wait = min(wait, left)  # the last attempt is at the end of the time
        wake = time.monotonic() + wait
        while not self._retries.is_stopped():
            left = wake - time.monotonic()
            if left <= 0:
                self.count += 1
                self._retries.note()
                return True
            time.sleep(min(left, _WAKE_SECONDS))
        return False
