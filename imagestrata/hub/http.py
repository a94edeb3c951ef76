"""Requests to a dataset service, over the standard library: problems become errors, who is away is asked again."""

import http.client
import json
import logging
import os
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

from formats.retries import Attempts, Retries
from formats.stores.http import ca_bundle, connection_to
from imagestrata.hub.errors import AccessError, DatasetError, OptionError, UnreachableError

TIMEOUT_SECONDS = 30.0
_AWAY = (408, 429, 502, 503, 504)
_MOVED = (301, 302, 307, 308)
_MOST_MOVES = 5
_MOST_TOLD = 1 << 16
_TOKEN = re.compile(r"[\x21-\x7e]+")

log = logging.getLogger(__name__)


class LostError(Exception):
    """No answer came, or the service asks to be left alone for a while."""


@dataclass(frozen=True, slots=True)
class Service:
    """Where a service is, what opens it, and how many seconds it may be away."""

    url: str
    token: str | None = field(repr=False)
    patience: float

    @classmethod
    def at(cls, url: str, token: str | None, patience: float) -> Self:
        """One by its address; without a token, that of the environment. Raises `OptionError`."""
        parts = urlsplit(url if isinstance(url, str) else "")
        try:
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or "@" in parts.netloc or parts.query or parts.fragment or not url.isprintable():
            shown = repr(re.sub(r"//[^/]*@", "//…@", url) if isinstance(url, str) else url)  # no password is shown
            raise OptionError(f"Wanted the address of a service, such as http://host:8080. Found: {shown}")
        token = os.environ.get("IMAGESTRATA_TOKEN") if token is None else token
        if token and not (isinstance(token, str) and _TOKEN.fullmatch(token.strip())):
            raise OptionError("Wanted a token of one word. Found: one with blanks or other signs")
        if not 0 < patience < float("inf"):
            raise OptionError(f"Wanted patience as seconds above 0. Found: {patience!r}")
        return cls(url.rstrip("/"), token.strip() if token else None, patience)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: its status, headers by their names in any case, and what its JSON says."""

    status: int
    headers: http.client.HTTPMessage
    json: Any


class Tries:
    """The attempts at one thing, until a service has been away for too long without any progress in between."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._attempts: Attempts | None = None

    def progress(self) -> None:
        """It went on."""
        self._attempts = None

    def again(self, error: Exception) -> None:
        """Wait a little before the next attempt. Raises `UnreachableError` when there have been enough."""
        words = _words(error)
        if self._attempts is None:
            self._attempts = Retries(seconds=self._service.patience).begin()
            log.warning("%s: %s; trying again for %.0f s", self._service.url, words, self._service.patience)
        if not self._attempts.again():
            raise UnreachableError(
                f"Wanted an answer from {self._service.url}. Found: {words}, {self._attempts.count} times in "
                f"{self._attempts.seconds:.0f} s (see that the service runs; then call this again, it goes on)"
            ) from error


