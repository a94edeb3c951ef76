"""A TCP proxy, written in Go, that delays every byte and limits the bytes in flight, as if a node were far away."""

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from imagestrata.devstack import NodeError, golang

SOURCE = Path(__file__).with_name("delay_proxy")
WINDOW = 3_000_000
_END_SECONDS = 10.0


@dataclass(frozen=True)
class Carried:
    """The traffic of a proxy: connections, bytes in each direction, delayed responses, and CPU seconds."""

    connections: int
    bytes_to_server: int
    bytes_from_server: int
    held: int
    cpu_seconds: float


class DelayProxy:
    """A proxy on a free port of 127.0.0.1 in front of a server; a context manager. ``rtt`` is the round-trip time in
    seconds, ``window`` the most bytes in flight in each direction of a connection. A share of the responses with rows,
    ``hold_share``, is chosen by ``seed`` and delayed by ``hold`` more seconds.
    """

    def __init__(
        self,
        port: int,
        *,
        rtt: float,
        window: int = WINDOW,
        hold_share: float = 0.0,
        hold: float = 2.0,
        seed: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        self._command = [str(build()), "-to", f"{host}:{port}", "-rtt", f"{rtt * 1e6:.0f}us", "-window", str(window)]
        self._command += ["-hold-share", str(hold_share), "-hold", f"{hold * 1e6:.0f}us", "-seed", str(seed)]
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.strip():
            process.wait()
            raise NodeError(f"wanted the port of a proxy. Found: it ended with exit code {process.returncode}")
        self.port, self._process = int(line), process
        return self

    @property
    def pid(self) -> int:
        """The pid of its process, while it runs."""
        assert self._process is not None
        return self._process.pid

    def end(self) -> Carried:
        """Stop it with all its connections, and return its traffic."""
        assert self._process is not None
        process, self._process = self._process, None
        try:
            told, _ = process.communicate(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        found: dict[str, Any] = json.loads(told)
        return Carried(**found)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.end()


def build() -> Path:
    """The path of the program, built once per machine and source. Raises `SetupError` with the error of Go."""
    sources = [*sorted(SOURCE.glob("*.go")), SOURCE / "go.mod"]
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in sources)).hexdigest()[:16]
    return golang.built("delayproxy", digest, SOURCE)
