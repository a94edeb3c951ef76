"""Requests with a body for a dataset, parsed from headers."""

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from imagestrata.service.conditions import Conditions
from imagestrata.service.errors import LengthError, RequestError, TypeOfBodyError
from imagestrata.service.uploads.tus import check_offered, metadata_of
from schemas.datasets import check_path
from schemas.errors import SchemaError

TAR = "application/x-tar"
_ANYTHING = "application/octet-stream"
_NO_FILES = ("multipart/", "application/json")
_DIGEST = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]*):")
_HEX = re.compile(r"[0-9a-f]{64}")
_LENGTH = re.compile(r"[0-9]{1,18}")
_FILENAME = re.compile(
    r'filename\*\s*=\s*utf-8\'[^\']*\'([^;]+)|filename\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))', re.I
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRequest:
    """A body for a dataset: its kind and name, its length and SHA-256 if known, and the name of the token."""

    name: str
    kind: str
    filename: str
    length: int | None = None
    sha256: str | None = None
    by: str | None = None
    conditions: Conditions = field(default_factory=Conditions)
    metadata: str | None = None  # Upload-Metadata of a tus client, which is returned to it


def request_of(
    name: str, headers: Mapping[str, str], *, length: str | None, sha256: str | None, by: str | None
) -> UploadRequest:
    """Parse the headers of a PUT, and ``sha256`` of its address. Raises `RequestError`, `TypeOfBodyError`."""
    kind = headers.get("content-type", _ANYTHING).partition(";")[0].strip().lower()
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if kind.startswith(_NO_FILES) or encoding != "identity":
        raise TypeOfBodyError(
            f"Wanted the bytes of a file ({_ANYTHING}), or of a folder as one tar ({TAR}), without a content "
            f"encoding. Found: {kind[:100]}, {encoding[:100]}"
        )
    return UploadRequest(
        name=name,
        kind="folder" if kind == TAR else "file",
        filename=f"{name}.tar" if kind == TAR else _filename(headers.get("content-disposition", "")),
        length=None if length is None else length_of(length),
        sha256=digest_of(headers, sha256),
        by=by,
        conditions=Conditions.of(headers),
    )


def tus_request_of(name: str, headers: Mapping[str, str], *, sha256: str | None, by: str | None) -> UploadRequest:
    """Parse the request of a new tus upload: first ``Upload-Metadata``, then the headers as for PUT. Raises
    `LengthError`, `RequestError`, `TusRequestError`, `TypeOfBodyError`.
    """
    check_offered(headers)
    if "upload-length" not in headers:
        raise LengthError("Wanted the length of the whole upload in Upload-Length. Found: none")
    told = headers.get("upload-metadata")
    found = metadata_of(told or "")
    sha256 = sha256 or found.get("sha256") or None
    upload = request_of(name, headers, length=headers["upload-length"], sha256=sha256, by=by)
    if "filetype" in found:
        is_folder = found["filetype"].partition(";")[0].strip().lower() == TAR
        filename = "data" if upload.kind == "folder" else upload.filename
        upload = replace(
            upload, kind="folder" if is_folder else "file", filename=f"{name}.tar" if is_folder else filename
        )
    if found.get("filename") and upload.kind == "file":
        upload = replace(upload, filename=_checked(found["filename"], "Upload-Metadata"))
    return replace(upload, metadata=told)


def length_of(text: str) -> int:
    """Parse a number of bytes. Raises `RequestError`."""
    if not _LENGTH.fullmatch(text):
        raise RequestError(f"Wanted a number of bytes. Found: {text[:40]!r}")
    return int(text)


def _filename(disposition: str) -> str:
    """The file name of ``Content-Disposition``, or ``data``. Raises `RequestError` for an invalid name."""
    found = _FILENAME.search(disposition)
    if found is None:
        return "data"
    name = unquote(found[1]) if found[1] else re.sub(r"\\(.)", r"\1", found[2] or found[3] or "")
    with suppress(UnicodeError):  # headers are read as Latin-1, but curl sends the name as it was typed, mostly UTF-8
        name = name if found[1] else name.encode("latin-1").decode("utf-8")
    return _checked(name, "Content-Disposition")


def _checked(name: str, header: str) -> str:
    try:
        if "/" in name:
            raise SchemaError(f"Found: {name[:200]!r}, with a '/'")
        return check_path(name)
    except SchemaError as error:
        raise RequestError(f"Wanted the name of a file in {header}. {error}") from None


def digest_of(
    headers: Mapping[str, str], told: str | None = None, *, fields: Sequence[str] = ("repr-digest", "content-digest")
) -> str | None:
    """The SHA-256 that bytes must have, from the address or from ``fields`` of RFC 9530. Raises `RequestError`."""
    if told is not None:
        if not _HEX.fullmatch(told.lower()):
            raise RequestError(f"Wanted sha256 as 64 hexadecimal digits. Found: {told[:80]!r}")
        return told.lower()
    for header in fields:
        if header in headers:
            found = _DIGEST.search(headers[header])
            try:
                digest = b64decode(found[1], validate=True) if found else b""
            except ValueError:
                digest = b""
            if len(digest) != 32:  # an ignored digest would look like a checked one
                raise RequestError(
                    f"Wanted {header} with sha-256=:BASE64: of 32 bytes. Found: {headers[header][:100]!r}"
                )
            return digest.hex()
    return None