class Connection:
    """One connection to a service, kept between requests; for one thread. Use it as a context manager."""

    def __init__(self, service: Service) -> None:
        self.service = service
        parts = urlsplit(service.url)
        self._origin, self._base = (parts.scheme, parts.netloc), parts.path
        self._kept: http.client.HTTPConnection | None = None
        self._other: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what is open."""
        for connection in (self._kept, self._other):
            if connection is not None:
                connection.close()
        self._kept = self._other = None

    def ask(
        self, method: str, path: str, *, body: Any = None, headers: Mapping[str, str] | None = None,
        fine: tuple[int, ...] = (200,), keys: tuple[str, ...] = (),
    ) -> Answer:  # fmt: skip
        """A small request, repeated while nobody answers, and its whole answer.

        Raises `AccessError`, `UnreachableError`, and `DatasetError` for statuses that are not ``fine``, and for a 200
        without JSON that has the ``keys``.
        """
        told = dict(headers or {})
        data = None
        if body is not None:
            data, told["Content-Type"] = json.dumps(body).encode(), "application/json"
        tries = Tries(self.service)
        while True:
            try:
                answer = self.whole(self.send(method, path, headers=told, body=data), fine)
            except LostError as error:
                tries.again(error)
                continue
            if answer.status == 200 and keys and not (isinstance(answer.json, dict) and answer.json.keys() >= {*keys}):
                raise DatasetError(f"Wanted a dataset service at {self.service.url}. Found: it answers something else")
            return answer

    def send(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None = None,
        seconds: float = TIMEOUT_SECONDS,
    ) -> http.client.HTTPResponse:  # fmt: skip
        """One request, once; blocks of a body need a Content-Length. ``seconds``: how long its answer may take.

        Raises `LostError`, `AccessError` for a certificate, and what making the body raises.
        """
        if self._kept is None:
            self._kept = _connection(*self._origin)
        told = {**headers, **({"Authorization": f"Bearer {self.service.token}"} if self.service.token else {})}
        try:
            return _sent(self._kept, method, self._base + path, told, body, seconds)
        except BaseException:
            self.close()
            raise

    def get(self, path: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """The answer with a body that is to be read, from where the service says that it lies. Raises as `send`."""
        answer = self.send("GET", path, headers=headers)
        url = self.service.url + path
        for _ in range(_MOST_MOVES):
            if answer.status not in _MOVED or not (moved := answer.headers.get("Location")):
                return answer
            answer.close()
            self.close()
            url = urljoin(url, moved)
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https"):
                raise DatasetError(f"Wanted bytes over HTTP from {self.service.url}. Found: they are at {parts.scheme}")
            # Another's tag is not the one that the service knows, and the token is nobody else's.
            told = {name: value for name, value in headers.items() if name.lower() != "if-range"}
            if (parts.scheme, parts.netloc) == self._origin and self.service.token:
                told["Authorization"] = f"Bearer {self.service.token}"
            self._other = _connection(parts.scheme, parts.netloc)
            address = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
            answer = _sent(self._other, "GET", address, told, None, TIMEOUT_SECONDS)
        raise DatasetError(f"Wanted bytes from {self.service.url}. Found: it leads on, more than {_MOST_MOVES} times")

    def whole(self, answer: http.client.HTTPResponse, fine: tuple[int, ...]) -> Answer:
        """All of an answer. Raises `LostError`, and as `ask` for one that is not ``fine``."""
        is_problem = answer.status not in fine
        try:
            body = answer.read(_MOST_TOLD) if is_problem else answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise LostError(_words(error)) from error
        if answer.will_close or not answer.isclosed():
            self.close()
        found = None
        with suppress(ValueError):
            found = json.loads(body) if body else None
        if is_problem:
            self._refuse(answer, found if isinstance(found, dict) else {})
        if found is None and body:
            raise DatasetError(f"Wanted a dataset service at {self.service.url}. Found: it answers something else")
        return Answer(answer.status, answer.headers, found)

    def _refuse(self, answer: http.client.HTTPResponse, problem: Mapping[str, Any]) -> None:
        if answer.status in _AWAY:
            advice = _line(problem.get("detail") or "")
            raise LostError(f"{answer.status} {answer.reason}" + (f": {advice}" if advice else ""))
        title = _line(problem.get("title") or answer.reason or "an error")
        name = _line(problem.get("request_id") or answer.headers.get("x-request-id") or "")
        request = f", request {name}" if name else ""
        detail = _line(problem.get("detail") or f"Wanted an answer of a dataset service. Found: {title}")
        kind = AccessError if answer.status in (401, 403) else DatasetError
        raise kind(f"{detail} ({title}: {answer.status} of {self.service.url}{request})")


def _connection(scheme: str, host: str) -> http.client.HTTPConnection:
    try:
        return connection_to(scheme, host, timeout=TIMEOUT_SECONDS)
    except OSError as error:
        raise OptionError(f"Wanted certificates in {ca_bundle()} ($AWS_CA_BUNDLE). Found: {_words(error)}") from None


def _sent(
    connection: http.client.HTTPConnection, method: str, address: str, headers: Mapping[str, str],
    body: bytes | Iterable[bytes] | None, seconds: float,
) -> http.client.HTTPResponse:  # fmt: skip
    try:
        if connection.sock is None:
            connection.connect()
            opened: Any = connection.sock
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that vanishes is noticed
        connection.sock.settimeout(TIMEOUT_SECONDS)
        if body is None or isinstance(body, bytes):
            connection.request(method, address, body=body, headers=dict(headers))
        else:
            connection.putrequest(method, address, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            for block in body:
                try:
                    connection.send(block)
                except OSError as error:  # it may have refused already, before it has read all
                    return _early(connection, error)
        connection.sock.settimeout(seconds)
        return connection.getresponse()
    except ssl.SSLCertVerificationError as error:
        raise AccessError(
            f"Wanted a certificate of {connection.host} that is trusted here. Found: {_words(error)} (name the file "
            "with its authority in $AWS_CA_BUNDLE)"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise LostError(_words(error)) from error


def _early(connection: http.client.HTTPConnection, broken: OSError) -> http.client.HTTPResponse:
    """The answer to a request of which not all was sent, if there is one; the connection is not used again."""
    try:
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException):
        raise broken from None
    answer.will_close = True
    return answer


def _words(error: Exception) -> str:
    if isinstance(error, LostError):
        return str(error)
    return _line((isinstance(error, OSError) and error.strerror) or error) or type(error).__name__


def _line(words: object) -> str:
    return " ".join(str(words).split())[:500]
