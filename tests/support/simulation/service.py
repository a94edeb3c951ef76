"""The real dataset service in virtual time, and a network to it that fails: requests are cut, lost, repeated, delayed
and altered, and the service is killed at its writes and started again.
"""

import asyncio
import http.client
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import urllib3
from greenlet import getcurrent
from urllib3.exceptions import ProtocolError

from formats.stores.storage import Storage
from imagestrata.service.access import Access
from imagestrata.service.server.app import make_app
from imagestrata.service.server.hosts import Hosts
from imagestrata.service.stores import bodies, folders
from imagestrata.service.stores.folders import FolderStore
from imagestrata.service.tokens import Tokens
from imagestrata.service.uploads import states, uploads
from imagestrata.service.uploads.uploads import Uploads
from tests.support.simulation.clock import Clock
from tests.support.simulation.cluster import brief

URL = "http://127.0.0.1:8080"
_CHUNK = 700  # bytes of a body that arrive together
_LATENCY = 0.02  # seconds


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Network:
    """What happens to requests, as shares of them, and to the service; each at most ``faults`` times."""

    faults: int = 0
    cut: float = 0.0  # of the bodies of requests
    lost: float = 0.0  # responses
    broken: float = 0.0  # of the bodies of responses
    repeated: float = 0.0  # requests that arrive again later
    altered: float = 0.0  # parts of uploads with a wrong byte
    delayed: float = 0.0  # requests that arrive after up to 40 seconds
    interrupted: float = 0.0  # clients, before or after a response
    kills: float = 0.0  # of the service, of its writes

    __repr__ = brief


class InterruptError(BaseException):
    """A client is ended."""


@dataclass(slots=True)
class _Request:
    """A request on its way, and its response once that is complete."""

    scope: dict[str, Any]
    body: bytes
    cut: int | None = None  # the connection ends after so many bytes of the body
    parts: list[dict[str, Any]] = field(default_factory=list)
    is_over: bool = False
    is_lost: bool = False

    async def receive(self) -> dict[str, Any]:
        """The next part of the body."""
        await asyncio.sleep(0.001)
        if self.cut is not None and not self.cut:
            return {"type": "http.disconnect"}
        size = min(_CHUNK, len(self.body) if self.cut is None else self.cut)
        part, self.body = self.body[:size], self.body[size:]
        self.cut = None if self.cut is None else self.cut - size
        return {"type": "http.request", "body": part, "more_body": bool(self.body)}

    async def send(self, message: dict[str, Any]) -> None:
        """A part of the response."""
        self.parts.append(message)
        await asyncio.sleep(0)


class _Running:
    """A part of the service that runs now."""

    service: "Service"

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self.service, self._name), name)


@cache
def _app() -> Any:
    """The app of all services, one at a time: making one takes longer than most plays."""
    store, access, uploads = (_Running(name) for name in ("store", "access", "uploads"))
    return make_app(store, access=access, hosts=Hosts(["127.0.0.1"]), uploads=uploads)  # type: ignore[arg-type]


