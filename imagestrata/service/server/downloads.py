"""Responses with content: whole, ranges, or 304; folders as tar or zip."""

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from formats.tar_index import TarIndex
from imagestrata.service.conditions import Conditions
from imagestrata.service.errors import NotAcceptableError, RangeError
from imagestrata.service.stores.bodies import Blocks
from imagestrata.service.stores.store import Blob
from schemas.datasets import DatasetVersion

FILE, TAR, ZIP = "application/octet-stream", "application/x-tar", "application/zip"
_BLOCKS = Blocks(1 << 20, together=1 << 24)
_MOST_DIRECT = 1 << 24
_MOST_IN_ZIP = 65_535
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that equal folders give equal bytes


def form_of(version: DatasetVersion, accept: str | None) -> str:
    """Choose the media type for an ``Accept`` header. Raises `NotAcceptableError`."""
    offers = [FILE] if version.kind == "file" else [TAR, ZIP]
    accepted = _accepted(accept or "*/*")
    best = max(offers, key=lambda offer: _quality(accepted, offer))  # the first of equal ones
    if _quality(accepted, best) <= 0:
        raise NotAcceptableError(f"Wanted {(accept or '')[:200]}. Found: {' or '.join(offers)}")
    return best


def content(
    blob: Blob,
    *,
    part: tuple[int, int] | None,
    tag: str,
    filename: str,
    kind: str,
    request: Request,
) -> Response:
    """Respond with a blob, or with the ``part`` of this start and length, and close it. Raises `RangeError` for a range
    outside the content, and `ConditionError`.
    """
    start, length = part or (0, blob.size)
    is_head, headers = request.method == "HEAD", request.headers
    with ExitStack() as stack:
        stack.callback(blob.close)
        told = {**named(tag, filename, kind), "accept-ranges": "bytes"}
        if Conditions.of(headers).is_unchanged(tag):
            return Response(status_code=304, headers=told)
        asked = None if is_head else _range(headers, length, tag)  # ranges apply to GET only
        # Small ranges are not redirected to a bucket, so that the page can show the beginning of a file, and
        # neither is HEAD, because addresses are signed for GET only.
        is_small = asked is not None and asked[1] - asked[0] <= _MOST_DIRECT
        is_elsewhere = part is None and not is_head and not is_small
        address = blob.address(filename) if is_elsewhere else None
        if address is not None:
            return RedirectResponse(address, headers={"cache-control": "no-store"})
        first, end = asked or (0, length)
        told["content-length"] = str(end - first)
        if asked is not None:
            told["content-range"] = f"bytes {first}-{end - 1}/{length}"
        stack.pop_all()  # the response closes it
    return _Bytes(blob, start + first, end - first, status=200 if asked is None else 206, headers=told)


def zipped(blob: Blob, index: Path, *, tag: str, filename: str, request: Request) -> Response:
    """Respond with a folder as a zip that is made while it is sent, without ranges. Raises `NotAcceptableError`."""
    told = named(tag, filename, ZIP)
    with ExitStack() as stack:
        stack.callback(blob.close)
        with TarIndex(index) as files:
            count = len(files)
        if Conditions.of(request.headers).is_unchanged(tag):
            return Response(status_code=304, headers=told)
        if count > _MOST_IN_ZIP:
            raise NotAcceptableError(
                f"Wanted at most {_MOST_IN_ZIP:,} files for a zip. Found: {count:,}. Request {TAR}"
            )
        if request.method == "HEAD":
            return StreamingResponse(iter(()), headers=told)  # the length is unknown before the zip is made
        stack.pop_all()  # the response closes it
    return StreamingResponse(_zip(blob, index), headers=told)


def named(tag: str, filename: str, kind: str) -> dict[str, str]:
    """Headers of content. Browsers must save it as a file and not display it."""
    plain = re.sub(r'[^\x20-\x7e]|["\\]', "_", filename)
    name = f'attachment; filename="{plain}"'
    if plain != filename:
        name += f"; filename*=UTF-8''{quote(filename, safe='')}"
    return {
        "etag": tag,
        "content-type": kind,
        "content-disposition": name,
        "x-content-type-options": "nosniff",
        "vary": "Accept, Authorization",
        "cache-control": "no-cache",
    }


