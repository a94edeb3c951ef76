"""Pushes: bytes sent in parts to an upload that goes on, in this process or in a later one, where it broke off."""

import base64
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from filelock import FileLock

from loader._dataset_http import TIMEOUT_SECONDS, Answer, Connection, LostError, Tries
from loader._dataset_tar import Source
from loader._errors import DatasetError

_PART = 64 << 20
_SLOWEST = 20e6
"""Bytes in a second with which a service checks what came, at the least, before it answers."""
_LOOK_SECONDS = 0.25
_KEPT_SECONDS = 8 * 86_400.0
"""A service forgets uploads after seven days; then what is kept of them here is of no use."""

Tell = Callable[[int], None]
"""Is told how many bytes have arrived."""

log = logging.getLogger(__name__)


def push(connection: Connection, source: Source, *, name: str, path: Path, create: bool, tell: Tell) -> dict[str, Any]:
    """Send a source to a dataset; the version that it is by then, as the service tells it, and whether it ``is_new``.

    Raises `DatasetError`, `AccessError`, `UnreachableError`.
    """
    with _record(connection.service.url, name, path, source) as record:
        before = _newest(connection, name, create)
        digest = _Digest(source)
        known = [source.kind, source.length, source.filename or f"{name}.tar"]
        may_be_same = before and [before.get(key) for key in ("kind", "bytes", "filename")] == known
        # It is hashed in a fraction of the time in which it is sent.
        if before and may_be_same and digest.whole() == before.get("sha256"):
            tell(source.length)
            record.forget()  # of a push that ended before it heard that all of it had arrived
            return {**before, "is_new": False}
        number = int(before["version"]) if before else 0
        found = _Push(connection, source, name, number, digest, record, tell).version()
    if found.get("sha256") != digest.whole():
        raise DatasetError(
            f"Wanted {name!r} with SHA-256 {digest.whole()}. Found: {found.get('sha256')}, as version "
            f"{found.get('version')} at {connection.service.url} (it was damaged on its way: delete that version, and "
            "push again)"
        )
    return {**found, "is_new": found.get("version") != number}


class _Digest:
    """The SHA-256 of a source, made as its bytes go; what goes twice counts once."""

    def __init__(self, source: Source) -> None:
        self._source, self._made, self._size = source, hashlib.sha256(), 0

    def blocks(self, start: int, end: int) -> Iterator[bytes]:
        """The source's bytes, each counted before it goes; so are those before them that were never read here."""
        self._catch_up(start)
        for block in self._source.blocks(start, end):
            if start + len(block) > self._size:
                self._made.update(memoryview(block)[self._size - start :])
                self._size = start + len(block)
            start += len(block)
            yield block

    @property
    def known(self) -> str | None:
        """Of all bytes, once all have been counted."""
        return self._made.hexdigest() if self._size == self._source.length else None

    def whole(self) -> str:
        """Of all bytes."""
        self._catch_up(self._source.length)
        return self._made.hexdigest()

    def _catch_up(self, end: int) -> None:
        for block in self._source.blocks(self._size, end) if self._size < end else ():
            self._made.update(block)
            self._size += len(block)


class _Record:
    """Where an upload is, kept in a file for the process after this one; nothing without a file."""

    def __init__(self, path: Path | None, told: dict[str, Any]) -> None:
        self._path, self._told = path, told

    def location(self) -> tuple[str | None, bool]:
        """The upload that was begun from the same place, if there is one, and whether it is of the same bytes."""
        with suppress(OSError, ValueError, AttributeError):
            found = json.loads(self._path.read_text(encoding="utf-8")) if self._path else {}
            location = found.pop("location", None)
            return (location, found == self._told) if isinstance(location, str) else (None, False)
        return None, False

    def keep(self, location: str) -> None:
        """Keep an upload's place."""
        if self._path:
            aside = self._path.with_suffix(".new")
            with suppress(OSError):
                aside.write_text(json.dumps({**self._told, "location": location}), encoding="utf-8")
                os.replace(aside, self._path)

    def forget(self) -> None:
        """Nobody is to go on with it."""
        if self._path:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


@contextmanager
def _record(url: str, name: str, path: Path, source: Source) -> Iterator[_Record]:
    """The record of a push, for one process at a time; others of the same wait."""
    told: dict[str, Any] = {"url": url, "name": name, "path": str(path)}
    key = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]
    told |= {"length": source.length, "fingerprint": source.fingerprint}
    with ExitStack() as held:
        record = _Record(None, told)
        try:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "imagestrata" / "uploads"
            cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            for old in cache.glob("*.json"):
                with suppress(OSError):
                    if old.stat().st_mtime < time.time() - _KEPT_SECONDS:
                        old.unlink()
            held.enter_context(FileLock(cache / f"{key}.lock"))
            record = _Record(cache / f"{key}.json", told)
        except (OSError, RuntimeError, NotImplementedError) as error:  # no home, no rights, no locks
            log.warning("a push that is interrupted cannot go on later, as no place is there to note it: %s", error)
        yield record