class Service:
    """The service over a folder, and the clients' connections to it."""

    def __init__(self, root: Path, clock: Clock, network: Network) -> None:
        self.root, self.clock, self.network = root, clock, network
        self.faults: Counter[str] = Counter()  # that have happened, by kind
        self.is_calm = False  # from now on
        self.altered = 0  # requests
        self.sent: Counter[Any] = Counter()  # bytes of uploads, by client
        self._open: list[_Request] = []
        self._graves: list[Any] = []  # of killed services, whose frames must not end
        self._is_up = False
        self._back = 0.0
        self.store: FolderStore
        self.start()

    def start(self) -> None:
        """Start the service."""
        self.store = FolderStore(self.root)
        self.access, self.uploads = Access(Tokens(Storage(self.root)), is_open=True), Uploads(self.store)
        _Running.service = self
        self._thread = self.clock.thread()
        self._loop = self._thread.loop
        self._app, self._is_up = _app(), True
        self._thread.start(self._loop.run_forever)

    def stop(self) -> None:
        """End the service, without a response to what it does now."""
        self._is_up = False
        for request in self._open:
            request.is_over = request.is_lost = True
        self._open.clear()
        self.clock.remove(self._thread)
        self._graves += [self._thread, self.store, self.uploads]
        self.store.close()  # as the system does when a process ends

    def end(self) -> None:
        """End what killed services have left."""
        with suppress(Exception):
            self.clock.stop()
        self._graves.clear()

    def at_a_write(self) -> None:
        """Kill the service here, perhaps; then this never returns."""
        if self._is_up and self._thread.has_turn and self.happens("kills"):
            self.stop()
            self._back = self.clock.now + self.clock.random.uniform(0.1, 5)
            self._thread.return_turn()

    def happens(self, kind: str, part: float = 1.0) -> bool:
        """Whether a fault happens now, or a part of it."""
        is_possible = not self.is_calm and self.faults[kind] < self.network.faults
        if not is_possible or self.clock.random.random() >= part * getattr(self.network, kind):
            return False
        self.faults[kind] += 1
        return True

    def _perhaps_interrupt(self) -> None:
        if self.happens("interrupted"):
            raise InterruptError

    def ask(self, method: str, url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> _Request:
        """Send a request and wait for its response. Raises `ProtocolError` if there is none, and `InterruptError`."""
        numbers = self.clock.random
        if method == "PATCH" and self.happens("altered"):
            place = numbers.randrange(len(body))
            body = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
            self.altered += 1
        request = self._request(method, url, body, headers)
        if body and self.happens("cut"):
            request.cut = numbers.randrange(len(body))
        is_lost = method != "GET" and self.happens("lost")
        if self.happens("repeated"):
            again = self._request(method, url, body, headers)
            later = numbers.choice((0.0, 0.005, numbers.uniform(0, 3)))
            self.clock.start(lambda: self._send(again, later), "again")
        delay = numbers.uniform(0, 40) if self.happens("delayed") else _LATENCY * numbers.random()
        self.clock.start(lambda: self._send(request, delay), "request")
        self._perhaps_interrupt()
        self.sent[getcurrent()] += len(body) if method == "PATCH" else 0
        is_here = self.clock.wait(lambda: request.is_over, seconds)
        if is_lost and numbers.random() < 0.5:  # and nothing says so
            self.clock.sleep(seconds)
        self._perhaps_interrupt()
        if not is_here or request.is_lost or is_lost or request.cut is not None:
            raise ProtocolError("Connection aborted.", ConnectionResetError(104, "Connection reset by peer"))
        return request

    def _request(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> _Request:
        parts = urlsplit(url)
        told = {"host": parts.netloc, "content-length": str(len(body)), **headers}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": parts.path,
            "raw_path": parts.path.encode(), "query_string": parts.query.encode(), "scheme": "http", "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in told.items()],
            "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 8080),
        }  # fmt: skip
        return _Request(scope, body)

    def _send(self, request: _Request, seconds: float) -> None:
        """Let a request arrive, after some seconds."""
        self.clock.sleep(seconds)
        if not self._is_up and self.clock.now >= self._back:
            self.start()
        if not self._is_up:
            request.is_over = request.is_lost = True
            return
        self._open.append(request)
        self._loop.call_soon(lambda: self._begin(request))

    def _begin(self, request: _Request) -> None:
        task = self._loop.create_task(self._app(request.scope, request.receive, request.send))
        task.add_done_callback(lambda done: self._end(request, done))

    def _end(self, request: _Request, task: "asyncio.Task[None]") -> None:
        if request in self._open:
            self._open.remove(request)
        request.is_over = True
        request.is_lost |= bool(task.cancelled() or task.exception()) or not request.parts

    @contextmanager
    def seams(self) -> Iterator[None]:
        """Put the service and its clients on the clock and the network."""

        async def inline(call: Callable[..., Any], *args: Any, **more: Any) -> Any:
            await asyncio.sleep(self.clock.random.choice((0.0, 0.0, 0.003)))
            more = {name: value for name, value in more.items() if name not in ("limiter", "abandon_on_cancel")}
            return call(*args, **more)

        def written(kind: Any, name: str) -> Any:
            whole = getattr(kind, name)

            def write(*args: Any, **more: Any) -> Any:
                self.at_a_write()
                found = whole(*args, **more)
                self.at_a_write()
                return found

            return patch.object(kind, name, write)

        writes = [
            (os, "rename"), (os, "replace"), (os, "truncate"), (folders, "sync"), (uploads, "sync"), (states, "sync"),
            (bodies, "_write"), (states.UploadStates, "finish"), (Uploads, "_forget"), (Path, "write_text"),
            (Path, "unlink"), (Path, "mkdir"),
        ]  # fmt: skip
        with ExitStack() as patched:
            for seam in (
                patch("asyncio.to_thread", inline),
                patch("anyio.to_thread.run_sync", inline),
                patch("urllib3.PoolManager", lambda **_: Pools(self)),
                patch.object(os, "fsync", lambda _: None),
                patch.object(bodies, "_BLOCKS", _Blocks()),
                *(written(kind, name) for kind, name in writes),
            ):
                patched.enter_context(seam)
            yield


class _Blocks(bodies.Blocks):
    """Small blocks, so that bodies have several."""

    def __init__(self) -> None:
        super().__init__(1, together=1)

    @property
    def size(self) -> int:
        """The size of a block."""
        return 1000


class _Received:
    """A socket from which bytes were received."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        """The bytes."""
        return io.BytesIO(self._data)


class Pools:
    """As `urllib3.PoolManager`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: Any, timeout: urllib3.Timeout, **_: Any
    ) -> urllib3.HTTPResponse:
        """Send a request. Raises `ProtocolError`."""
        sent = b"" if body is None else body if isinstance(body, bytes) else b"".join(body)
        service = self._service
        answer = service.ask(method, url, sent, headers, float(timeout.read_timeout or 30.0))
        data = b"" if method == "HEAD" else b"".join(part.get("body", b"") for part in answer.parts[1:])
        told = {b"content-length": str(len(data)).encode(), **dict(answer.parts[0]["headers"])}
        head = b"".join(name + b": " + value + b"\r\n" for name, value in told.items())
        is_download = told.get(b"content-type") != b"application/json"
        if data and service.happens("broken", 1.0 if is_download else 0.02):
            data = data[: service.clock.random.randrange(len(data))]
        received = b"HTTP/1.1 %d Status\r\n%s\r\n%s" % (answer.parts[0]["status"], head, data)
        response = http.client.HTTPResponse(_Received(received), method=method)  # type: ignore[arg-type]
        response.begin()
        return urllib3.HTTPResponse(
            response, headers=dict(response.getheaders()), status=response.status, reason=response.reason,
            preload_content=False, decode_content=False, original_response=response, request_method=method,
        )  # fmt: skip

    def clear(self) -> None:
        """Do nothing."""
