"""The epoch of a pass of torch's workers: the workers of one pass find each other, agree on it, and check that all did.

torch does not tell a worker which pass it works for. All workers of one DataLoader iterator have the same base seed,
but other iterators have it too if the caller reseeds torch. Their workers are started at different times: one thread
starts the workers of an iterator, one after another. So the number of a worker among all processes that this thread has
started, minus the number of the worker, identifies the iterator. Workers that are reused (``persistent_workers``) begin
the iterator's next pass, and count their passes.

The first worker of a pass takes the next epoch, under a lock; the others find its entry and join. A worker ends the
pass only when all have joined. So a worker that was assigned to the wrong pass is an error, never a lost sample.
"""

import fcntl
import itertools
import multiprocessing
import os
import pickle
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import context, reduction
from typing import Any, TypeAlias

from torch.utils.data import get_worker_info

from loader.errors import DeliveryError

_KEPT = 256  # passes that are remembered: workers join within seconds
_POLL_SECONDS = 0.01  # between two looks at the ledger: the shared memory wakes nobody
# The shared memory begins with two numbers: how often something was closed, and the length of the ledgers.
_NUMBER_BYTES = 8

# How a process was started ("fork", or as a "copy"), by which thread of its parent, and that thread's count.
Birth: TypeAlias = tuple[str, int, int]


class _Thread(threading.local):
    """This thread: its number in the process, and how many times it has forked."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self.number = next(self._numbers)
        self.forks = 0


_thread = _Thread()
_born: Birth = ("", 0, 0)
_guard = threading.Lock()


def _before_fork() -> None:
    _thread.forks += 1


def _in_child() -> None:
    global _born, _guard
    _born = ("fork", _thread.number, _thread.forks)
    _guard = threading.Lock()  # another thread of the parent may hold it, which the child does not have


os.register_at_fork(before=_before_fork, after_in_child=_in_child)


@dataclass(frozen=True, slots=True)
class Team:
    """What the workers of one pass have in common."""

    seed: int  # the base seed
    count: int  # of workers
    birth: Birth  # of worker 0, computed from this worker's own
    turn: int  # how many passes these workers have begun before

    def is_that_of(self, other: "Team") -> bool:
        """Whether both are of one pass, even if their thread started another process between its workers."""
        mine, theirs = (
            (self.seed, self.count, self.turn, self.birth[:2]),
            (other.seed, other.count, other.turn, other.birth[:2]),
        )
        return mine == theirs and abs(self.birth[2] - other.birth[2]) < self.count


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass that a process has begun: its epoch and, in a worker, its team and the worker's number."""

    epoch: int
    number: int = 0
    team: Team | None = None


class Ledger:
    """The passes that one process has begun, with its workers. No I/O."""

    def __init__(self, following: int | None = None, loads: int = 0) -> None:
        self.following = following  # the epoch of the next pass; None: the source's first
        self.loads = loads  # how often a state was loaded
        self.is_closed = False  # whether what the passes read was closed in the main process
        self._passes: list[tuple[Team, int, list[int]]] = []  # team, epoch, numbers of the workers that have joined

    def begin(self, team: Team | None, number: int, *, first_epoch: int, epoch: int | None = None) -> Pass:
        """Begin a pass: the one of the worker's team, or else a new one of the given epoch, or of the next epoch.
        Raises `DeliveryError` if the team has another epoch than the given one.
        """
        found = None if team is None else self._of(team, but=number)
        if found is None:
            begun = epoch if epoch is not None else first_epoch if self.following is None else self.following
            self.following = begun + 1
            if team is None:
                return Pass(begun)
            found = team, begun, []
            self._passes = [*self._passes[1 - _KEPT :], found]
        if epoch not in (None, found[1]):
            raise DeliveryError(
                f"Wanted epoch {epoch} in worker {number}, as in its state. Found: epoch {found[1]} in other workers "
                f"of the same pass. {_remedy(found[1])}"
            )
        found[2].append(number)
        return Pass(found[1], number, found[0])

    def joined(self, begun: Pass) -> list[int]:
        """The numbers of the workers that have joined a pass."""
        assert begun.team is not None
        return sorted(next((joined for team, _, joined in self._passes if team == begun.team), []))

    def _of(self, team: Team, *, but: int) -> tuple[Team, int, list[int]] | None:
        near = [one for one in self._passes if team.is_that_of(one[0]) and but not in one[2]]
        return min(near, key=lambda one: abs(one[0].birth[2] - team.birth[2]), default=None)


