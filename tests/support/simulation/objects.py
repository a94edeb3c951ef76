"""A simulated object store, below the HTTP client of the loader: objects, and the weather in which it answers."""

import http.client
import re
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from formats.retries import Retries
from formats.stores.http import TIMEOUT_SECONDS, Requests
from loader.errors import UnreachableError
from tests.support.simulation.clock import Clock
from tests.support.simulation.cluster import Ledger, Weather

_FAULTS = 4  # of one range of bytes, so that a read succeeds within its timeout
_RANGE = re.compile(rb"GET /([^ ?]+)\?\S* HTTP/1.1\r\n.*Range: bytes=([0-9]+)-([0-9]+)\r\n", re.S)
_BUSY = ((500, "InternalError"), (503, "SlowDown"), (503, ""), (429, "TooManyRequests"))
_CHUNK = 1000  # bytes that arrive together
_SILENT = float("inf")


class ObjectStore:
    """As `Storage` and its connections. ``pieces`` names the piece at a place of an object: each is altered once."""

    is_s3, is_local, address = True, False, "s3://simulated/shards"

    def __init__(
        self, clock: Clock, objects: Mapping[str, bytes], pieces: Mapping[tuple[str, int], Any], weather: Weather,
        ledger: Ledger,
    ) -> None:  # fmt: skip
        self.clock, self.weather, self._ledger = clock, weather, ledger
        self._objects, self._pieces = objects, pieces
        self._faults: Counter[Any] = Counter()
        self._lost = 0
        self._altered: set[Any] = set()
        self._buffers: dict[int, int] = {}

    def storage(self, bucket: str, folder: str) -> "ObjectStore":
        """Connect, as `Client.storage`. Raises `UnreachableError` in the first attempt of a late start."""
        self.clock.sleep(self.weather.latency)
        self._ledger.connections += 1
        if self.weather.late_start and self._ledger.connections == 1:
            raise UnreachableError("Wanted a simulated store. Found: it has not started")
        return self

    def signed(self, name: str) -> str:
        """The address of an object."""
        return f"http://store/{name}?signature"

    def requests(self, reads: Retries) -> Requests:
        """A connection for one thread."""
        return Requests(reads, lambda scheme, host: _Connection(self))

    @property
    def is_away(self) -> bool:
        """Whether nothing answers now."""
        begin, duration = self.weather.outage
        return begin <= self.clock.now < begin + duration

    def answer(self, request: bytes) -> Iterator[tuple[float, bytes]]:
        """When the parts of an answer arrive, and what; the connection ends after a part that is empty."""
        clock, weather, numbers = self.clock, self.weather, self.clock.random
        found = _RANGE.match(request)
        assert found is not None, request
        name, start, stop = found[1].decode(), int(found[2]), int(found[3]) + 1
        key = (name, start, stop)
        self._ledger.sent(0)
        at = clock.now + weather.latency + weather.jitter * numbers.random()
        if numbers.random() < weather.stragglers:
            at += weather.latency * numbers.uniform(1, 100)
        if self._lost < weather.lost and numbers.random() < 0.1 and self._may_fail((key, "lost"), 1):
            self._lost += 1
            yield _SILENT, b""
        whole = self._whole(key)
        if numbers.random() < weather.cut and self._may_fail(key):
            whole = whole[: numbers.randrange(len(whole))]
        step = _CHUNK if weather.bandwidth else max(1, len(whole))
        for place in range(0, len(whole), step):
            at += step / weather.bandwidth if weather.bandwidth else 0.0
            yield at, whole[place : place + step]
        yield at, b""

    def _whole(self, key: tuple[str, int, int]) -> bytes:
        """The bytes of an answer, head and body."""
        numbers, (name, start, stop) = self.clock.random, key
        if numbers.random() < self.weather.refused and self._may_fail(key):
            status, code = numbers.choice(_BUSY)
            return _told(status, f"<Error><Code>{code}</Code></Error>".encode() if code else b"")
        if name not in self._objects:
            return _told(404, b"<Error><Code>NoSuchKey</Code></Error>")
        data = self._objects[name]
        if start >= len(data):
            return _told(416, b"<Error><Code>InvalidRange</Code></Error>")
        body = data[start:stop]
        piece = self._pieces.get((name, start))
        if piece is not None and numbers.random() < self.weather.altered and piece not in self._altered:
            self._altered.add(piece)
            place = numbers.randrange(len(body))
            body = body[:place] + bytes([body[place] ^ 4]) + body[place + 1 :]
        return _told(206, body)

    def _may_fail(self, key: Any, most: int = _FAULTS) -> bool:
        self._faults[key] += 1
        return self._faults[key] <= most

    def fills(self, buffer: memoryview) -> None:
        """Bytes are written to a buffer of the loader, which counts until it is freed."""
        owner = buffer.obj
        if id(owner) not in self._buffers:
            self._buffers[id(owner)] = len(owner)  # type: ignore[arg-type]
            weakref.finalize(owner, self._buffers.pop, id(owner)).atexit = False
        self._ledger.buffered = max(self._ledger.buffered, sum(self._buffers.values()))


def _told(status: int, body: bytes) -> bytes:
    reason = http.client.responses[status]
    return f"HTTP/1.1 {status} {reason}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class _Connection(http.client.HTTPConnection):
    """A connection to the store."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__("store", timeout=TIMEOUT_SECONDS)
        self._store = store

    def connect(self) -> None:
        """Connect. Raises OSError while nothing answers."""
        self._store.clock.sleep(self._store.weather.latency)
        if self._store.is_away:
            raise ConnectionRefusedError("the store is away")
        self.sock: Any = _Socket(self._store)


class _Socket:
    """One connection: what is sent, and the file of its answers."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._parts: Iterator[tuple[float, bytes]] = iter(())
        self._here, self._is_over = b"", False

    def sendall(self, data: bytes) -> None:
        """Send a request. Raises OSError if the other side has ended the connection."""
        if self._is_over:
            raise BrokenPipeError("the connection has ended")
        self._parts = self._store.answer(bytes(data))

    def makefile(self, mode: str) -> "_Socket":
        """What is received."""
        return self

    def readline(self, limit: int) -> bytes:
        """Read a line; what there is if the connection ends."""
        while b"\n" not in self._here and self._more():
            pass
        end = self._here.find(b"\n") + 1 or len(self._here)
        found, self._here = self._here[:end], self._here[end:]
        return found

    def read(self, count: int = -1) -> bytes:
        """Read so many bytes; fewer if the connection ends."""
        while (count < 0 or len(self._here) < count) and self._more():
            pass
        end = len(self._here) if count < 0 else count
        found, self._here = self._here[:end], self._here[end:]
        return found

    def readinto(self, into: memoryview) -> int:
        """Read what there is into a buffer."""
        if not self._here:
            self._more()
        found, self._here = self._here[: len(into)], self._here[len(into) :]
        into[: len(found)] = found
        self._store.fills(into)
        return len(found)

    def _more(self) -> bool:
        """Wait for more; whether there is any. Raises OSError."""
        store = self._store
        if self._is_over:
            return False
        at, data = next(self._parts)
        if at - store.clock.now > TIMEOUT_SECONDS:
            store.clock.sleep(TIMEOUT_SECONDS)
            raise TimeoutError("timed out")
        store.clock.sleep(max(0.0, at - store.clock.now))
        if store.is_away:
            self._is_over = True
            if store.clock.random.random() < 0.5:
                raise ConnectionResetError("the store is away")
            return False
        self._here += data
        self._is_over = not data
        return bool(data)

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """End it."""