class _Bytes(Response):
    """Iterates over the bytes of a blob from ``start``, then closes it."""

    def __init__(self, blob: Blob, start: int, length: int, *, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(None, status_code=status, headers=dict(headers))
        self._blob, self._place, self._end = blob, start, start + length

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            with _BLOCKS.shared():
                while scope["method"] != "HEAD" and self._place < self._end:
                    size = min(_BLOCKS.size, self._end - self._place)
                    block = await run_in_threadpool(self._blob.read, self._place, size)
                    if not block:
                        raise OSError(f"Wanted {self._end - self._place:,} more bytes of a version. Found: its end")
                    self._place += len(block)
                    await send({"type": "http.response.body", "body": block, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._blob.close()


class _Pipe(io.RawIOBase):
    """The output of a zip writer. What was written can be taken at any time."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.held = 0

    def write(self, data: Any, /) -> int:
        self._parts.append(bytes(data))
        self.held += len(self._parts[-1])
        return len(self._parts[-1])

    def taken(self) -> bytes:
        data = b"".join(self._parts)
        self._parts, self.held = [], 0
        return data


class _Ahead:
    """Reads ahead, because a request to a bucket takes longer than the bytes of small files."""

    def __init__(self, blob: Blob) -> None:
        self._blob, self._first, self._data = blob, 0, b""

    def read(self, start: int, length: int) -> bytes:
        offset = start - self._first
        if offset < 0 or offset + length > len(self._data):
            self._first, self._data, offset = start, self._blob.read(start, max(length, _BLOCKS.size)), 0
        return self._data[offset : offset + length]


def _zip(blob: Blob, index: Path) -> Iterator[bytes]:
    pipe, ahead = _Pipe(), _Ahead(blob)
    try:
        with _BLOCKS.shared(), TarIndex(index) as files, zipfile.ZipFile(pipe, "w") as archive:
            for member in files.in_place():
                info = zipfile.ZipInfo(member.path, _ZIP_TIME)
                info.external_attr, info.file_size = 0o644 << 16, member.bytes
                with archive.open(info, "w") as file:
                    offset = 0
                    while offset < member.bytes:
                        size = min(_BLOCKS.size, member.bytes - offset)
                        file.write(ahead.read(member.start + offset, size))
                        offset += size
                        if pipe.held >= _BLOCKS.size:
                            yield pipe.taken()
        yield pipe.taken()
    finally:
        blob.close()


def _range(headers: Mapping[str, str], length: int, tag: str) -> tuple[int, int] | None:
    """Parse the range (first, end). None, for all bytes, without one, with several, or if ``If-Range`` fails."""
    found = _RANGE.fullmatch(headers.get("range", "").strip())
    if found is None or headers.get("if-range", tag) != tag or found[0] == "bytes=-":
        return None
    if found[1]:
        first, end = int(found[1]), min(int(found[2] or length), length - 1) + 1
        if found[2] and int(found[2]) < int(found[1]):
            return None
    else:
        first, end = max(0, length - int(found[2])), length
    if first >= end:
        raise RangeError(
            f"Wanted {headers['range'][:80]}. Found: {length:,} bytes", headers={"Content-Range": f"bytes */{length}"}
        )
    return first, end


def _accepted(header: str) -> list[tuple[str, float]]:
    """Parse media ranges and their qualities."""
    found = []
    for part in header.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((value[2:] for value in parameters if value.startswith("q=")), "1")
        found.append((kind, float(quality) if _QUALITY.fullmatch(quality) else 1.0))
    return found


def _quality(accepted: list[tuple[str, float]], offer: str) -> float:
    """The quality of a media type, from the most specific range that matches."""
    matching = {kind: quality for kind, quality in accepted if kind in (offer, f"{offer.partition('/')[0]}/*", "*/*")}
    return matching.get(offer, matching.get(f"{offer.partition('/')[0]}/*", matching.get("*/*", 0.0)))
