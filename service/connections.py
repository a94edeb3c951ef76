"""Connections of the server: bounded in number, in the size of their headers, and in how long nothing comes of them."""

import asyncio
import resource
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEADER_BYTES = 1 << 16
QUIET_SECONDS = 60.0
_FILES_BESIDES = 128  # of what is served, of the storage, and of the interpreter
_MOST_FILES = 1 << 16
_REFUSED = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n"
    b"connection: close\r\n\r\n"
)


def raise_limit() -> int:
    """Let this process open as many files as its system allows; how many connections it may hold then.

    Without a bound, whoever opens more takes the files from those who are served, and asyncio's log fills the disk.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(8, (files - _FILES_BESIDES) // 2)  # a download holds a file besides


class Connection(HttpToolsProtocol):
    """A connection that ends when its headers are too large, or when it owes bytes for too long."""

    def __init__(self, *args: Any, most: int, **named: Any) -> None:
        super().__init__(*args, **named)
        self._most = most
        self._header_bytes = 0
        self._is_in_headers = True
        self._since = 0.0
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its own base
        super().connection_made(transport)
        if len(self.connections) > self._most:
            transport.abort()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        began_there = self._is_in_headers
        self._wait()
        super().data_received(data)
        if began_there and self._is_in_headers:  # all of it was headers
            self._header_bytes += len(data)
            if self._header_bytes > MOST_HEADER_BYTES:
                self.transport.write(_REFUSED)
                self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_headers, self._header_bytes = True, 0
        self._wait()

    def on_headers_complete(self) -> None:
        self._is_in_headers = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self._watch is not None:  # from here on the answer is ours, and then uvicorn's own time begins
            self._watch.cancel()
            self._watch = None

    def _wait(self) -> None:
        """It owes bytes, from now on."""
        self._since = self.loop.time()
        if self._watch is None:
            self._watch = self.loop.call_later(QUIET_SECONDS, self._end)

    def _end(self) -> None:
        """Nothing came for so long, unless something did meanwhile, or it is us who do not read."""
        left = self._since + QUIET_SECONDS - self.loop.time()
        if left > 0 or self.flow.read_paused:
            self._watch = self.loop.call_later(max(left, 1.0), self._end)
        else:
            self.transport.abort()


def at_most(connections: int) -> Any:
    """What makes so many connections at a time, for uvicorn."""
    return partial(Connection, most=connections)
