"""Answers with bytes: whole or a range of them, and none to who has them already; folders as tar or as zip."""

import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from formats.tar_index import TarIndex
from imagestrata.service.conditions import Conditions
from imagestrata.service.errors import NotAcceptableError, RangeError
from imagestrata.service.stores.blobs import Blob
from imagestrata.service.stores.blocks import Blocks
from schemas.datasets import DatasetVersion

FILE, TAR, ZIP = "application/octet-stream", "application/x-tar", "application/zip"
_BLOCKS = Blocks(1 << 20, together=1 << 24)
_MOST_DIRECT = 1 << 24
_MOST_IN_ZIP = 65_535
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the same bytes each time


def form_of(version: DatasetVersion, accept: str | None) -> str:
    """The media type in which a version is given to who accepts these. Raises `NotAcceptableError`."""
    offers = [FILE] if version.kind == "file" else [TAR, ZIP]
    accepted = _accepted(accept or "*/*")
    best = max(offers, key=lambda offer: _quality(accepted, offer))  # of equals the first
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
    method: str,
    headers: Mapping[str, str],
) -> Response:
    """The answer with a blob, or a part of it (start, length), which closes it; the range that ``headers`` ask for.

    A GET may be redirected to a bucket. Small ranges are not, so that the page can show the beginning of a file; nor is
    HEAD, because a bucket's address is signed for GET alone.
    Raises `RangeError`, `ConditionError`.
    """
    start, length = part or (0, blob.size)
    try:
        told = {**named(tag, filename, kind), "accept-ranges": "bytes"}
        if Conditions.of(headers).is_unchanged(tag):
            blob.close()
            return Response(status_code=304, headers=told)
        asked = _range(headers, length, tag) if method != "HEAD" else None  # ranges are for GET alone
        is_small = asked is not None and asked[1] - asked[0] <= _MOST_DIRECT
        is_elsewhere = part is None and method != "HEAD" and not is_small
        address = blob.address(filename=filename) if is_elsewhere else None
        if address is not None:
            blob.close()
            return RedirectResponse(address, headers={"cache-control": "no-store"})
    except BaseException:
        blob.close()
        raise
    first, end = asked or (0, length)
    told["content-length"] = str(end - first)
    if asked is not None:
        told["content-range"] = f"bytes {first}-{end - 1}/{length}"
    return _Bytes(blob, start + first, end - first, status=200 if asked is None else 206, headers=told)


def zipped(blob: Blob, index: Path, *, tag: str, filename: str, method: str, headers: Mapping[str, str]) -> Response:
    """The answer with a folder as a zip, made as it goes, without ranges. Raises `NotAcceptableError`."""
    told = named(tag, filename, ZIP)
    with TarIndex(index) as files:
        count = len(files)
    if Conditions.of(headers).is_unchanged(tag):
        blob.close()
        return Response(status_code=304, headers=told)
    if count > _MOST_IN_ZIP:
        blob.close()
        raise NotAcceptableError(
            f"Wanted a zip. Found: {count:,} files, where a zip is made of {_MOST_IN_ZIP:,} at most. Ask for {TAR}"
        )
    if method == "HEAD":
        blob.close()
        return StreamingResponse(iter(()), headers=told)  # how long it would be is not known before it is made
    return StreamingResponse(_zip(blob, index), headers=told)


def named(tag: str, filename: str, kind: str) -> dict[str, str]:
    """The headers that say what bytes are; browsers are to keep them as a file, whatever they look like."""
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
    """Bytes of a blob from ``start``, which is closed behind them."""

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
                        raise OSError(f"Wanted {self._end - self._place:,} more bytes of a version. Found: they end")
                    self._place += len(block)
                    await send({"type": "http.response.body", "body": block, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._blob.close()


class _Pipe:
    """What a zip is written to: it is taken away as it comes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._place = 0
        self.held = 0

    def write(self, data: bytes, /) -> int:
        self._parts.append(bytes(data))
        self._place += len(data)
        self.held += len(data)
        return len(data)

    def tell(self) -> int:
        return self._place

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Who made it has what is in it."""

    def taken(self) -> bytes:
        data = b"".join(self._parts)
        self._parts, self.held = [], 0
        return data


class _Ahead:
    """Reads on beyond what is asked for: of a bucket, a request takes longer than the bytes of small files do."""

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
    """The range that is asked for (first, end), or None for all: without one, with several, or if it changed."""
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
    """Media ranges and their qualities."""
    found = []
    for part in header.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((value[2:] for value in parameters if value.startswith("q=")), "1")
        found.append((kind, float(quality) if _QUALITY.fullmatch(quality) else 1.0))
    return found


def _quality(accepted: list[tuple[str, float]], offer: str) -> float:
    """How much a media type is wanted: the most exact range that holds it tells."""
    matching = {kind: quality for kind, quality in accepted if kind in (offer, f"{offer.partition('/')[0]}/*", "*/*")}
    return matching.get(offer, matching.get(f"{offer.partition('/')[0]}/*", matching.get("*/*", 0.0)))
