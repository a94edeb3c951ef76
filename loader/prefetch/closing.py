"""Objects that are closed once, and close others with them."""

import threading
from collections.abc import Callable

from loader.errors import ClosedError


class Closing:
    """Whether an object was closed, under a lock, and what else to call then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._at_close: list[Callable[[], None]] = []

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def close(self) -> None:
        """End all reads and connections; streams that are being read raise `ClosedError`. You may call it twice."""
        with self._lock:
            self._is_closed = True
            more, self._at_close = self._at_close, []
        self._end()
        for close in more:
            close()

    def at_close(self, close: Callable[[], None]) -> None:
        """Let `close` call this too. After `close`, call it now and raise `ClosedError`."""
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._at_close.append(close)
        if is_closed:
            close()
            raise closed()

    def _end(self) -> None:
        """End this object's own reads; nothing new may begin."""
        raise NotImplementedError


def closed() -> ClosedError:
    """The error for reading from a source that was closed."""
    return ClosedError("Cannot read from a closed source.")