class _Push:
    """One source on its way into an upload."""

    def __init__(
        self, connection: Connection, source: Source, name: str, before: int, digest: _Digest, record: _Record,
        tell: Tell,
    ) -> None:  # fmt: skip
        """``before``: the number of the newest version until now."""
        self._connection, self._source, self._name, self._before = connection, source, name, before
        self._digest, self._record, self._tell = digest, record, tell
        self._tries = Tries(connection.service)

    def version(self) -> dict[str, Any]:
        """Send what is not there yet; the version that it became."""
        place, is_same = self._record.location()
        if place is not None and not is_same:
            self._connection.ask("DELETE", place, fine=(204, 404, 409))
            self._record.forget()
            place = None
        offset = None if place is None else self._offset(place)
        for _ in range(3):  # a service may lose an upload, of which it says so
            if place is None or offset is None:
                place, offset = self._begun(), 0
            found = self._sent(place, offset)
            if found is not None:
                self._record.forget()
                return found
            place = None
        raise DatasetError(f"Wanted an upload that goes on at {self._connection.service.url}. Found: it vanishes")

    def _begun(self) -> str:
        headers = {
            "Upload-Length": str(self._source.length),
            "Content-Type": "application/x-tar" if self._source.kind == "folder" else "application/octet-stream",
        }
        if self._source.filename is not None:
            quoted = quote(self._source.filename, safe="")
            headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quoted}"
        address = f"/datasets/{self._name}/uploads{f'?sha256={self._digest.known}' if self._digest.known else ''}"
        answer = self._connection.ask("POST", address, headers=headers, fine=(201,))
        place = urlsplit(answer.headers.get("Location") or "").path
        place = place.removeprefix(urlsplit(self._connection.service.url).path)
        if not place.startswith("/"):
            raise DatasetError(f"Wanted the Location of an upload. Found: none of {self._connection.service.url}")
        self._record.keep(place)
        return place

    def _offset(self, place: str) -> int | None:
        """How much of an upload is there; None if there is no such upload for these bytes."""
        answer = self._connection.ask("HEAD", place, fine=(200, 204, 404))
        if answer.status == 404 or answer.headers.get("Upload-Length") != str(self._source.length):
            return None
        return _number(answer)

    def _sent(self, place: str, offset: int) -> dict[str, Any] | None:
        """Send the rest; the version that it became, or None if there is no such upload any more."""
        end = self._source.length
        waits_until = 0.0
        while True:
            self._tell(offset)
            try:
                answer = self._part(place, offset, min(end, offset + _PART))
                if answer.status == 200:
                    self._tell(end)
                    return dict(answer.json or {})
                if answer.status == 409 and answer.headers.get("Upload-Offset") is None:
                    raise LostError("409, another request is at this upload")
                now = None if answer.status == 404 else _number(answer)
            except LostError as error:
                # All of it may be there, and be checked now: that takes its time, and the answer to it is lost.
                if offset >= end and not waits_until:
                    waits_until = time.monotonic() + self._checking()
                if time.monotonic() < waits_until:
                    time.sleep(_LOOK_SECONDS)
                else:
                    self._tries.again(error)
                now = self._offset(place)
            if now is None:
                return self._published()
            if now > offset:
                self._tries.progress()
            offset = now

    def _part(self, place: str, start: int, end: int) -> Answer:
        headers = {
            "Upload-Offset": str(start),
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(end - start),
        }
        seconds = TIMEOUT_SECONDS
        if end == self._source.length:
            seconds = self._checking()
            told = base64.b64encode(bytes.fromhex(self._digest.whole())).decode()
            headers["Repr-Digest"] = f"sha-256=:{told}:"  # so that what was damaged on its way never shows
        blocks = self._digest.blocks(start, end)
        answer = self._connection.send("PATCH", place, headers=headers, body=blocks, seconds=seconds)
        return self._connection.whole(answer, fine=(200, 204, 404, 409))

    def _checking(self) -> float:
        return TIMEOUT_SECONDS + self._source.length / _SLOWEST

    def _published(self) -> dict[str, Any] | None:
        """The version that an upload became whose last answer was lost, if it did."""
        card = self._connection.ask("GET", f"/datasets/{self._name}/card", keys=("versions", "newest")).json
        same = [one for one in card["versions"] if one["bytes"] == self._source.length]
        newest = card["newest"]["version"] if card["newest"] else 0
        for one in same:
            if (one["version"] > self._before or one["version"] == newest) and one["sha256"] == self._digest.whole():
                return dict(one)
        return None


def _newest(connection: Connection, name: str, create: bool) -> dict[str, Any] | None:
    """The newest version of a dataset, which is made if it is not there and may be."""
    fine = (200, 404) if create else (200,)
    answer = connection.ask("GET", f"/datasets/{name}/card", fine=fine, keys=("versions", "newest"))
    if answer.status == 404:
        connection.ask("POST", "/datasets", body={"name": name}, fine=(201, 409))
        return None
    return answer.json.get("newest") or None


def _number(answer: Answer) -> int:
    found = answer.headers.get("Upload-Offset") or ""
    if not found.isdecimal():
        raise DatasetError(f"Wanted an Upload-Offset. Found: {answer.status} with {found[:40]!r}")
    return int(found)
