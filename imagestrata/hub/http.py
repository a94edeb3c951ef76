"""Requests to a dataset service: problems become errors, and lost requests are repeated."""

import json
import logging
import os
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError, LocationValueError

from formats.retries import Attempts, Retries
from formats.stores.http import ca_bundle, tls_context
from imagestrata.hub.errors import AccessError, DatasetError, OptionError, UnreachableError

TIMEOUT_SECONDS = 30.0
_AWAY = (408, 429, 502, 503, 504)
_MOST_REDIRECTS = 5
_SOCKET_OPTIONS = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
"""Keep-alive detects a host that disappears."""
_MOST_TOLD = 1 << 16
_TOKEN = re.compile(r"[\x21-\x7e]+")

Response = urllib3.BaseHTTPResponse

log = logging.getLogger(__name__)


class LostError(Exception):
    """No response arrived, or the service asks to retry later."""


@dataclass(frozen=True, slots=True)
class Service:
    """The address of a service, its token, and how many seconds to wait for it."""

    url: str
    token: str | None = field(repr=False)
    retry_seconds: float

    @classmethod
    def at(cls, url: str, token: str | None, patience: float) -> Self:
        """Check the arguments. The default token is that of the environment. Raises `OptionError`."""
        parts = urlsplit(url if isinstance(url, str) else "")
        try:
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or "@" in parts.netloc or parts.query or parts.fragment or not url.isprintable():
            shown = repr(re.sub(r"//[^/]*@", "//…@", url) if isinstance(url, str) else url)  # hides a password
            raise OptionError(f"Wanted the address of a service, such as http://host:8080. Found: {shown}")
        token = os.environ.get("IMAGESTRATA_TOKEN") if token is None else token
        if token and not (isinstance(token, str) and _TOKEN.fullmatch(token.strip())):
            raise OptionError("Wanted a token of one word. Found: spaces or other characters in it")
        if not 0 < patience < float("inf"):
            raise OptionError(f"Wanted patience above 0 seconds. Found: {patience!r}")
        return cls(url.rstrip("/"), token.strip() if token else None, patience)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response: its status, its headers (case-insensitive) and its parsed JSON."""

    status: int
    headers: Mapping[str, str]
    json: Any


class Tries:
    """Attempts at a request, until the service has not responded for too long without any progress."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._attempts: Attempts | None = None

    def progress(self) -> None:
        """Record progress: the time limit starts again."""
        self._attempts = None

    def again(self, error: Exception) -> None:
        """Wait before the next attempt. Raises `UnreachableError` when the time is up."""
        found = words(error)
        if self._attempts is None:
            self._attempts = Retries(seconds=self._service.retry_seconds).begin()
            log.warning("%s: %s; retrying for %.0f s", self._service.url, found, self._service.retry_seconds)
        if not self._attempts.again():
            raise UnreachableError(
                f"Wanted a response from {self._service.url}. Found: {found}, {self._attempts.count} times in "
                f"{self._attempts.seconds:.0f} s (check that the service is running; the next call continues)"
            ) from error


