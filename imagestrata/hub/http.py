"""Requests to a dataset service: problems become errors, who is away is asked again."""

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
"""A host that vanishes is noticed."""
_MOST_TOLD = 1 << 16
_TOKEN = re.compile(r"[\x21-\x7e]+")

Response = urllib3.BaseHTTPResponse

log = logging.getLogger(__name__)


class LostError(Exception):
    """No answer came, or the service asks to be left alone for a while."""


@dataclass(frozen=True, slots=True)
class Service:
    """Where a service is, what opens it, and how many seconds it may be away."""

    url: str
    token: str | None = field(repr=False)
    retry_seconds: float

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
    headers: Mapping[str, str]
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
        found = words(error)
        if self._attempts is None:
            self._attempts = Retries(seconds=self._service.retry_seconds).begin()
            log.warning("%s: %s; trying again for %.0f s", self._service.url, found, self._service.retry_seconds)
        if not self._attempts.again():
            raise UnreachableError(
                f"Wanted an answer from {self._service.url}. Found: {found}, {self._attempts.count} times in "
                f"{self._attempts.seconds:.0f} s (see that the service runs; then call this again, it goes on)"
            ) from error


class Connection:
    """Connections to a service, kept between requests; for one thread. Use it as a context manager.

    Raises `OptionError` for certificates in $AWS_CA_BUNDLE that cannot be read.
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
        seconds: float = TIMEOUT_SECONDS, follow: bool = False,
    ) -> Response:  # fmt: skip
        """One request, once; blocks of a body need a Content-Length. ``seconds``: how long its answer may take.

        With ``follow`` the answer is from where the service says that the bytes lie; the token is for the service only.
        Raises `LostError`, `AccessError` for a certificate, `DatasetError`, and what making the body raises.
        """
        url, told = self.service.url + path, dict(headers)
        for _ in range(_MOST_REDIRECTS + 1):
            if self.service.token and urlsplit(url)[:2] == urlsplit(self.service.url)[:2]:  # it is nobody else's
                told["Authorization"] = f"Bearer {self.service.token}"
            answer = self._sent(method, url, told, body, seconds)
            if not follow or not (moved := answer.get_redirect_location()):
                return answer
            answer.close()
            url = urljoin(url, moved)
            told = {name: value for name, value in headers.items() if name != "If-Range"}  # another's tag is not known
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
                    f"Wanted a certificate of {urlsplit(url).hostname} that is trusted here. Found: {words(error)} "
                    "(name the file with its authority in $AWS_CA_BUNDLE)"
                ) from None
            raise LostError(words(error)) from error

    def whole(self, answer: Response, fine: tuple[int, ...]) -> Answer:
        """All of an answer. Raises `LostError`, and as `ask` for one that is not ``fine``."""
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
            raise DatasetError(f"Wanted a dataset service at {self.service.url}. Found: it answers something else")
        return Answer(answer.status, answer.headers, found)

    def _refuse(self, answer: Response, problem: Mapping[str, Any]) -> None:
        if answer.status in _AWAY:
            advice = _line(problem.get("detail") or "")
            raise LostError(f"{answer.status} {answer.reason}" + (f": {advice}" if advice else ""))
        title = _line(problem.get("title") or answer.reason or "an error")
        name = _line(problem.get("request_id") or answer.headers.get("x-request-id") or "")
        request = f", request {name}" if name else ""
        detail = _line(problem.get("detail") or f"Wanted an answer of a dataset service. Found: {title}")
        kind = AccessError if answer.status in (401, 403) else DatasetError
        raise kind(f"{detail} ({title}: {answer.status} of {self.service.url}{request})")


def _cause(error: Exception) -> Exception:
    """The system's error, where an error of urllib3 is about one."""
    found = [one for one in (*error.args, error.__cause__) if isinstance(one, Exception)]
    return _cause(found[0]) if found else error


def words(error: Exception) -> str:
    """What an error says, in one line."""
    cause = error if isinstance(error, LostError) else _cause(error)
    return _line((isinstance(cause, OSError) and cause.strerror) or cause) or type(cause).__name__


def _line(words: object) -> str:
    return " ".join(str(words).split())[:500]
