"""Blocks of bytes that transfers hold in memory: the more transfers there are, the smaller their blocks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LEAST = 1 << 16


class Blocks:
    """Blocks of at most ``most`` bytes, and of ``together`` bytes in all while that leaves 64 KiB to each."""

    def __init__(self, most: int, *, together: int) -> None:
        self._most, self._together = most, together
        self._lock = threading.Lock()
        self._count = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Count a transfer."""
        with self._lock:
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1

    @property
    def size(self) -> int:
        """How large the next block of each transfer may be."""
        return max(_LEAST, min(self._most, self._together // max(1, self._count)))
