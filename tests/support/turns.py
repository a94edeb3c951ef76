"""Runs that take turns at each step on a storage, in an order that a seed decides, and that can be killed at a step."""

import fcntl
import functools
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from formats.stores.storage import Storage

STEPS = (
    "exists", "is_folder", "names", "files", "read_text", "write_bytes", "publish_text", "publish_instead", "settle",
    "move", "remove", "remove_files", "entries", "create",
)  # fmt: skip
PATIENCE_S = 60.0


class Killed(BaseException):
    """Ends a run as kill -9 does: it does nothing more on the storage."""


class Turns:
    """Runs several functions at once, one step at a time."""

    def __init__(self, order: random.Random) -> None:
        self._order, self._condition = order, threading.Condition()
        self._favour = order.choice((0.0, 0.0, 0.8, 0.98))  # how often the run goes on that is first by its name
        self._turn: str | None = None
        self._waiting: set[str] = set()
        self._kills: dict[str, int] = {}  # the steps that are left to runs that are killed
        self._dead: set[str] = set()

    def run(
        self, works: Mapping[str, Callable[[], object]], *, kills: Mapping[str, int] | None = None
    ) -> dict[str, BaseException | None]:
        """Run the functions until all have ended; how each has ended. ``kills`` says at which step some are killed."""
        ended: dict[str, BaseException | None] = {}
        self._kills = dict(kills or {})

        def work(name: str) -> None:
            try:
                works[name]()
                ended[name] = None
            except BaseException as error:
                ended[name] = error
            finally:
                with self._condition:
                    self._turn = None
                    self._condition.notify_all()

        threads = [threading.Thread(target=work, args=(name,), name=f"turns {name}", daemon=True) for name in works]
        for thread in threads:
            thread.start()
        while len(ended) < len(works):
            with self._condition:
                assert self._condition.wait_for(lambda: self._waiting >= works.keys() - ended.keys(), PATIENCE_S)
                left = works.keys() - ended.keys()
                if left:
                    is_favoured = self._order.random() < self._favour
                    self._turn = min(left) if is_favoured else self._order.choice(sorted(left))
                    self._waiting.discard(self._turn)
                    self._condition.notify_all()
                    assert self._condition.wait_for(lambda: self._turn is None, PATIENCE_S)
        for thread in threads:
            thread.join(PATIENCE_S)
        return ended

    def pause(self) -> None:
        """Wait for the next turn, if this thread is one of the runs."""
        kind, _, name = threading.current_thread().name.partition(" ")
        if kind != "turns":
            return
        if name in self._dead or self._kills.get(name) == 0:
            self._dead.add(name)
            raise Killed
        with self._condition:
            if name in self._kills:
                self._kills[name] -= 1
            if self._turn == name:
                self._turn = None
            self._waiting.add(name)
            self._condition.notify_all()
            assert self._condition.wait_for(lambda: self._turn == name, PATIENCE_S)

    @contextmanager
    def on_storages(self) -> Iterator[None]:
        """Pause before each step on a storage, and while another run holds a lock."""
        with pytest.MonkeyPatch.context() as patch:
            for step in STEPS:
                patch.setattr(Storage, step, self._paused(getattr(Storage, step)))
            patch.setattr(fcntl, "flock", self._locked(fcntl.flock))
            yield

    def _paused(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def paused(*args: Any, **options: Any) -> Any:
            self.pause()
            return step(*args, **options)

        return paused

    def _locked(self, flock: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def locked(file: int, how: int) -> None:
            while True:
                try:
                    return flock(file, how | fcntl.LOCK_NB)
                except BlockingIOError:
                    self.pause()

        return locked
