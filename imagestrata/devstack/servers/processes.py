"""Processes that we started, recorded in pid files. A pid file never refers to another process with the same pid."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from formats.durability import whole_file
from formats.local_node import start_time
from imagestrata.devstack import NodeError

# Kept, because Python warns about running children that nothing refers to.
_children: list["subprocess.Popen[bytes]"] = []


def launch(
    command: Sequence[str], path: Path, *, log: Path, tied: bool, environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a process in a new session and in the folder of its pid file, which is written. Its output replaces
    ``log``; a ``tied`` process is killed when the thread that starts it ends.
    """
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, cwd=path.parent, env=environment,
            start_new_session=True, preexec_fn=_die_with_parent if tied else None,
        )  # fmt: skip
    try:
        remember(process.pid, path)
    except BaseException:
        process.kill()
        process.wait()
        raise
    _children.append(process)
    return process


def await_ready(
    process: "subprocess.Popen[bytes]", is_ready: Callable[[], bool], *, what: str, folder: Path, address: str,
    log: Path, complaint: Callable[[], str], timeout_s: float, progress: Callable[[str], None] = lambda text: None,
) -> None:  # fmt: skip
    """Wait until a server is ready. Raises `NodeError` with the server's ``complaint`` if it ends or takes too long."""
    started = time.monotonic()
    while not is_ready():
        waited = time.monotonic() - started
        if process.poll() is not None:
            raise NodeError(
                f"wanted {what} in {folder}. Found: it ended with exit code {process.returncode}: {complaint()}"
            )
        if waited > timeout_s:
            raise NodeError(f"wanted {what} {address} within {timeout_s:.0f} s. Found: {complaint()}. Its log: {log}")
        progress(f"starting, {waited:.0f} s")
        time.sleep(0.05)


def _die_with_parent() -> None:
    import ctypes

    # prctl(PR_SET_PDEATHSIG, SIGKILL)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def remember(pid: int, path: Path) -> None:
    """Write the pid file of a running process."""
    with whole_file(path) as file:
        file.write(f"{pid} {start_time(pid)}\n".encode("ascii"))


def recall(path: Path) -> int | None:
    """The pid in a pid file, or None if that process no longer runs."""
    try:
        pid, started = path.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return int(pid) if pid.isdigit() and start_time(int(pid)) == started else None


def end(path: Path, *, timeout_s: float, by: signal.Signals = signal.SIGTERM) -> bool:
    """Stop the process of a pid file by a signal, or kill it after ``timeout_s``, and wait until it ends; False if it
    did not run. Raises `NodeError` if it still runs after it was killed.
    """
    pid = recall(path)
    if pid is not None:
        for number in (by, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if _has_ended(path, timeout_s):
                break
        else:
            raise NodeError(f"wanted process {pid} of {path} to end within {timeout_s:.0f} s. Found: it still runs.")
    _children[:] = [child for child in _children if child.poll() is None]  # which reaps those that have ended
    path.unlink(missing_ok=True)
    return pid is not None


def _has_ended(path: Path, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while recall(path) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