class Connection:
    """Connections to a service, reused between requests. For one thread, as a context manager. Raises `OptionError` if
    the certificates in $AWS_CA_BUNDLE cannot be read.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        tls: dict[str, Any] = {}
        if service.url.startswith("https:") or ca_bundle():
            try:
                tls = {"ssl_context": tls_context()}
            except OSError as error:
                raise OptionError(
                    f"Wanted certificates in {ca_bundle()} ($AWS_CA_BUNDLE). Found: {words(error)}"
                ) from None
        self._pools = urllib3.PoolManager(socket_options=_SOCKET_OPTIONS, retries=False, **tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pools.clear()

    def ask(
        self, method: str, path: str, *, body: Any = None, headers: Mapping[str, str] | None = None,
        fine: tuple[int, ...] = (200,), keys: tuple[str, ...] = (),
    ) -> Answer:  # fmt: skip
        """Send a small request, repeat it while there is no response, and return the whole response. Raises
        `AccessError`, `UnreachableError`, and `DatasetError` for statuses that are not ``fine`` and for a 200 whose
        JSON lacks the ``keys``.
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
                raise DatasetError(f"Wanted a dataset service at {self.service.url}. Found: something else responds")
            return answer

    def send(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None = None,
        seconds: float = TIMEOUT_SECONDS, follow: bool = False,
    ) -> Response:  # fmt: skip
        """Send one request once and wait ``seconds`` for the response; ``follow`` follows redirects, without the token.
        A body of blocks needs a Content-Length. Raises `LostError`, `AccessError` for a certificate, `DatasetError`,
        and errors of the body's iterator.
        """
        url, told = self.service.url + path, dict(headers)
        for _ in range(_MOST_REDIRECTS + 1):
            # The token is for the service only, and not for a bucket to which it redirects.
            if self.service.token and urlsplit(url)[:2] == urlsplit(self.service.url)[:2]:
                told["Authorization"] = f"Bearer {self.service.token}"
            answer = self._sent(method, url, told, body, seconds)
            if not follow or not (moved := answer.get_redirect_location()):
                return answer
            answer.close()
            url = urljoin(url, moved)
            # The ETag of a bucket is another one.
            told = {name: value for name, value in headers.items() if name != "If-Range"}
        raise DatasetError(f"Wanted bytes from {self.service.url}. Found: too many redirects")

    def _sent(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None, seconds: float
    ) -> Response:
        timeout = urllib3.Timeout(connect=TIMEOUT_SECONDS, read=seconds)
        try:
            return self._pools.request(
                method, url, headers=headers, body=body, timeout=timeout, redirect=False, preload_content=False,
                decode_content=False,
            )  # fmt: skip
        except LocationValueError as error:
            raise DatasetError(f"Wanted bytes from {self.service.url}. Found: {words(error)}") from None
        except HTTPError as error:
            if isinstance(_cause(error), ssl.SSLCertVerificationError):
                raise AccessError(
                    f"Wanted a trusted certificate of {urlsplit(url).hostname}. Found: {words(error)} "
                    "(set $AWS_CA_BUNDLE to the file of its certificate authority)"
                ) from None
            raise LostError(words(error)) from error

    def whole(self, answer: Response, fine: tuple[int, ...]) -> Answer:
        """Read a whole response. Raises `LostError`, and as `ask` for a status that is not ``fine``."""
        is_problem = answer.status not in fine
        with closing(answer):
            try:
                body = answer.read(_MOST_TOLD if is_problem else None)
            except HTTPError as error:
                raise LostError(words(error)) from error
        found = None
        with suppress(ValueError):
            found = json.loads(body) if body else None
        if is_problem:
            self._refuse(answer, found if isinstance(found, dict) else {})
        if found is None and body:
            raise DatasetError(f"Wanted a dataset service at {self.service.url}. Found: something else responds")
        return Answer(answer.status, answer.headers, found)

    def _refuse(self, answer: Response, problem: Mapping[str, Any]) -> None:
        if answer.status in _AWAY:
            advice = _line(problem.get("detail") or "")
            raise LostError(f"{answer.status} {answer.reason}" + (f": {advice}" if advice else ""))
        title = _line(problem.get("title") or answer.reason or "an error")
        name = _line(problem.get("request_id") or answer.headers.get("x-request-id") or "")
        request = f", request {name}" if name else ""
        detail = _line(problem.get("detail") or f"Wanted a response of a dataset service. Found: {title}")
        if answer.status == 401:
            detail += ". Set IMAGESTRATA_TOKEN, or give --token-file (token=... in Python)"
        kind = AccessError if answer.status in (401, 403) else DatasetError
        raise kind(f"{detail} ({title}: {answer.status} of {self.service.url}{request})")


def _cause(error: Exception) -> Exception:
    """The system error behind an error of urllib3, if there is one."""
    found = [one for one in (*error.args, error.__cause__) if isinstance(one, Exception)]
    return _cause(found[0]) if found else error


def words(error: Exception) -> str:
    """The message of an error in one line."""
    cause = error if isinstance(error, LostError) else _cause(error)
    return _line((isinstance(cause, OSError) and cause.strerror) or cause) or type(cause).__name__


def _line(words: object) -> str:
    return " ".join(str(words).split())[:500]
