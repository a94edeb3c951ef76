"""A dataset service on 127.0.0.1 in its own process, for tests and benchmarks. It stops when the block ends:

    with DatasetServer(tmp_path / "root") as server:
        server.create("x")
        server.ask("PUT", "/datasets/x", b"bytes").json["version"]

Its folder stays. The log of its requests is beside the folder, in ``root.log``.
"""

import http.client
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from imagestrata.devstack import NodeError

_ROOT = Path(__file__).resolve().parents[3]
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Answer:
    """A response: the status, the headers by lower-case name, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed as JSON."""
        return json.loads(self.body)


class DatasetServer:
    """`imagestrata serve`, as a context manager. ``root`` is the folder of datasets, or the spool if a ``bucket`` has
    them. ``limit`` is a bash command to run before it, such as ``ulimit -v 1000000``. Raises `NodeError` if the service
    does not start.
    """

    def __init__(
        self,
        root: Path,
        *options: str,
        limit: str = "",
        port: int = 0,
        bucket: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.root, self._environment = root, environment
        place = ["--root", bucket, "--spool", str(root)] if bucket else ["--root", str(root)]
        before = ["bash", "-c", f'{limit}; exec "$@"', "bash"] if limit else []
        self._command = [*before, sys.executable, "-m", "imagestrata", "serve", *place, "--port", str(port), *options]
        self.log = root.with_name(f"{root.name}.log")

    def __enter__(self) -> Self:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment
            )
        assert self.process.stdout is not None
        late = threading.Timer(_START_SECONDS, self.process.kill)
        late.start()
        line = self.process.stdout.readline()
        late.cancel()
        found = re.fullmatch(r"serving at http://(.+):(\d+)\n", line)
        if found is None:
            self.kill()
            said = " ".join(self.log.read_text(errors="replace").splitlines()[-1:])
            raise NodeError(f"Wanted a dataset service over {self.root}. Found: it did not start: {said or line}")
        self.host, self.port = found[1].strip("[]"), int(found[2])
        self.url = f"http://{found[1]}:{found[2]}"
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:  # closes its output
            self.process.terminate()
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request over a new connection. Raises OSError, http.client.HTTPException."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, told, answer.read())
        finally:
            connection.close()

    def create(self, name: str) -> None:
        """Create a dataset. Raises `NodeError`."""
        body = json.dumps({"name": name}).encode()
        answer = self.ask("POST", "/datasets", body, {"Content-Type": "application/json"})
        if answer.status != 201:
            raise NodeError(f"Wanted a new dataset {name!r}. Found: {answer.status} {answer.body!r}")
