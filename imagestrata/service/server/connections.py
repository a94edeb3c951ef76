"""Limits of connections: their number, the size of headers, and the time that clients may take."""

import asyncio
import fcntl
import logging
import resource
import socket
import struct
import sys
import termios
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from imagestrata.service.server.problems import HEADERS, problem

MOST_HEADER_BYTES = 1 << 16
_FILES_BESIDES = 128  # files of downloads, of the storage and of the interpreter
_MOST_FILES = 1 << 16
_MOST_OF_ADDRESS = 1024
_TOO_LARGE = (431, "Wanted headers of at most 64 KiB. Found: more")
_BUSY = "Wanted at most {:,} connections {}. Found: more. Close some, or try again later{}"
_TOO_SLOW = (408, "Wanted the headers of a request within 20 seconds. Found: a part of them")
_LATE = "Wanted a body at {:g} KiB/s or more. Found: less. Use a resumable upload, which continues where it stopped"
_UNREADABLE = (400, "Wanted a request in HTTP/1.1. Found: something else")

log = logging.getLogger(__name__)


def raise_limit() -> int:
    """Raise the limit of open files to what the system allows, and return how many connections fit into it."""
    # Without a limit, too many connections would use up the files of other requests, and asyncio's log would fill the
    # disk.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(8, (files - _FILES_BESIDES) // 2)  # a download holds a file, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of connections. ``of_address`` limits the connections from one address, except from ``proxies``. Headers
    must arrive within ``head_seconds`` of the connection, and of their first byte. Bodies must arrive, and responses be
    read, at ``least_rate`` bytes per second, averaged over ``body_seconds`` and ``read_seconds``. Time in which the
    server does not read does not count.
    """

    connections: int
    of_address: int
    proxies: Sequence[str] = ()
    head_seconds: float = 20.0
    body_seconds: float = 30.0
    read_seconds: float = 300.0
    least_rate: float = 1024.0
    look_seconds: float = 5.0


class _Flow(FlowControl):
    """Flow control that counts the time without reading, and how often the send buffer was empty."""

    def __init__(self, transport: asyncio.Transport, clock: Callable[[], float]) -> None:
        super().__init__(transport)
        self._clock, self._paused, self._since = clock, 0.0, 0.0
        self.sent = 0

    @property
    def paused_seconds(self) -> float:
        """The total time without reading, in seconds."""
        return self._paused + (self._clock() - self._since if self.read_paused else 0.0)

    def pause_reading(self) -> None:
        if not self.read_paused:
            self._since = self._clock()
        super().pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self._paused += self._clock() - self._since
        super().resume_reading()

    def resume_writing(self) -> None:
        self.sent += self.write_paused
        super().resume_writing()


class Connection(HttpToolsProtocol):
    """A connection that is closed if its headers are too large or its client is too slow."""

    flow: _Flow

    def __init__(self, *args: Any, limits: Limits, addresses: Counter[str], **named: Any) -> None:
        super().__init__(*args, **named)
        self._limits, self._addresses = limits, addresses
        self._networks = [ip_network(one) for one in limits.proxies]
        self._address = ""
        self._header_bytes = 0
        self._is_in_headers, self._is_in_body, self._has_brought_body = True, False, False
        self._head_since: float | None = None
        self._bytes = self._bytes_around_body = 0
        self._body_mark = self._write_mark = (0.0, 0, 0)
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its own base
        super().connection_made(transport)
        self.flow = _Flow(transport, self.loop.time)
        self._address = self._counted_address()
        self._addresses[self._address] += 1
        if self._address and self._addresses[self._address] > self._limits.of_address:
            advice = "; if it is a proxy, start the service with --proxy"
            self._turn_away(429, _BUSY.format(self._limits.of_address, "from one address", advice))
            return
        if len(self.connections) > self._limits.connections:
            self._turn_away(503, _BUSY.format(self._limits.connections, "in all", ""))
            return
        self._head_since = self._now()
        self._write_mark = (self.loop.time(), 0, 0)
        self._watch = self.loop.call_later(self._limits.look_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._addresses[self._address] -= 1
        if self._addresses[self._address] <= 0:
            del self._addresses[self._address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        began_there = self._is_in_headers
        self._bytes += len(data)
        self._has_brought_body = False
        if self._head_since is None and not self._is_in_body:  # between requests
            self._head_since = self._now()
        super().data_received(data)
        self._bytes_around_body = 0 if self._has_brought_body else self._bytes_around_body + len(data)
        if began_there and self._is_in_headers:  # it had headers only
            self._header_bytes += len(data)
            if self._header_bytes > MOST_HEADER_BYTES:
                self._refuse(*_TOO_LARGE)
        elif not began_there and self._is_in_body and self._bytes_around_body > MOST_HEADER_BYTES:
            self._abort()  # the parser would collect trailers in memory

    def send_400_response(self, msg: str) -> None:
        self._refuse(*_UNREADABLE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_headers, self._header_bytes = True, 0
        self._is_in_body = False
        if self._head_since is None:
            self._head_since = self._now()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_headers:  # trailers would be read as headers, even those that a proxy controls
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._has_brought_body = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._is_in_headers, self._is_in_body = False, True
        self._head_since, self._bytes_around_body = None, 0
        self._body_mark = (self._now(), self._bytes, 0)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_in_body, self._head_since = False, None

    def _now(self) -> float:
        """The time, without the time in which the server did not read."""
        return self.loop.time() - self.flow.paused_seconds

    def _look(self) -> None:
        """Close the connection if its client is too slow."""
        self._watch = self.loop.call_later(self._limits.look_seconds, self._look)
        if self._head_since is not None and self._now() - self._head_since >= self._limits.head_seconds:
            self._head_since = None
            if self._bytes and (self.cycle is None or self.cycle.response_complete):
                self._refuse(*_TOO_SLOW)
            else:
                self._abort()
        elif self._is_in_body and self._is_body_late():
            if self.cycle.response_started:
                self._abort()
            else:
                self._refuse(408, _LATE.format(self._limits.least_rate / 1024))
        elif self._is_reader_late():
            self._abort()

    def _is_body_late(self) -> bool:
        began, count, _ = self._body_mark
        seconds = self._now() - began
        if seconds < self._limits.body_seconds:
            return False
        self._body_mark = (self._now(), self._bytes, 0)
        return self._bytes - count < seconds * self._limits.least_rate

    def _is_reader_late(self) -> bool:
        began, size, sent = self._write_mark
        waiting, seconds = self._unread(), self.loop.time() - began
        if waiting and sent == self.flow.sent and size and seconds < self._limits.read_seconds:
            return False
        self._write_mark = (self.loop.time(), waiting, self.flow.sent)
        return bool(waiting and sent == self.flow.sent and size) and size - waiting < seconds * self._limits.least_rate

    def _unread(self) -> int:
        """The bytes that the client has not read, including the system's buffer; 0 if nothing waits for it."""
        # The system accepts more bytes only when a third of its buffer is empty, which may be a megabyte.
        size = self.transport.get_write_buffer_size()
        if size:
            opened: socket.socket = self.transport.get_extra_info("socket")
            with suppress(OSError):
                size += int.from_bytes(fcntl.ioctl(opened.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return size

    def _counted_address(self) -> str:
        """The IPv4 address, or the network of the IPv6 address, that counts as one client; None for proxies."""
        try:
            address = ip_address((self.client or ("",))[0].partition("%")[0])
        except ValueError:
            return ""
        address = getattr(address, "ipv4_mapped", None) or address
        if any(address in network for network in self._networks):
            return ""
        return str(address) if address.version == 4 else str(ip_network((address, 64), strict=False))

    def _abort(self) -> None:
        """Close the connection immediately, and drop the bytes that the system has not sent."""
        opened: socket.socket = self.transport.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _turn_away(self, status: int, detail: str) -> None:
        """Refuse a connection above the limit."""
        log.warning("a connection of %s was refused: %s", self._address or "a proxy", detail)
        self._refuse(status, detail)

    def _refuse(self, status: int, detail: str) -> None:
        """Send an error response without a request, and close the connection."""
        phrase = HTTPStatus(status).phrase
        answer = problem({}, status, phrase, detail, {**HEADERS, "connection": "close"})
        head = b"".join(b"%s: %s\r\n" % header for header in answer.raw_headers)
        self.transport.write(b"HTTP/1.1 %d %s\r\n%s\r\n" % (status, phrase.encode(), head) + bytes(answer.body))
        self.transport.close()


def within(limits: Limits) -> Any:
    """Return the protocol class with these limits, for uvicorn."""
    return partial(Connection, limits=limits, addresses=Counter())


def limits_of(connections: int, proxies: Sequence[str] = ()) -> Limits:
    """Return the limits for a number of connections. One address may have a quarter of them."""
    return Limits(connections=connections, of_address=min(_MOST_OF_ADDRESS, max(8, connections // 4)), proxies=proxies)