class Passes:
    """The ledgers of a dataset, in memory that the main process and all workers share."""

    # A process that is forked or spawned with the dataset, as ranks are, has its own ledger for itself and its workers.
    # A pickle for any other purpose makes new passes.

    def __init__(self) -> None:
        self._base: tuple[int | None, int] = (None, 0)  # the start of a new ledger
        self._copies: dict[int, int] = {}  # by the thread that made them for processes it has started
        self._copied: tuple[Birth, int] | None = None  # as which copy this was made, and for which process
        self._closings, self._is_closed = bytes(_NUMBER_BYTES), False  # as last seen
        self._turns = (0, 0)  # the process, and the passes that it has begun
        self._hold(os.memfd_create("imagestrata-passes") if hasattr(os, "memfd_create") else _unnamed_file())

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {"base": self._base, "fd": None, "birth": None}
        if context.get_spawning_popen() is not None:
            thread = _thread.number
            self._copies[thread] = self._copies.get(thread, 0) + 1
            state |= {"fd": reduction.DupFd(self._fd), "birth": ("copy", thread, self._copies[thread])}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._base = state["base"]
        if state["fd"] is not None:
            self._close()
            self._hold(state["fd"].detach())
            self._copied = state["birth"], os.getpid()

    @property
    def loads(self) -> int:
        """How many times states were loaded in the process that the workers belong to."""
        with self._ledger() as ledger:
            return ledger.loads

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called in the process that the workers belong to. Cheap enough for every sample."""
        closings = os.pread(self._fd, _NUMBER_BYTES, 0)
        if closings != self._closings:  # in this process, or in another one that has the same memory
            with self._ledger() as ledger:
                self._is_closed = ledger.is_closed
            self._closings = closings
        return self._is_closed

    def close(self) -> None:
        """Let the workers of this process know that what they read was closed. Does nothing in a worker."""
        if get_worker_info() is None:
            with self._ledger() as ledger:
                ledger.is_closed = True
                closings = int.from_bytes(os.pread(self._fd, _NUMBER_BYTES, 0), "little")
                os.pwrite(self._fd, (closings + 1).to_bytes(_NUMBER_BYTES, "little"), 0)

    def restart(self, epoch: int | None, *, is_load: bool = False) -> int:
        """Make the next pass this epoch; None: the source's first. Returns how many times states were loaded."""
        with self._ledger() as ledger:
            ledger.following = epoch
            ledger.loads += is_load
            self._base = ledger.following, ledger.loads
            return ledger.loads

    def begin(self, *, first_epoch: int, epoch: int | None = None) -> Pass:
        """Begin a pass of this process: the given epoch, or else the next one. Raises `DeliveryError` if another worker
        of the pass has begun another epoch.
        """
        info = get_worker_info()
        team = None
        if info is not None:
            turn = self._turns[1] + 1 if self._turns[0] == os.getpid() else 0
            self._turns = os.getpid(), turn
            how, thread, birth = self._copied[0] if self._copied and self._copied[1] == os.getpid() else _born
            team = Team(info.seed - info.id, info.num_workers, (how, thread, birth - info.id), turn)
        with self._ledger() as ledger:
            return ledger.begin(team, 0 if info is None else info.id, first_epoch=first_epoch, epoch=epoch)

    def confirm(self, begun: Pass, *, timeout: float) -> None:
        """Wait until all workers of a pass have begun it; usually they have. Raises `DeliveryError` if not all have
        within ``timeout`` seconds: they may have begun another epoch.
        """
        if begun.team is None:
            return
        deadline = time.monotonic() + timeout
        parent = multiprocessing.parent_process()
        while True:
            with self._ledger() as ledger:
                joined = ledger.joined(begun)
            if joined == list(range(begun.team.count)):
                return
            if time.monotonic() > deadline or (parent is not None and not parent.is_alive()):
                found = ", ".join(map(str, joined)) or "none"
                raise DeliveryError(
                    f"Wanted all {begun.team.count} workers of the DataLoader in epoch {begun.epoch} within "
                    f"{timeout:g} s. Found: {found}; the others have not begun, or have begun another epoch. "
                    f"{_remedy(begun.epoch)} Give the source a larger timeout if workers start slowly."
                )
            time.sleep(_POLL_SECONDS)

    def _hold(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        if os.fstat(fd).st_size == 0:
            os.pwrite(fd, bytes(2 * _NUMBER_BYTES), 0)
        self._fd = fd
        self._close = weakref.finalize(self, os.close, fd)
        self._close.atexit = False

    @contextmanager
    def _ledger(self) -> Iterator[Ledger]:
        """The ledger of this process or, in a worker, of its main process, locked for all other processes."""
        parent = multiprocessing.parent_process()
        owner = str(os.getpid() if get_worker_info() is None or parent is None else parent.pid)
        with _guard:
            # A lock of the process, which the system releases if the process is killed.
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
            try:
                length = int.from_bytes(os.pread(self._fd, _NUMBER_BYTES, _NUMBER_BYTES), "little")
                found = pickle.loads(os.pread(self._fd, length, 2 * _NUMBER_BYTES)) if length else {}
                ledger = found.setdefault(owner, Ledger(*self._base))
                yield ledger
                data = pickle.dumps(found)
                os.pwrite(self._fd, len(data).to_bytes(_NUMBER_BYTES, "little") + data, _NUMBER_BYTES)
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)


def this_worker() -> tuple[int, int]:
    """This worker's number, and how many there are."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _remedy(epoch: int) -> str:
    return f"Do not use this pass: call dataset.set_epoch({epoch}) and start again with a new DataLoader."


def _unnamed_file() -> int:
    """A file instead of shared memory, on systems that have none with a descriptor."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
