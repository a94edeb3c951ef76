"""Pushes: send bytes in parts to a resumable upload (tus 1.0.0), which a later process can continue."""

import base64
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock

from formats.durability import whole_file
from formats.user_cache import our_cache
from imagestrata.hub.bar import Progress
from imagestrata.hub.errors import DatasetError
from imagestrata.hub.http import TIMEOUT_SECONDS, Answer, Connection, LostError, Tries
from imagestrata.hub.names import check_new, version_in
from imagestrata.hub.tar import Source

_TUS = {"Tus-Resumable": "1.0.0"}
_PART = 64 << 20
_SLOWEST = 20e6
"""The least bytes per second at which a service checks an upload before it responds."""
_LOOK_SECONDS = 0.25
_KEPT_SECONDS = 8 * 86_400.0
"""A service removes uploads after seven days; local records of them are removed then, too."""

log = logging.getLogger(__name__)


def push(
    connection: Connection, source: Source, *, name: str, path: Path, create: bool | None, show: Progress
) -> dict[str, Any]:
    """Send a source to a dataset, and return the description of the version, with ``is_new`` and ``is_created``. Raises
    `DatasetError`, `AccessError`, `UnreachableError`.
    """

    def tell(done: int) -> None:
        show("push", done, source.length)

    tell(0)
    url = connection.service.url
    with _record(url, name, path, source) as record:
        before, is_created = _newest(connection, name, create)
        digest = _Digest(source)
        known = [source.kind, source.length, source.filename or f"{name}.tar"]
        may_be_same = before and [before.get(key) for key in ("kind", "bytes", "filename")] == known
        # Hashing takes a fraction of the time of sending.
        if before and may_be_same and digest.whole() == before.get("sha256"):
            tell(source.length)
            record.forget()  # the upload of a push that ended before the last response
            return {**before, "is_new": False, "is_created": False}
        number = _Push(connection, source, name, digest, record, tell).version()
        card = connection.ask("GET", f"/datasets/{name}/card?version={number}", keys=("versions", "card")).json
        found = version_in(card, name, number, url)
        record.forget()  # only now: the next call finds the version of a push that was interrupted before
    if found is None:
        raise DatasetError(
            f"Wanted version {number} of {name!r}, which was pushed. Found: it was deleted in the meantime"
        )
    if found["sha256"] != digest.whole():
        raise DatasetError(
            f"Wanted {name!r} with SHA-256 {digest.whole()}. Found: {found['sha256']}, as version {number} at "
            f"{url} (the data were damaged in transit: delete that version, and push again)"
        )
    return {**found, "is_new": not before or number != before["version"], "is_created": is_created}


class _Digest:
    """The SHA-256 of a source, computed while it is sent. Bytes that are sent twice count once."""

    def __init__(self, source: Source) -> None:
        self._source, self._made, self._size = source, hashlib.sha256(), 0

    def blocks(self, start: int, end: int) -> Iterator[bytes]:
        """Yield bytes of the source, hashed before they are sent. Earlier bytes are hashed first if needed."""
        self._catch_up(start)
        for block in self._source.blocks(start, end):
            if start + len(block) > self._size:
                self._made.update(memoryview(block)[self._size - start :])
                self._size = start + len(block)
            start += len(block)
            yield block

    @property
    def known(self) -> str | None:
        """The digest of all bytes, or None if some were not hashed yet."""
        return self._made.hexdigest() if self._size == self._source.length else None

    def whole(self) -> str:
        """The digest of all bytes."""
        self._catch_up(self._source.length)
        return self._made.hexdigest()

    def _catch_up(self, end: int) -> None:
        for block in self._source.blocks(self._size, end) if self._size < end else ():
            self._made.update(block)
            self._size += len(block)


class _Record:
    """The location of an upload, stored in a file for a later process. Without a file, nothing is stored."""

    def __init__(self, path: Path | None, told: dict[str, Any]) -> None:
        self._path, self._told = path, told

    def location(self) -> tuple[str | None, bool]:
        """The location of an earlier upload of the same path, if any, and whether it has the same bytes."""
        with suppress(OSError, ValueError, AttributeError):
            found = json.loads(self._path.read_text(encoding="utf-8")) if self._path else {}
            location = found.pop("location", None)
            return (location, found == self._told) if isinstance(location, str) else (None, False)
        return None, False

    def keep(self, location: str) -> None:
        """Store the location of an upload."""
        if self._path:
            with suppress(OSError), whole_file(self._path) as file:
                file.write(json.dumps({**self._told, "location": location}).encode("utf-8"))

    def forget(self) -> None:
        """Remove the location."""
        if self._path:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


@contextmanager
def _record(url: str, name: str, path: Path, source: Source) -> Iterator[_Record]:
    """Open the record of a push for this process. Other pushes of the same path and name wait."""
    told: dict[str, Any] = {"url": url, "name": name, "path": str(path)}
    key = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]
    told |= {"length": source.length, "fingerprint": source.fingerprint}
    with ExitStack() as held:
        record = _Record(None, told)
        try:
            cache = our_cache("uploads")
            cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            for old in cache.glob("*.json"):
                with suppress(OSError):
                    if old.stat().st_mtime < time.time() - _KEPT_SECONDS:
                        old.unlink()
            held.enter_context(FileLock(cache / f"{key}.lock"))
            record = _Record(cache / f"{key}.json", told)
        except (OSError, RuntimeError, NotImplementedError) as error:  # no home folder, no permission or no locks
            log.warning("an interrupted push cannot be continued later, because its state cannot be stored: %s", error)
        yield record


