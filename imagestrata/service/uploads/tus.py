"""Headers of the tus protocol for resumable uploads, 1.0.0 (https://tus.io/protocols/resumable-upload)."""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from imagestrata.service.errors import RequestError, TusRequestError, TusVersionError

VERSION = "1.0.0"
EXTENSIONS = "creation,checksum,expiration,termination"
ALGORITHMS = ("sha256", "sha1")
BODY = "application/offset+octet-stream"

_ADDRESS = re.compile(r"/datasets?/[^/]+/uploads(/[^/]+)?")
_OVERRIDDEN = ("DELETE", "HEAD", "PATCH")
_PAIR = re.compile(r"([\x21-\x2b\x2d-\x7e]+)(?: ([A-Za-z0-9+/=]*))?")
_CHECKSUM = re.compile(r"([a-z0-9-]+) ([A-Za-z0-9+/=]+)")
_NOT_OFFERED = {
    "upload-defer-length": "Set Upload-Length to the length of the whole upload",
    "upload-concat": "Send the upload in one piece, without parallel parts",
}

RESUMABLE: dict[str, Any] = {
    "name": "Tus-Resumable",
    "in": "header",
    "required": True,
    "description": "the version of the protocol",
    "schema": {"type": "string", "enum": [VERSION]},
}
"""The header of all requests except OPTIONS, for the OpenAPI document."""


class Tus:
    """Middleware that adds ``Tus-Resumable`` to responses and applies ``X-HTTP-Method-Override``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _ADDRESS.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Tus-Resumable"] = VERSION
            await send(message)

        method = Headers(scope=scope).get("x-http-method-override", "").upper()
        # Only a POST may override its method, because the protection against other sites covers POST.
        if scope["method"] == "POST" and method in _OVERRIDDEN:
            scope = {**scope, "method": method}
        await self._app(scope, receive, answer)


def check_version(request: Request) -> None:
    """Raise `TusVersionError` unless a request uses this version of the protocol."""
    found = request.headers.get("tus-resumable")
    if found != VERSION:
        shown = "none" if found is None else repr(found[:40])
        raise TusVersionError(
            f"Wanted Tus-Resumable: {VERSION}. Found: {shown}. Update imagestrata on the client, or use a client "
            f"for tus {VERSION}",
            headers={"Tus-Version": VERSION},
        )


def check_offered(headers: Mapping[str, str]) -> None:
    """Raise `TusRequestError` for a new upload that needs unsupported extensions."""
    for name, advice in _NOT_OFFERED.items():
        if name in headers:
            raise TusRequestError(f"Wanted only the extensions {EXTENSIONS} of tus. Found: {name}. {advice}")


def offered(most: int | None) -> dict[str, str]:
    """The headers of responses to OPTIONS. ``most`` is the largest upload in bytes."""
    told = {
        "Tus-Version": VERSION,
        "Tus-Extension": EXTENSIONS,
        "Tus-Checksum-Algorithm": ",".join(ALGORITHMS),
    }
    return told if most is None else {**told, "Tus-Max-Size": str(most)}


def metadata_of(text: str) -> dict[str, str]:
    """Parse ``Upload-Metadata``. Values that are not UTF-8 are left out. Raises `RequestError`."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for part in text.split(",") if text.strip() else ():
        pair = _PAIR.fullmatch(part.strip())
        if pair is None or pair[1] in seen:
            raise RequestError(
                "Wanted Upload-Metadata as KEY BASE64 pairs with commas between them, each key once. Found: "
                f"{part.strip()[:100]!r}"
            )
        seen.add(pair[1])
        try:
            found[pair[1]] = b64decode(pair[2] or "", validate=True).decode("utf-8")
        except UnicodeDecodeError:
            continue  # a key that we do not use
        except binascii.Error:
            raise RequestError(f"Wanted {pair[1]} of Upload-Metadata in Base64. Found: {pair[2][:100]!r}") from None
    return found


@dataclass(frozen=True, slots=True)
class Checksum:
    """The checksum that the bytes of a request must have."""

    algorithm: str
    digest: bytes

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Checksum | None":
        """Parse ``Upload-Checksum``. Raises `TusRequestError` for an unsupported algorithm."""
        text = headers.get("upload-checksum")
        if text is None:
            return None
        found = _CHECKSUM.fullmatch(text.strip())
        try:
            made = cls(found[1], b64decode(found[2], validate=True)) if found else None
        except binascii.Error:
            made = None
        if made is None or made.algorithm not in ALGORITHMS or len(made.digest) != made.new().digest_size:
            raise TusRequestError(
                f"Wanted Upload-Checksum as ALGORITHM BASE64, with {' or '.join(ALGORITHMS)}. Found: {text[:100]!r}"
            )
        return made

    def new(self) -> "hashlib._Hash":
        """Return a hash that receives the bytes."""
        return hashlib.new(self.algorithm, usedforsecurity=False)

    def is_of(self, made: "hashlib._Hash") -> bool:
        """Whether a hash matches the checksum."""
        return hmac.compare_digest(made.digest(), self.digest)
