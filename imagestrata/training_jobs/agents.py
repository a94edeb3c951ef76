"""The agents of a job: one torchrun for each process, and their output."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, Self

from imagestrata.training_jobs.processes import MARK, children_with, kill_marked, marked

Outcome = Literal["running", "done", "lost", "failed"]

_MOST_LINE = 1 << 16
_OUTPUT_SECONDS = 5
_DEVICES_SECONDS = 60
_lock = threading.Lock()


class Agent:
    """A torchrun in its own process group. Its output lines are prefixed with its number."""

    def __init__(self, number: int, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], logs: Path) -> None:
        """Start the agent. Raises OSError."""
        self.number = number
        self._mark = f"{uuid.uuid4().hex}.{number}"
        self._errors = logs / f"agent-{number}.json"
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**env, MARK: self._mark, "TORCHELASTIC_ERROR_FILE": str(self._errors)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        self.pid = self._process.pid
        pipes = ((self._process.stdout, sys.stdout.buffer), (self._process.stderr, sys.stderr.buffer))
        self._pumps = [
            threading.Thread(target=_pump, args=(source, sink, f"[{number}] ".encode()), daemon=True)
            for source, sink in pipes
        ]
        for pump in self._pumps:
            pump.start()

    @property
    def outcome(self) -> Outcome:
        """The state of the agent: lost if a signal ended it, failed if it gave up itself."""
        code = self._process.poll()
        if code is None:
            return "running"
        if code == 0:
            return "done"
        return "lost" if code < 0 or self._was_told_to_end() else "failed"

    @property
    def code(self) -> str:
        """The exit code or signal as text."""
        code = self._process.returncode
        return f"exit code {code}" if code >= 0 else f"signal {-code}, {signal.Signals(-code).name}"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the agent, which passes it on; SIGKILL goes to its whole group."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                self._process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Wait for the agent; whether it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def clear(self) -> None:
        """Kill the remaining processes of an ended agent, and flush its output."""
        kill_marked(self._mark)
        for pump in self._pumps:
            pump.join(_OUTPUT_SECONDS)

    def workers(self) -> set[int]:
        """The training processes and their children."""
        return set(marked(self._mark, "RANK"))

    def kill_workers(self, wanted: set[int]) -> bool:
        """Kill training processes, so that the agent restarts them; whether there were any."""
        found = wanted & self.workers()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(found)

    def _was_told_to_end(self) -> bool:
        """Whether a signal ended torchrun. Its exit code is 1 in any case; its output tells the cause."""
        try:
            found = json.loads(self._errors.read_bytes())
            return str(found["message"]["message"]).startswith("SignalException")
        except (OSError, ValueError, LookupError, TypeError):
            return False


def training_processes(agents: Iterable[Agent]) -> dict[int, set[int]]:
    """Return the processes of the command, by the number of their agent."""
    numbers = {agent.pid: agent.number for agent in agents}
    return {numbers[pid]: found for pid, found in children_with("RANK", numbers).items()}


class Store:
    """The rendezvous store of the agents, in its own process on a free local port."""

    def __init__(self, python: str) -> None:
        """Open the port and start the process. Agents can connect immediately. Raises OSError."""
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
            self.port = int(listening.getsockname()[1])
            self._process = subprocess.Popen(
                [python, "-m", "imagestrata.training_jobs.rendezvous_store", str(listening.fileno())],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                process_group=0,  # Ctrl-C must not end it: the agents still need it to shut down
            )
        self.pid = self._process.pid

    @property
    def is_there(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_OUTPUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def devices(tell: Callable[[str], None]) -> list[str]:
    """Return the GPUs of this machine as values for CUDA_VISIBLE_DEVICES."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is not None:
        return [name for name in told.split(",") if name]
    if not shutil.which("nvidia-smi"):
        return []
    tell("listing the GPUs with nvidia-smi")
    try:
        asked = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        found = subprocess.run(asked, capture_output=True, text=True, timeout=_DEVICES_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return found.stdout.split()


def _pump(source: IO[bytes], sink: IO[bytes], prefix: bytes) -> None:
    """Copy lines with a prefix. Keep reading if the output is closed, so that the writer is not blocked."""
    with source:
        for line in iter(lambda: source.readline(_MOST_LINE), b""):
            with _lock, contextlib.suppress(OSError, ValueError):
                sink.write(prefix + line.removesuffix(b"\n") + b"\n")
                sink.flush()