class _Push:
    """Sends a source to an upload."""

    def __init__(
        self,
        connection: Connection,
        source: Source,
        name: str,
        digest: _Digest,
        record: _Record,
        tell: Callable[[int], None],
    ) -> None:
        self._connection, self._source, self._name = connection, source, name
        self._digest, self._record, self._tell = digest, record, tell
        self._tries = Tries(connection.service)

    def version(self) -> int:
        """Send the missing bytes, and return the number of the published version."""
        location, is_same = self._record.location()
        if location is not None and not is_same:
            self._connection.ask("DELETE", location, headers=_TUS, fine=(204, 404, 409))
            self._record.forget()
            location = None
        for _ in range(3):  # the service may have removed the upload
            if location is None:
                location = self._begun()
            found = self._sent(location)
            if found is not None:
                return found
            location = None
        raise DatasetError(
            f"Wanted an upload to continue at {self._connection.service.url}. Found: the service keeps losing it"
        )

    def _begun(self) -> str:
        metadata = {"filetype": "application/x-tar" if self._source.kind == "folder" else "application/octet-stream"}
        if self._source.filename is not None:
            metadata["filename"] = self._source.filename
        if self._digest.known:
            metadata["sha256"] = self._digest.known
        pairs = (f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in metadata.items())
        headers = {**_TUS, "Upload-Length": str(self._source.length), "Upload-Metadata": ",".join(pairs)}
        answer = self._connection.ask("POST", f"/datasets/{self._name}/uploads", headers=headers, fine=(201,))
        location = urlsplit(answer.headers.get("Location") or "").path
        location = location.removeprefix(urlsplit(self._connection.service.url).path)
        if not location.startswith("/"):
            raise DatasetError(
                f"Wanted the Location of an upload. Found: none in the response of {self._connection.service.url}"
            )
        if answer.headers.get("Tus-Resumable") != _TUS["Tus-Resumable"]:  # it would store a folder as a file
            self._connection.ask("DELETE", location, fine=(204, 404, 409))
            raise DatasetError(
                f"Wanted a service that speaks tus 1.0.0 at {self._connection.service.url}. Found: an older release. "
                "Update the service, or push with the same release"
            )
        self._record.keep(location)
        return location

    def _sent(self, location: str) -> int | None:
        """Send the rest, and return the number of the published version; None if the upload no longer exists."""
        end = self._source.length
        waits_until = 0.0
        found = self._look(location)
        while found is not None:
            offset, version = found
            self._tell(offset)
            if version is not None:
                return version
            try:
                answer = self._part(location, offset, min(end, offset + _PART))
                if answer.status == 409 and answer.headers.get("Upload-Offset") is None:
                    raise LostError("409, another request is writing to this upload")
                found = self._look(location) if answer.status == 409 else self._found(answer)
            except LostError as error:
                # The service may be checking the complete upload. Until then, it does not accept the last byte.
                if offset == end - 1 and not waits_until:
                    waits_until = time.monotonic() + self._checking()
                if time.monotonic() < waits_until:
                    time.sleep(_LOOK_SECONDS)
                else:
                    self._tries.again(error)
                found = self._look(location)
            if found is not None and found[0] > offset:
                self._tries.progress()
        return None

    def _look(self, location: str) -> tuple[int, int | None] | None:
        """Ask for the state of an upload; None also if its length is another one."""
        answer = self._connection.ask("HEAD", location, headers=_TUS, fine=(200, 204, 404))
        is_ours = answer.headers.get("Upload-Length") == str(self._source.length)
        return self._found(answer) if is_ours else None

    def _found(self, answer: Answer) -> tuple[int, int | None] | None:
        """The accepted bytes of an upload, and the version if it is complete; None if it does not exist."""
        if answer.status == 404:
            return None
        offset = _number(answer, "Upload-Offset")
        return offset, _number(answer, "Dataset-Version") if offset == self._source.length else None

    def _part(self, location: str, start: int, end: int) -> Answer:
        headers = {
            **_TUS,
            "Upload-Offset": str(start),
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(end - start),
        }
        seconds = TIMEOUT_SECONDS
        if end == self._source.length:
            seconds = self._checking()
            told = base64.b64encode(bytes.fromhex(self._digest.whole())).decode()
            headers["Repr-Digest"] = f"sha-256=:{told}:"  # so that damaged data never become visible
        blocks = self._digest.blocks(start, end)
        answer = self._connection.send("PATCH", location, headers=headers, body=blocks, seconds=seconds)
        return self._connection.whole(answer, fine=(204, 404, 409))

    def _checking(self) -> float:
        return TIMEOUT_SECONDS + self._source.length / _SLOWEST


def _newest(connection: Connection, name: str, create: bool | None) -> tuple[dict[str, Any] | None, bool]:
    """The newest version of a dataset, which is created if needed, and whether it was created. Raises `AccessError` for
    a token that may not push.
    """
    fine = (200,) if create is False else (200, 404)
    answer = connection.ask("GET", f"/datasets/{name}/card", fine=fine, keys=("versions", "card"))
    if answer.status == 404:
        if create is None:
            check_new(connection, name)
        made = connection.ask("POST", "/datasets", body={"name": name}, fine=(201, 409))
        return None, made.status == 201
    # Deletes nothing: no upload has this name. A token that may only read is refused here, even if nothing has changed.
    connection.ask("DELETE", f"/datasets/{name}/uploads/none", headers=_TUS, fine=(204, 404, 409))
    return version_in(answer.json, name, None, connection.service.url), False


def _number(answer: Answer, header: str) -> int:
    found = answer.headers.get(header) or ""
    if not found.isdecimal():
        raise DatasetError(f"Wanted {header} with a number. Found: {answer.status} with {found[:40]!r}")
    return int(found)
