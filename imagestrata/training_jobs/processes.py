"""Find and kill processes that torchrun has started, by a mark in their environment.

Process groups are not enough, because torchrun starts each process in its own session.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator

import psutil

MARK = "IMAGESTRATA_AGENT"
_SET_CHILD_SUBREAPER = 36
_PATIENCE_SECONDS = 10


@contextlib.contextmanager
def adopting(*own: int) -> Iterator[None]:
    """Adopt orphaned descendants while the block runs, and kill them at its end, but not existing children and ``own``.
    Works on Linux only.
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
    found = ((process.pid, _environment(process)) for process in psutil.process_iter())
    return [pid for pid, env in found if env.get(MARK) == mark and (not variable or variable in env)]


def children_with(variable: str, parents: Collection[int]) -> dict[int, set[int]]:
    """Find the children of processes that have a variable, by parent."""
    made: dict[int, set[int]] = {parent: set() for parent in parents}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if (parent := process.ppid()) in made and variable in _environment(process):
                made[parent].add(process.pid)
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
    return [child.pid for child in psutil.Process().children()]


def _environment(process: psutil.Process) -> dict[str, str]:
    """The environment of a process; empty if it has ended or belongs to another user."""
    with contextlib.suppress(psutil.Error):
        return dict(process.environ())
    return {}
