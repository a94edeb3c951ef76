"""Waiting for other processes and threads."""

import time
from collections.abc import Callable


def until(is_so: Callable[[], object], what: str = "it", *, seconds: float = 60.0) -> None:
    """Wait for another process or thread: poll until a condition holds."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"waited for {what}"
        time.sleep(0.01)
