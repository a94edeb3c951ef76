"""Messages of a job about its steps: at the start of a step, and again while it takes long."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Self

Tell = Callable[[str], None]
Found = Mapping[int, set[int]]
"""The training processes of each agent, by the agent's number."""

_EVERY_SECONDS, _LATER_SECONDS, _SOON_SECONDS = 5.0, 30.0, 60.0
_LOOK_WAITING, _LOOK_RUNNING = 0.5, 5.0


class Pulling:
    """Reports the progress of a pull every few seconds."""

    def __init__(self, name: str, tell: Tell, every: float = _EVERY_SECONDS) -> None:
        self._name, self._tell, self._every = name, tell, every
        self._state = "waiting for the service or for another pull of the same dataset"
        self._part = ""
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._began

    def show(self, part: str, done: int, total: int) -> None:
        """Record progress: bytes downloaded, or files unpacked."""
        if part == "download":
            begins, self._state = f"downloading {_size(total)}", f"downloaded {done / 1e6:,.1f} of {_size(total)}"
        else:
            begins, self._state = f"unpacking {total:,} files", f"unpacked {done:,} of {total:,} files"
        if part != self._part:
            self._part = part
            self._tell(f"{self._name}: {begins}")

    def protecting(self) -> None:
        """Record that the files are being made read-only."""
        self._state = "making the files read-only"

    def _repeat(self) -> None:
        while not self._ended.wait(self._every):
            self._tell(f"{self._name}: {self._state}, {self.seconds:.0f} s so far")


class Processes:
    """Reports when the processes of a job start: at first, after a loss, and when the command restarts."""

    def __init__(self, look: Callable[[], Found], tell: Tell, clock: Callable[[], float] = time.monotonic) -> None:
        self._find, self._tell, self._clock = look, tell, clock
        self._known: dict[int, set[int]] = {}
        self._again = ""
        self._is_waiting = True
        self._began = self._said = self._looked = clock()
        self._seen: set[int] = set()  # agents whose process has started; it may have ended since

    def expect_again(self) -> None:
        """Expect new processes, because one was lost."""
        self._again, self._is_waiting, self._seen = " again", True, set()
        self._began = self._said = self._clock()

    def ended(self, number: int) -> None:
        """Count the process of an agent that is done as started, although no look may have found it."""
        self._seen.add(number)

    def look(self) -> None:
        """Check for changes and report them."""
        now = self._clock()
        # To find the processes is slow, so it is done rarely.
        if now - self._looked < (_LOOK_WAITING if self._is_waiting else _LOOK_RUNNING):
            return
        self._looked = now
        found = self._find()
        if not found:
            return
        new = {number for number, pids in found.items() if pids and pids.isdisjoint(self._known.get(number, ()))}
        if not self._is_waiting:
            if not new:
                return
            self._tell("the command restarts: it failed, or another torchrun joined")
            self.expect_again()
        seconds, is_first = max(0.0, now - self._began), not self._seen
        self._seen |= new
        count = len(found.keys() | self._seen)
        if len(self._seen) == count:
            every = f"all {count} processes have" if count > 1 else "the process has"
            self._tell(f"{every} started{self._again} after {seconds:.0f} s")
            self._known = {number: set(pids) for number, pids in found.items()}
            self._is_waiting = False
        elif new and is_first:
            self._tell(f"the first process has started{self._again} after {seconds:.0f} s")
            self._said = now
        elif now - self._said >= (_EVERY_SECONDS if seconds < _SOON_SECONDS else _LATER_SECONDS):
            self._tell(f"{len(self._seen)} of {count} processes have started{self._again}, {seconds:.0f} s so far")
            self._said = now


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
