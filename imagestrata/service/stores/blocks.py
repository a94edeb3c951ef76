"""Sizes of the blocks that transfers hold in memory: more transfers get smaller blocks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LEAST = 1 << 16


class Blocks:
    """Divides ``together`` bytes among transfers: 64 KiB to ``most`` bytes for each block."""

    def __init__(self, most: int, *, together: int) -> None:
        self._most, self._together = most, together
        self._lock = threading.Lock()
        self._count = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Count a transfer while the block runs."""
        with self._lock:
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1

    @property
    def size(self) -> int:
        """The size of the next block of each transfer, in bytes."""
        return max(_LEAST, min(self._most, self._together // max(1, self._count)))
