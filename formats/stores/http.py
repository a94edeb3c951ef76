"""Requests to signed addresses of an object store, with little CPU: bodies go straight to and from the caller's memory.

The client libraries copy what they carry several times, and hash what they send; with a signed address neither is
needed. The addresses come from `Storage.signed`.
"""

import http.client
import os
import re
import ssl
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from formats.errors import RefusedError, StorageError
from formats.retries import Retries

_TIMEOUT_SECONDS = 20.0
_READS = 8
_SENDS = 6
"""How often a request is sent: what reads has nobody who tries again behind it, what writes has Spark."""
_TRY_AGAIN = (408, 429, 500, 502, 503, 504)
_CODE = re.compile(rb"<Code>([^<]*)</Code>")

Found = TypeVar("Found")


def ca_bundle() -> str | None:
    """The file of certificates that the environment names, as S3's client takes it; None: the system's own."""
    return os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE") or None


def tls_context() -> ssl.SSLContext:
    """What checks a server's certificate and name. Raises OSError for a `ca_bundle` that cannot be read."""
    return ssl.create_default_context(cafile=ca_bundle())


class Requests:
    """One connection that is kept between requests; for one thread. Requests that fail are sent again a few times.

    Raises FileNotFoundError for what is not there, and `StorageError` for what is refused or does not answer, naming
    ``place``, which is no address with a signature. ``reads`` says for how long reads are repeated.
    """

    def __init__(self, reads: Retries | None = None) -> None:
        self._reads = reads or Retries(_READS)
        self._connection: http.client.HTTPConnection | None = None
        self._server: tuple[str, str] | None = None

    def read_into(self, url: str, start: int, into: memoryview, *, place: str) -> int:
        """Read so many bytes of an object from there as fit; how many there were: fewer where it ends."""

        def read(connection: http.client.HTTPConnection, path: str) -> int:
            connection.request("GET", path, headers={"Range": f"bytes={start}-{start + len(into) - 1}"})
            answer = connection.getresponse()
            if answer.status == 416:  # it begins behind the end
                answer.read()
                return 0
            _check(answer, (200, 206), place)
            if answer.status == 200 and start:  # a store that knows no ranges
                raise StorageError(f"Wanted bytes from {start} of {place}. Found: the whole, not a part of it")
            done = 0
            while done < len(into) and (more := answer.readinto(into[done:])):
                done += more
            if answer.length:  # more than was asked for
                self._close()
            elif done < len(into) and answer.headers.get("Content-Length") != str(done):
                raise http.client.IncompleteRead(b"", len(into) - done)
            return done

        return self._tried(url, read, place, self._reads)

    def put(self, url: str, data: Sequence[bytes], *, place: str) -> str:
        """Send a body, of one or several parts; the ETag that the store gives it."""
        size = sum(map(len, data))

        def send(connection: http.client.HTTPConnection, path: str) -> str:
            broken = None
            try:
                connection.request("PUT", path, body=data, headers={"Content-Length": str(size)})
            except OSError as error:  # it may have refused already, before it has read all
                broken = error
                if connection.sock is None:  # it has not even taken the connection
                    raise
            try:
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException):
                raise broken or _LostError(f"no answer to a part of {size} bytes") from broken
            _check(answer, (200, 201), place)
            answer.read()
            return answer.headers.get("ETag", "")

        return self._tried(url, send, place, Retries(_SENDS))

    def close(self) -> None:
        """Let go of the connection."""
        self._close()

    def _tried(
        self, url: str, call: Callable[[http.client.HTTPConnection, str], Found], place: str, retries: Retries
    ) -> Found:
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        attempts = retries.begin()
        while True:
            try:
                return call(self._connected(parts.scheme, parts.netloc), path)
            except (_BusyError, OSError, http.client.HTTPException) as error:
                self._close()
                if isinstance(error, (StorageError, FileNotFoundError)):
                    raise
                # No repetition makes a certificate good.
                if isinstance(error, ssl.SSLCertVerificationError) or not attempts.again():
                    raise StorageError(f"Wanted {place}. Found: {_words(error)}, {attempts.count} times") from error

    def _connected(self, scheme: str, host: str) -> http.client.HTTPConnection:
        if self._connection is None or self._server != (scheme, host):
            self._close()
            self._server = scheme, host
            if scheme == "https":
                self._connection = http.client.HTTPSConnection(host, timeout=_TIMEOUT_SECONDS, context=tls_context())
            else:
                self._connection = http.client.HTTPConnection(host, timeout=_TIMEOUT_SECONDS)
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _LostError(OSError):
    """A connection ended before the answer."""


class _BusyError(Exception):
    """The store asks to be left alone for a while."""


def _check(answer: http.client.HTTPResponse, wanted: tuple[int, ...], place: str) -> None:
    if answer.status in wanted:
        return
    body = answer.read(4096)
    found = _CODE.search(body)
    code = found[1].decode() if found else answer.reason
    if answer.status in _TRY_AGAIN:
        raise _BusyError(f"{answer.status} {code}")
    if answer.status == 404 and code != "NoSuchBucket":
        raise FileNotFoundError(f"Wanted {place}. Found: no such object ({code})")
    if answer.status in (401, 403):
        raise RefusedError(f"Wanted {place}. Found: it is refused, not allowed to these keys ({code})")
    kind = RefusedError if code == "NoSuchBucket" else StorageError
    raise kind(f"Wanted {place}. Found: {answer.status} {code}")


def _words(error: Exception) -> str:
    words = " ".join(str(error).split())
    return f"no answer ({type(error).__name__}{': ' if words else ''}{words})"
