"""The agents of a job: torchruns, one for each of its processes, and what they say."""

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

from imagestrata.service.jobs.processes import MARK, children_with, kill_marked, marked

Outcome = Literal["running", "done", "lost", "failed"]

_MOST_LINE = 1 << 16
_OUTPUT_SECONDS = 5
_DEVICES_SECONDS = 60
_lock = threading.Lock()


class Agent:
    """A torchrun in a process group of its own; its lines come out with its number before each."""

    def __init__(self, number: int, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], logs: Path) -> None:
        """Raises OSError."""
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
        """How it is: lost, when a signal ended it, and failed, when it gave up itself."""
        code = self._process.poll()
        if code is None:
            return "running"
        if code == 0:
            return "done"
        return "lost" if code < 0 or self._was_told_to_end() else "failed"

    @property
    def code(self) -> str:
        """How it ended, in a word or two."""
        code = self._process.returncode
        return f"exit code {code}" if code >= 0 else f"signal {-code}, {signal.Signals(-code).name}"

    def signal(self, number: signal.Signals) -> None:
        """To the agent, which passes it on; SIGKILL to its whole group."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                self._process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def clear(self) -> None:
        """End all that an ended agent has left, and let its last lines out."""
        kill_marked(self._mark)
        for pump in self._pumps:
            pump.join(_OUTPUT_SECONDS)

    def workers(self) -> set[int]:
        """The processes that train, and those that they have started."""
        return set(marked(self._mark, "RANK"))

    def kill_workers(self, wanted: set[int]) -> bool:
        """Kill those of them that are still there, upon which the agent starts anew; whether there were any."""
        found = wanted & self.workers()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(found)

    def _was_told_to_end(self) -> bool:
        """torchrun ends with 1, also when a signal asked it to: what it has written tells them apart."""
        try:
            found = json.loads(self._errors.read_bytes())
            return str(found["message"]["message"]).startswith("SignalException")
        except (OSError, ValueError, LookupError, TypeError):
            return False


def training_processes(agents: Iterable[Agent]) -> dict[int, set[int]]:
    """The processes that torchruns have started for the command, by the numbers of their agents."""
    numbers = {agent.pid: agent.number for agent in agents}
    return {numbers[pid]: found for pid, found in children_with("RANK", numbers).items()}


class Store:
    """The place where agents meet, a process of its own on a free port of this machine."""

    def __init__(self, python: str) -> None:
        """Agents may come before it has begun: the port is open already. Raises OSError."""
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
            self.port = int(listening.getsockname()[1])
            self._process = subprocess.Popen(
                [python, "-m", "imagestrata.service.jobs.rendezvous_store", str(listening.fileno())],
                cwd=Path(__file__).parents[3],
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                process_group=0,  # Ctrl-C is for us: agents still need it to end well
            )
        self.pid = self._process.pid

    @property
    def is_there(self) -> bool:
        """Whether it goes on."""
        return self._process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_OUTPUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def devices(tell: Callable[[str], None]) -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is not None:
        return [name for name in told.split(",") if name]
    if not shutil.which("nvidia-smi"):
        return []
    tell("asking nvidia-smi for the GPUs of this machine")
    try:
        asked = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        found = subprocess.run(asked, capture_output=True, text=True, timeout=_DEVICES_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return found.stdout.split()


def _pump(source: IO[bytes], sink: IO[bytes], prefix: bytes) -> None:
    """Pass lines on; also when nobody reads them any more, so that who writes them goes on."""
    with source:
        for line in iter(lambda: source.readline(_MOST_LINE), b""):
            with _lock, contextlib.suppress(OSError, ValueError):
                sink.write(prefix + line.removesuffix(b"\n") + b"\n")
                sink.flush()
