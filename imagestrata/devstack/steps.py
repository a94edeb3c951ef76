"""Steps of the set-up: one line for each with its time, progress while they run, and locks between processes."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from imagestrata.devstack import SetupError

# Without a terminal, progress is printed at most this often.
PLAIN_INTERVAL_S = 10.0


class Step:
    """One step. `detail` is shown with its time at the end; `progress` shows a text while it runs."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self.name = name
        self.detail = ""
        self.ready = False
        self._stream = stream
        self._started = time.monotonic()
        self._spoken = self._started

    def progress(self, text: str) -> None:
        """Show `text`: immediately on a terminal, elsewhere as a line every ten seconds."""
        now = time.monotonic()
        if self._stream.isatty():
            self._stream.write(f"\r\033[K{self.name:<20} {text}")
        elif now - self._spoken >= PLAIN_INTERVAL_S:
            self._stream.write(f"{self.name:<20} {text}  {now - self._started:.0f} s so far\n")
        else:
            return
        self._spoken = now
        self._stream.flush()

    def end(self) -> str:
        """Clear the progress and return the line of the step."""
        if self._stream.isatty():
            self._stream.write("\r\033[K")
            self._stream.flush()
        took = time.monotonic() - self._started
        return f"{self.name:<20} {'ready  ' if self.ready else ''}{self.detail}  {took:.1f} s"


@contextmanager
def step(name: str) -> Iterator[Step]:
    """Time the block, and print its line to standard error if it succeeds."""
    current = Step(name, sys.stderr)
    try:
        yield current
    except BaseException:
        current.end()
        raise
    print(current.end(), file=sys.stderr, flush=True)


@contextmanager
def locked(path: Path, *, timeout_s: float, what: str) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`. Raises `SetupError` if another process holds it for `timeout_s`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + timeout_s
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SetupError(
                        f"{what}: wanted the lock {path} within {timeout_s:.0f} s. "
                        "Found: another process holds it. Wait until it ends, then run this again."
                    ) from None
                if not told:
                    print(f"{what}: waiting for another process that does the same", file=sys.stderr, flush=True)
                    told = True
                time.sleep(0.2)
        yield
    finally:
        os.close(handle)


def run_shown(
    command: Sequence[str], current: Step, shown: Callable[[str], str], *, timeout_s: float, cwd: Path | str,
    env: Mapping[str, str],
) -> tuple[int, list[str]]:  # fmt: skip
    """Run a program; return its exit code and the lines of its standard error. The step's progress is what `shown`
    makes of the last line, at first of an empty one. After `timeout_s`, the program is killed.
    """
    text = shown("")
    said: list[str] = []
    ended = threading.Event()

    def tick() -> None:  # also between lines: a large download takes minutes
        deadline = time.monotonic() + timeout_s
        while not ended.wait(1.0):
            current.progress(text)
            if time.monotonic() > deadline:
                process.kill()

    with subprocess.Popen(command, cwd=cwd, env=env, stderr=subprocess.PIPE, text=True) as process:
        ticker = threading.Thread(target=tick, daemon=True)
        ticker.start()
        try:
            assert process.stderr is not None
            for line in process.stderr:
                said.append(line)
                text = shown(line)
        except BaseException:
            process.kill()
            raise
        finally:
            ended.set()
            ticker.join()
    return process.returncode, said
