"""Processes that we started, remembered in pid files that survive us and never name a stranger's process."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from formats.local_node import start_time
from imagestrata.devstack import NodeError


def launch(
    command: Sequence[str], path: Path, *, log: Path, tied: bool, environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a process in the folder of its pid file, which is written, and in a session of its own.

    What it says goes to `log`. A `tied` process dies with the thread that starts it.
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
    return process


def _die_with_parent() -> None:
    import ctypes

    # prctl(PR_SET_PDEATHSIG, SIGKILL)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def remember(pid: int, path: Path) -> None:
    """Write the pid file of a process that runs."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(f"{pid} {start_time(pid)}\n", encoding="ascii")
    new.replace(path)


def recall(path: Path) -> int | None:
    """The pid of the pid file when that very process still runs, or None."""
    try:
        pid, started = path.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return int(pid) if pid.isdigit() and start_time(int(pid)) == started else None


def end(path: Path, *, timeout_s: float, by: signal.Signals = signal.SIGTERM) -> bool:
    """End the pid file's process and wait for it, killing it after `timeout_s`; False when none ran.

    Raises NodeError when it does not even end by being killed.
    """
    pid = recall(path)
    if pid is not None:
        for number, last in ((by, False), (signal.SIGKILL, True)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if _has_ended(pid, path, timeout_s):
                break
            if last:
                raise NodeError(
                    f"wanted process {pid} of {path} to end within {timeout_s:.0f} s. Found: it still runs."
                )
    path.unlink(missing_ok=True)
    return pid is not None


def _has_ended(pid: int, path: Path, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while recall(path) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    _reap(pid)
    return True


def _reap(pid: int) -> None:
    """Collect the process if it is our child, so that it does not stay as a zombie."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
