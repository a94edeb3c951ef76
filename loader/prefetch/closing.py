"""What is closed once, and has others closed with it."""

import threading
from collections.abc import Callable

from loader.errors import ClosedError


class Closing:
    """Whether something was closed, under a lock, and what else is to be called then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._at_close: list[Callable[[], None]] = []

    def close(self) -> None:
        """Give up all reads and connections; streams that are being read get `ClosedError`. Safe to call twice."""
        with self._lock:
            self._is_closed = True
            more, self._at_close = self._at_close, []
        self._end()
        for close in more:
            close()

    def at_close(self, close: Callable[[], None]) -> None:
        """Have this called by `close`, or now if that is over, which raises `ClosedError`."""
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._at_close.append(close)
        if is_closed:
            close()
            raise closed()

    def _end(self) -> None:
        """Give up what is one's own; nothing new begins any more."""
        raise NotImplementedError


def closed() -> ClosedError:
    """What a consumer finds who wants batches of a source that was closed."""
    return ClosedError("Wanted the next batch. Found: the source was closed")
