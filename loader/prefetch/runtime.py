"""What reading ahead takes from the system: threads, what they wait for, time and random numbers.

Simulations give their own, so that an epoch over a slow and failing cluster takes milliseconds and can be repeated.
"""

import asyncio
import queue
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

# How long a thread waits at a time. Ctrl-C does not wake it if it comes just before the wait, or in another thread. It
# is then seen after this time.
WAKE_SECONDS = 0.5

Found = TypeVar("Found")


class LoopThread:
    """A thread for an event loop, and how other threads wait for what runs there."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread: threading.Thread

    def start(self, body: Callable[[], None]) -> None:
        """Run this function, which runs the loop, in the thread."""
        # A daemon, because a node that does not answer must not delay the end of the process.
        self._thread = threading.Thread(target=body, name="loader-prefetch", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait for the end of the thread; whether it has ended. Does not wait in the thread itself."""
        if threading.current_thread() is self._thread:  # the garbage collector may call from there
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def wait(self, future: Future[Found]) -> Found:
        """The result of a future, once it has one."""
        while not wait((future,), timeout=WAKE_SECONDS).done:
            pass
        return future.result()

    def queue(self) -> "queue.SimpleQueue[Any]":
        """A queue from the loop to a consumer."""
        return queue.SimpleQueue()


def _start(body: Callable[[], None], name: str) -> None:
    # A daemon, because a store that does not answer must not delay the end of the process.
    threading.Thread(target=body, name=name, daemon=True).start()


def _has_ended(future: "Future[Any]", seconds: float) -> bool:
    return bool(wait((future,), timeout=seconds).done)


@dataclass(frozen=True, slots=True)
class Runtime:
    """The system's threads, clock and random numbers."""

    thread: Callable[[], LoopThread] = LoopThread
    clock: Callable[[], float] = time.monotonic  # seconds
    uniform: Callable[[float, float], float] = random.uniform
    sleep: Callable[[float], None] = time.sleep
    start: Callable[[Callable[[], None], str], None] = _start  # a function, in a thread of this name
    queue: Callable[[], Any] = queue.SimpleQueue
    local: Callable[[], Any] = threading.local
    has_ended: Callable[["Future[Any]", float], bool] = _has_ended  # waits for a future, up to so many seconds


SYSTEM = Runtime()
