"""Blocking calls of the driver beside an event loop."""

import asyncio
import threading

import pytest

from loader.cassandra.fetch_driver import _in_thread


def test_a_cancelled_wait_for_a_blocking_call_is_no_error_of_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    gate = threading.Event()

    async def cancelled() -> None:
        waiting = _in_thread(gate.wait)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled())
    (thread,) = [one for one in threading.enumerate() if one.name == "loader-driver"]
    gate.set()
    thread.join(10)
    assert errors == []
