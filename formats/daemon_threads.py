"""Threads that the end of the process does not wait for."""

import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

Found = TypeVar("Found")
Given = ParamSpec("Given")


class DaemonThreads(Executor):
    """Up to ``most`` threads that run functions. Those of the standard library delay the end of the process until all
    functions have returned, which one that reads from a store that does not answer never does.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name, self._count = most, name, 0
        self._lock = threading.Lock()
        self._wanted: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        # A thread that takes None ends, and leaves it to the next one.
        self._closing = weakref.finalize(self, self._wanted.put, None)
        self._closing.atexit = False

    def submit(self, call: Callable[Given, Found], /, *args: Given.args, **more: Given.kwargs) -> "Future[Found]":
        """Run a function in a thread. Raises RuntimeError after `shutdown`."""
        future: Future[Found] = Future()
        with self._lock:
            if not self._closing.alive:
                raise RuntimeError("Wanted open threads. Found: closed ones")
            self._wanted.put((future, lambda: call(*args, **more)))
            if not self._idle.acquire(blocking=False) and self._count < self._most:
                threading.Thread(target=_run, args=(self._wanted, self._idle), name=self._name, daemon=True).start()
                self._count += 1
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let threads end once they have nothing to do. Waits for none, whatever ``wait`` is."""
        with self._lock:
            while cancel_futures:
                try:
                    one = self._wanted.get_nowait()
                except queue.Empty:
                    break
                if one is not None:
                    one[0].cancel()
            self._closing.detach()
            self._wanted.put(None)  # again, if the one of an earlier call was taken above


def _run(wanted: "queue.SimpleQueue[Any]", idle: threading.Semaphore) -> None:
    """Run the functions of a queue. Must not refer to the threads' owner, whose end ends them."""
    while True:
        try:
            one = wanted.get_nowait()
        except queue.Empty:
            idle.release()
            one = wanted.get()
        if one is None:
            wanted.put(None)
            return
        future, call = one
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
        del one, future, call  # or a thread that waits would keep what it has read
