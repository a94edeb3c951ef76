"""Runs many clients of a dataset service in one separate process.

A request has ``port``, ``clients``, ``seconds`` and ``seed``. Each client is a thread with a persistent connection. At
random, it requests lists, cards, files and ranges, uploads files and small folders, sends conditional requests for
unchanged versions, and resumes uploads. It checks the status of every answer, and that downloads have the uploaded
bytes. The answer: the number of requests by kind, and the failures.
"""

import hashlib
import http.client
import io
import json
import random
import tarfile
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

_MOST_BYTES = 2_000_000
_KEPT = 3
_TOLD = 20


class Client:
    """One client, with its own dataset. It knows the bytes of each version."""

    def __init__(self, port: int, number: int, seed: int) -> None:
        self._port, self._name = port, f"client-{number}"
        self._random = random.Random(f"{seed} {number}")
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._versions: dict[int, bytes] = {}
        self.counts: Counter[str] = Counter()
        self.failed: list[str] = []

    def run(self, until: float) -> None:
        """Send requests until the deadline."""
        self._expect(
            201, "POST", "/datasets", json.dumps({"name": self._name}).encode(), {"Content-Type": "application/json"}
        )
        self.put()
        kinds = (self.put, self.resumed, self.read, self.part, self.unchanged, self.listed, self.told)
        while time.monotonic() < until:
            (kind,) = self._random.choices(kinds, weights=(4, 2, 6, 8, 6, 3, 6))
            self.counts[kind.__name__] += 1
            try:
                kind()
            except Exception as error:  # any error counts as a failure
                self.failed.append(f"{kind.__name__}: {type(error).__name__}: {error}")
                self._connection.close()

    def put(self) -> None:
        """Upload a new version, and delete all but the newest few."""
        body, kind = self._body()
        told = json.loads(self._expect(200, "PUT", f"/datasets/{self._name}", body, {"Content-Type": kind}))
        self._published(told, body)

    def resumed(self) -> None:
        """Upload in two parts."""
        body, kind = self._body()
        tus = {"Tus-Resumable": "1.0.0"}
        metadata = f"filetype {b64encode(kind.encode()).decode()}"
        headers = {**tus, "Upload-Length": str(len(body)), "Upload-Metadata": metadata}
        self._expect(201, "POST", f"/datasets/{self._name}/uploads", b"", headers)
        place, half = self._headers["location"], len(body) // 2
        patch = {**tus, "Content-Type": "application/offset+octet-stream"}
        self._expect(204, "PATCH", place, body[:half], {**patch, "Upload-Offset": "0"})
        self._expect(200, "HEAD", place, None, tus)
        if self._headers["upload-offset"] != str(half):
            raise ValueError(f"{self._headers['upload-offset']} instead of {half}")
        self._expect(204, "PATCH", place, body[half:], {**patch, "Upload-Offset": str(half)})
        version, tag = self._headers["dataset-version"], self._headers["etag"]
        self._published({"version": version, "sha256": tag.strip('"')}, body)

    def read(self) -> None:
        """Download a whole version."""
        number = self._random.choice(list(self._versions))
        got = self._expect(200, "GET", f"/datasets/{self._name}?version={number}")
        if got != self._versions[number]:
            raise ValueError(f"other bytes in version {number}")

    def part(self) -> None:
        """Download a range of a version."""
        number = self._random.choice(list(self._versions))
        body = self._versions[number]
        start = self._random.randrange(len(body))
        got = self._expect(
            206, "GET", f"/datasets/{self._name}?version={number}", None, {"Range": f"bytes={start}-{start + 999}"}
        )
        if got != body[start : start + 1000]:
            raise ValueError(f"other bytes from {start} of version {number}")

    def unchanged(self) -> None:
        """Request a version that has not changed."""
        newest = max(self._versions)
        tag = f'"{hashlib.sha256(self._versions[newest]).hexdigest()}"'
        self._expect(304, "GET", f"/datasets/{self._name}", None, {"If-None-Match": tag})

    def listed(self) -> None:
        """Request the list of datasets."""
        found = json.loads(self._expect(200, "GET", "/datasets"))
        if self._name not in [one["name"] for one in found["datasets"]]:
            raise ValueError("not in the list")

    def told(self) -> None:
        """Request the card."""
        found = json.loads(self._expect(200, "GET", f"/datasets/{self._name}/card"))
        if {one["version"] for one in found["versions"]} != set(self._versions):
            raise ValueError("other versions")

    def sees_other_bytes(self) -> bool:
        """Whether other bytes than the uploaded ones are detected as a failure."""
        self._versions = dict.fromkeys(self._versions, b"other")
        try:
            self.read()
        except ValueError:
            return True
        return False

    def _published(self, told: dict[str, object], body: bytes) -> None:
        if told["sha256"] != hashlib.sha256(body).hexdigest():
            raise ValueError("another SHA-256")
        self._versions[int(str(told["version"]))] = body
        while len(self._versions) > _KEPT:
            oldest = min(self._versions)
            self._expect(204, "DELETE", f"/datasets/{self._name}?version={oldest}")
            del self._versions[oldest]

    def _body(self) -> tuple[bytes, str]:
        if self._random.random() < 0.5:
            return self._random.randbytes(self._random.randint(1, _MOST_BYTES)), "application/octet-stream"
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as tar:
            for number in range(self._random.randint(1, 60)):
                member = tarfile.TarInfo(f"class-{number % 4}/{number}.jpg")
                member.size = self._random.randint(0, 20_000)
                tar.addfile(member, io.BytesIO(self._random.randbytes(member.size)))
        return made.getvalue(), "application/x-tar"

    def _expect(
        self, status: int, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> bytes:
        asked = (method, path, body, headers or {})
        try:
            self._connection.request(*asked)
            answer = self._connection.getresponse()
        except (BrokenPipeError, ConnectionResetError):  # the server may end an idle connection: not a failure
            self._connection.close()
            self._connection.request(*asked)
            answer = self._connection.getresponse()
        got = answer.read()
        self._headers = {name.lower(): value for name, value in answer.getheaders()}
        if answer.status != status:
            raise ValueError(f"{answer.status} instead of {status} for {method} {path}: {got[:300]!r}")
        return got


def ask(order: Mapping[str, int]) -> dict[str, Any]:
    """Run all clients concurrently."""
    clients = [Client(order["port"], number, order["seed"]) for number in range(order["clients"])]
    until = time.monotonic() + order["seconds"]
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(Client.run, clients, repeat(until)))
    if not clients[0].sees_other_bytes():  # otherwise an absence of failures would mean nothing
        raise RuntimeError("Wanted a client to see that bytes are others. Found: it did not")
    counts: Counter[str] = sum((client.counts for client in clients), Counter())
    failed = [text for client in clients for text in client.failed]
    return {"counts": counts, "failed": len(failed), "told": failed[:_TOLD]}
