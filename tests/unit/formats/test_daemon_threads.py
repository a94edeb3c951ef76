"""Threads that the end of the process does not wait for."""

import gc
import threading
from concurrent.futures import Future

import pytest

from formats.daemon_threads import DaemonThreads
from tests.support.waiting import until


def test_functions_run_side_by_side_in_so_many_threads() -> None:
    threads = DaemonThreads(3, "test-threads")
    together = threading.Barrier(3)

    def run(number: int) -> int:
        together.wait(10)
        return number

    found = [threads.submit(run, number) for number in range(9)]
    assert [one.result(10) for one in found] == list(range(9))
    names = [one.name for one in threading.enumerate()]
    assert names.count("test-threads") == 3
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 / 0).result(10)
    del threads
    gc.collect()
    until(lambda: "test-threads" not in [one.name for one in threading.enumerate()])


def test_threads_end_with_what_they_run_and_nothing_else_begins() -> None:
    threads, go = DaemonThreads(1, "test-closed"), threading.Event()
    running: Future[bool] = threads.submit(go.wait, 10)
    waiting = threads.submit(int)
    threads.shutdown(cancel_futures=True)
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="closed"):
        threads.submit(int)
    go.set()
    assert running.result(10) is True
    until(lambda: "test-closed" not in [one.name for one in threading.enumerate()])
