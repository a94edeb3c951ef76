"""HTTP requests to presigned URLs of an object store, without copies: bodies go directly to and from caller's buffers.

The client libraries copy bodies several times and hash what they send. With a presigned URL, neither is needed. The
URLs come from `Storage.signed`.
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

TIMEOUT_SECONDS = 20.0  # of a connection, and of each wait for bytes
# How often a request is sent. Writes have fewer attempts, because Spark retries their tasks.
_READS = 8
_SENDS = 6
_TRY_AGAIN = (408, 429, 500, 502, 503, 504)
_CODE = re.compile(rb"<Code>([^<]*)</Code>")

Found = TypeVar("Found")


def ca_bundle() -> str | None:
    """The file of CA certificates that the environment names, as for the S3 client, or None for the system's."""
    return os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE") or None


def tls_context() -> ssl.SSLContext:
    """A TLS context that verifies the server's certificate and name. Raises OSError if `ca_bundle` cannot be read."""
    return ssl.create_default_context(cafile=ca_bundle())


def connection(scheme: str, host: str) -> http.client.HTTPConnection:
    """A connection that the first request opens."""
    if scheme == "https":
        return http.client.HTTPSConnection(host, timeout=TIMEOUT_SECONDS, context=tls_context())
    return http.client.HTTPConnection(host, timeout=TIMEOUT_SECONDS)


# Not a pool of urllib3: for an object of 100 kB it takes 0.52 ms of CPU time instead of 0.32 ms, and 16 threads on two
# cores need 1.7 times as long.
class Requests:
    """One persistent connection, for one thread. Failed requests are retried a few times. Raises FileNotFoundError for
    a missing object, and `StorageError` if the store denies access or does not answer. Messages name ``place``, the
    address without a signature. ``connect`` makes a connection of a scheme and a host, which opens itself.
    """

    def __init__(
        self, reads: Retries | None = None, connect: Callable[[str, str], http.client.HTTPConnection] = connection
    ) -> None:
        self._reads, self._connect = reads or Retries(_READS), connect
        self._connection: http.client.HTTPConnection | None = None
        self._server: tuple[str, str] | None = None

    def read_into(self, url: str, start: int, into: memoryview, *, place: str) -> int:
        """Read bytes of an object from ``start`` into a buffer; return how many were read (fewer at the end)."""

        def read(connection: http.client.HTTPConnection, path: str) -> int:
            connection.request("GET", path, headers={"Range": f"bytes={start}-{start + len(into) - 1}"})
            answer = connection.getresponse()
            if answer.status == 416:  # the range begins after the end
                answer.read()
                return 0
            _check(answer, (200, 206), place)
            if answer.status == 200 and start:  # the store does not support ranges
                raise StorageError(f"Wanted bytes from {start} of {place}. Found: a store that ignores ranges")
            done = 0
            while done < len(into) and (more := answer.readinto(into[done:])):
                done += more
            # A connection that ends early is no error of `readinto`, and looks like the end of the object.
            if done < len(into) and answer.headers.get("Content-Length") != str(done):
                raise http.client.IncompleteRead(b"", len(into) - done)
            if not answer.isclosed():  # more than was requested
                self.close()
            return done

        return self._tried(url, read, place, self._reads)

    def put(self, url: str, data: Sequence[bytes], *, place: str) -> str:
        """Send a body in one or several parts, and return its ETag."""
        size = sum(map(len, data))

        def send(connection: http.client.HTTPConnection, path: str) -> str:
            broken = None
            try:
                connection.request("PUT", path, body=data, headers={"Content-Length": str(size)})
            except OSError as error:  # the store may have answered with an error before it read the whole body
                broken = error
                if connection.sock is None:  # the connection was never made
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
        """Close the connection. The next request opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

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
                self.close()
                if isinstance(error, (StorageError, FileNotFoundError)):
                    raise
                # Retrying does not help against a bad certificate.
                if isinstance(error, ssl.SSLCertVerificationError) or not attempts.again():
                    raise StorageError(f"Wanted {place}. Found: {_words(error)}, {attempts.count} times") from error

    def _connected(self, scheme: str, host: str) -> http.client.HTTPConnection:
        if self._connection is None or self._server != (scheme, host):
            self.close()
            self._server = scheme, host
            self._connection = self._connect(scheme, host)
        return self._connection


class _LostError(OSError):
    """The connection ended before the response."""


class _BusyError(Exception):
    """The store asks clients to slow down."""


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
        raise RefusedError(f"Wanted {place}. Found: access denied with these keys ({code})")
    kind = RefusedError if code == "NoSuchBucket" else StorageError
    raise kind(f"Wanted {place}. Found: {answer.status} {code}")


def _words(error: Exception) -> str:
    words = " ".join(str(error).split())
    return f"no answer ({type(error).__name__}{': ' if words else ''}{words})"
