"""Find and kill processes that torchrun has started, by a mark in their environment.

Process groups are not enough, because torchrun starts each process in its own session.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

MARK = "IMAGESTRATA_AGENT"
_SET_CHILD_SUBREAPER = 36
_PATIENCE_SECONDS = 10
_PROC = Path("/proc")


@contextlib.contextmanager
def adopting(*own: int) -> Iterator[None]:
    """Adopt orphaned descendants while the block runs, and kill them at its end. Works on Linux only.

    Existing children and ``own`` are not killed.
    """
    kept = {*own, *_children()}
    _set_subreaper(1)
    try:
        yield
    finally:
        _kill_until_none(lambda: [pid for pid in _children() if pid not in kept])
        _set_subreaper(0)


def kill_marked(mark: str) -> None:
    """Kill all processes with a mark, including those that they start in the meantime."""
    _kill_until_none(lambda: marked(mark))


def marked(mark: str, variable: str = "") -> list[int]:
    """Find all processes with a mark and a variable."""
    wanted, besides = f"{MARK}={mark}".encode(), f"{variable}=".encode()
    return [
        pid
        for pid in _pids()
        if wanted in (found := _environment(pid))
        if not variable or any(one.startswith(besides) for one in found)
    ]


def children_with(variable: str, parents: Collection[int]) -> dict[int, set[int]]:
    """Find the children of processes that have a variable, by parent."""
    made: dict[int, set[int]] = {parent: set() for parent in parents}
    begin = f"{variable}=".encode()
    for pid in _pids():
        if (parent := _parent(pid)) in made and any(one.startswith(begin) for one in _environment(pid)):
            made[parent].add(pid)
    return made


def _kill_until_none(found: Callable[[], list[int]]) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while pids := found():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > until:  # blocked in the kernel: a disk or device does not respond
            return
        time.sleep(0.01)


def _set_subreaper(on: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, on, 0, 0, 0)


def _children() -> list[int]:
    return [pid for pid in _pids() if _parent(pid) == os.getpid()]


def _pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(name) for name in os.listdir(_PROC) if name.isdigit())


def _environment(pid: int) -> list[bytes]:
    """The environment of a process; empty if it has ended or belongs to another user."""
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
