"""Virtual time for the loader's threads: a consumer and other threads take turns, so that each run can be repeated.

A consumer that waits lets the others run. An event loop that has nothing to do moves the clock to its next timer, and a
worker that waits moves it to the end of its wait.
"""

import asyncio
import queue
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from greenlet import GreenletExit, getcurrent, greenlet

from imagestrata.planner.simulation import VirtualLoop
from loader.prefetch.runtime import Runtime

Found = TypeVar("Found")


class HangError(AssertionError):
    """A consumer has waited too long, or for something that can never happen."""


class Clock:
    """The time, and whose turn it is. The one consumer calls it; workers call `wait`, and loops what `select` needs."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0  # seconds
        self.consumer = getcurrent()
        self.deadline = float("inf")  # a consumer that waits longer hangs
        self.random = random.Random(seed)
        self._threads: list[SimulatedThread | Worker] = []
        self._is_done: Callable[[], bool] = lambda: True
        self._until = float("inf")

    def runtime(self) -> Runtime:
        """What the loader takes from the system."""
        return Runtime(
            thread=self.thread,  # type: ignore[arg-type]
            clock=lambda: self.now,
            uniform=self.random.uniform,
            sleep=self.sleep,
            start=self.start,
            queue=lambda: SimulatedQueue(self),
            local=SimulatedLocal,
            has_ended=lambda future, seconds: self.wait(future.done, seconds),
        )

    def sleep(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.wait(lambda: False, seconds)

    def start(self, body: Callable[[], None], name: str) -> None:
        """Run a function in another thread."""
        self._threads.append(Worker(self, body))

    def thread(self) -> "SimulatedThread":
        """Another thread for a loop."""
        made = SimulatedThread(self)
        self._threads.append(made)
        return made

    def wait(self, is_done: Callable[[], bool], seconds: float | None = None) -> bool:
        """Let the others run until something is done, or so many seconds have passed; whether it is done."""
        if isinstance(worker := getcurrent(), Worker):
            return worker.wait(is_done, seconds)
        self._is_done = is_done
        self._until = self.deadline if seconds is None else min(self.now + seconds, self.deadline)
        while not is_done():
            self._threads = [one for one in self._threads if not one.is_over]
            following = min(self._threads, key=lambda one: one.following, default=None)
            if following is None or following.following > self._until:
                if self._until >= self.deadline:
                    raise HangError(f"the consumer still waits at {self.now:.3f} s")
                self.now = max(self.now, self._until)
                return False
            following.give_turn()
        return True

    def has_more(self, loop: "SimulatedLoop") -> bool:
        """Whether a loop goes on without asking the consumer."""
        is_alone = sum(not one.is_over for one in self._threads) == 1
        return is_alone and loop.following <= self._until and not self._is_done()

    def remove(self, thread: "SimulatedThread") -> None:
        """Give a thread no turn any more, as if its process had been killed."""
        self._threads.remove(thread)

    @property
    def are_over(self) -> bool:
        """Whether all threads have ended."""
        return all(one.is_over for one in self._threads)

    def stop(self) -> None:
        """End all threads."""
        for one in self._threads:
            one.stop()


class SimulatedLoop(VirtualLoop):
    """A loop on a `Clock`, which others share."""

    def __init__(self, clock: Clock, thread: "SimulatedThread") -> None:
        super().__init__()
        self._clock, self._thread = clock, thread
        self._parked = 0.0

    def time(self) -> float:
        """The virtual time."""
        return self._clock.now

    @property
    def following(self) -> float:
        """When the loop has something to do."""
        return self._clock.now if self._ready else self._parked

    def select(self, timeout: float | None) -> list[Any]:
        """Wait for the turn, and for the next timer."""
        clock = self._clock
        self._parked = float("inf") if timeout is None else clock.now + timeout
        if not clock.has_more(self):
            self._thread.return_turn()
        clock.now = max(clock.now, self.following)
        return []


class SimulatedThread:
    """As `LoopThread`, but a greenlet, which runs only while the consumer waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._consumer = clock, clock.consumer
        self.loop = SimulatedLoop(clock, self)

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended."""
        return bool(self._thread.dead)

    @property
    def following(self) -> float:
        """When its loop has something to do."""
        return self.loop.following

    def start(self, body: Callable[[], None]) -> None:
        """Run this function in the thread."""
        self._thread = greenlet(body, parent=self._consumer)

    def join(self, seconds: float) -> bool:
        """Wait for the end of the thread; whether it has ended."""
        return getcurrent() is self._thread or self._clock.wait(lambda: self.is_over, seconds)

    def wait(self, future: "Future[Found]") -> Found:
        """The result of a future."""
        self._clock.wait(future.done)
        return future.result()

    def queue(self) -> "SimulatedQueue":
        """A queue from the loop to a consumer."""
        return SimulatedQueue(self._clock)

    @property
    def has_turn(self) -> bool:
        """Whether it runs now."""
        return getcurrent() is self._thread

    def give_turn(self) -> None:
        """Let the loop run until it returns the turn."""
        self._thread.switch()

    def return_turn(self) -> None:
        """Let the consumer run until it gives the turn."""
        asyncio._set_running_loop(None)
        self._consumer.switch()
        asyncio._set_running_loop(self.loop)

    def stop(self) -> None:
        """End the thread."""
        if not self.is_over:
            self._thread.throw(GreenletExit)


class Worker(greenlet):
    """A thread that waits by itself. It runs only while the consumer waits."""

    def __init__(self, clock: Clock, body: Callable[[], None]) -> None:
        super().__init__(body, clock.consumer)
        self._clock = clock
        self._is_done: Callable[[], bool] = lambda: True
        self._until = float("inf")

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended."""
        return bool(self.dead)

    @property
    def following(self) -> float:
        """When it goes on."""
        return self._clock.now if self._is_done() else self._until

    def give_turn(self) -> None:
        """Let it run until it waits."""
        self._clock.now = max(self._clock.now, self.following)
        self.switch()

    def wait(self, is_done: Callable[[], bool], seconds: float | None) -> bool:
        """As `Clock.wait`; called by the worker itself."""
        self._is_done = is_done
        self._until = float("inf") if seconds is None else self._clock.now + seconds
        self._clock.consumer.switch()
        return is_done()

    def stop(self) -> None:
        """End the thread."""
        if self and not self.dead:
            self.throw(GreenletExit)


class SimulatedLocal:
    """As `threading.local`."""

    def __init__(self) -> None:
        vars(self)["_own"] = WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:
        try:
            return vars(self)["_own"][getcurrent()][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)["_own"].setdefault(getcurrent(), {})[name] = value


class SimulatedQueue:
    """As `queue.SimpleQueue`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        """Add an item."""
        self._items.append(item)

    def get_nowait(self) -> Any:
        """The next item. Raises `queue.Empty`."""
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def get(self, timeout: float | None = None) -> Any:
        """The next item, once there is one. Raises `queue.Empty` after so many seconds."""
        self._clock.wait(lambda: bool(self._items), timeout)
        return self.get_nowait()
