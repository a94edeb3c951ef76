"""Dataset services for tests, each a process of its own on a free port unless one is named; and requests to them."""

import http.client
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parent.parent
TAR = "application/x-tar"
FILE = "application/octet-stream"


@dataclass(frozen=True)
class Answer:
    """What came back: the status, the headers by their names in lower case, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """`python -m service` over a folder, until the block ends; over a bucket, ``root`` is the spool."""

    def __init__(
        self,
        root: Path,
        *options: str,
        limit: str = "",
        port: int = 0,
        bucket: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.root, self._limit, self._environment = root, limit, environment
        place = ["--root", bucket, "--spool", str(root)] if bucket else ["--root", str(root)]
        self._options = [*place, "--port", str(port), *options]

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "service", *self._options]
        if self._limit:
            command = ["bash", "-c", f'{self._limit}; exec "$@"', "bash", *command]
        self.log = open(self.root.with_suffix(".log"), "ab")
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self.log, text=True, env=self._environment
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.fullmatch(r"serving at http://(.+):(\d+)\n", line)
        assert found, line + self.root.with_suffix(".log").read_text()
        self.host, self.port = found[1], int(found[2])
        self.url = f"http://{found[1]}:{found[2]}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(self.host.strip("[]"), self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, told, answer.read())
        finally:
            connection.close()

    def create(self, name: str) -> None:
        body = json.dumps({"name": name}).encode()
        answer = self.ask("POST", "/datasets", body, {"Content-Type": "application/json"})
        assert answer.status == 201, answer.body

    def put(self, name: str, body: bytes, *, kind: str = FILE, filename: str = "", **headers: str) -> Answer:
        """Upload; header names with ``_`` for ``-``."""
        told = {"Content-Type": kind, **{key.replace("_", "-"): value for key, value in headers.items()}}
        if filename:
            told["Content-Disposition"] = f'attachment; filename="{filename}"'
        return self.ask("PUT", f"/datasets/{name}", body, told)


def tar_of(files: Mapping[str, bytes], *, kinds: Mapping[str, bytes] | None = None) -> bytes:
    """A tar of files by their names; ``kinds`` are types of members that are none."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name, kind in (kinds or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    return made.getvalue()
