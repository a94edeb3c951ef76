"""Bodies become versions: kept in a folder of their own, counted and hashed, then checked, indexed and published."""

import asyncio
import hashlib
import json
import re
import secrets
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from formats import ArchiveError
from formats.origin import code_version, created
from formats.tar_index import write_index
from schemas.datasets import DatasetVersion
from service.arrivals import DATA, INDEX, UPLOAD
from service.bodies import Digest, full_disks_told, take
from service.cards import card_of
from service.conditions import Conditions, etag
from service.errors import BodyError, ConflictError, FullError, LengthError, NotThereError, TooLargeError
from service.stores import Store
from service.wanted import Wanted

_NOTHING = "Wanted the bytes of a file or of a tar. Found: none"
_IDENTITY = re.compile(r"[0-9a-f]{32}")


class Uploads:
    """Takes bodies for a store: at most ``most`` bytes each, ``quota`` in all, unless None. Safe for threads."""

    def __init__(self, store: Store, *, most: int | None = None, quota: int | None = None) -> None:
        self._store, self._most, self._quota = store, most, quota
        self._lock = threading.Lock()
        self._coming = {path.parent: path.stat().st_size for path in store.arrivals.folder.glob(f"*/{DATA}")}
        self._busy: set[str] = set()
        self._digests: dict[Path, Digest] = {}  # of uploads that go on, so that the last part need not read all of it

    async def put(self, wanted: Wanted, body: AsyncIterator[bytes]) -> DatasetVersion:
        """Take a whole body and publish it. Raises `ServiceError`; then nothing is left of it."""
        await asyncio.to_thread(self._check, wanted)
        self._check_room(wanted.length or 0)
        arrival = await asyncio.to_thread(self._store.arrivals.new)
        try:
            digest = Digest()
            size = await self._take(arrival, body, digest, most=_least(wanted.length, self._most))
            if wanted.length is None and not size:
                raise BodyError(_NOTHING)
            if wanted.length not in (None, size):
                raise BodyError(f"Wanted {wanted.length:,} bytes. Found: {size:,}")
            return await asyncio.to_thread(self._publish, arrival, wanted, digest.hexdigest())
        finally:
            self._forget(arrival)

    def begin(self, wanted: Wanted) -> str:
        """Begin an upload that goes on when it breaks off; its name. Raises `ServiceError`."""
        if wanted.length is None:
            raise LengthError("Wanted the length of all that is to come in Upload-Length. Found: none")
        self._check(wanted)
        for forgotten in self._store.arrivals.forgotten():
            self._give_up(forgotten)
        identity = secrets.token_hex(16)
        with full_disks_told():
            arrival = self._store.arrivals.new(identity)
            try:
                (arrival / DATA).touch()
                (arrival / UPLOAD).write_text(json.dumps(asdict(wanted)), encoding="utf-8")
            except OSError:
                self._forget(arrival)
                raise
        self._digests[arrival] = Digest()
        return identity

    def drop(self, name: str) -> None:
        """Give up all uploads to a dataset, which is deleted."""
        for arrival, said in self._store.arrivals.uploads():
            if said.get("name") == name:
                self._give_up(arrival)

    @property
    def arriving(self) -> int:
        """The bytes that are here and of no version yet."""
        with self._lock:
            return sum(self._coming.values())

    def state(self, name: str, identity: str) -> tuple[Wanted, int]:
        """What an upload is to become, and how many bytes of it are here. Raises `NotThereError`."""
        arrival = self._store.arrivals.folder / identity
        try:
            if not _IDENTITY.fullmatch(identity):
                raise FileNotFoundError
            found: dict[str, Any] = json.loads((arrival / UPLOAD).read_text(encoding="utf-8"))
            size = (arrival / DATA).stat().st_size
        except FileNotFoundError:
            raise NotThereError("Wanted an upload that goes on. Found: none of this name; it may be done") from None
        wanted = Wanted(**{**found, "conditions": Conditions(**found["conditions"])})
        if wanted.name != name:
            raise NotThereError(f"Wanted an upload to {name!r}. Found: it is one to another dataset")
        return wanted, size

    async def append(
        self, name: str, identity: str, offset: int, body: AsyncIterator[bytes], *, sha256: str | None = None
    ) -> DatasetVersion | int:
        """Take more of an upload: its version when it is whole, and until then how much is here.

        ``sha256`` is what the whole must have. Raises `ServiceError`; what came before an error stays, unless all came
        and is not what was said.
        """
        with self._alone(identity):
            wanted, size = await asyncio.to_thread(self.state, name, identity)
            length = wanted.length or 0
            if offset != size:
                raise ConflictError(
                    f"Wanted to go on at byte {size:,}. Found: Upload-Offset {offset:,}",
                    headers={"Upload-Offset": str(size)},
                )
            self._check_room(length - size)
            arrival = self._store.arrivals.folder / identity
            digest = self._digests.get(arrival)
            if digest is not None and digest.size != size:  # a disk that was full
                digest = None
            size += await self._take(arrival, body, digest, most=length - size)
            if size < length:
                return size
            wanted = replace(wanted, sha256=sha256 or wanted.sha256)
            try:
                made = None if digest is None else digest.hexdigest()
                return await asyncio.to_thread(self._publish, arrival, wanted, made)
            finally:
                self._forget(arrival)

    def cancel(self, name: str, identity: str) -> None:
        """Give up an upload. Raises `NotThereError`, `ConflictError`."""
        with self._alone(identity):
            self.state(name, identity)
            self._forget(self._store.arrivals.folder / identity)

    async def _take(self, arrival: Path, body: AsyncIterator[bytes], digest: Digest | None, *, most: int | None) -> int:
        def reserve(size: int) -> None:
            with self._lock:
                self._check_quota(size)
                self._coming[arrival] = self._coming.get(arrival, 0) + size

        with full_disks_told(), open(arrival / DATA, "ab", buffering=0) as file:
            return await take(body, file, digest=digest, most=most, reserve=reserve)

    def _check(self, wanted: Wanted) -> None:
        """What can be known before a body comes."""
        now = self._store.newest(wanted.name)
        wanted.conditions.check(None if now is None else etag(now.sha256))
        if wanted.length == 0:  # what curl sends for a file that it does not find
            raise BodyError(_NOTHING)
        if self._most is not None and (wanted.length or 0) > self._most:
            raise TooLargeError(f"Wanted a body of at most {self._most:,} bytes. Found: {wanted.length:,}")
        with self._lock:
            self._check_quota(wanted.length or 0)

    def _check_room(self, size: int) -> None:
        """What would fill the disk is not begun with: others need it."""
        free = shutil.disk_usage(self._store.arrivals.folder).free
        if free < size:
            raise FullError(f"Wanted room for {size:,} bytes on the disk. Found: {free:,}")

    def _check_quota(self, size: int) -> None:
        used = self._store.used + sum(self._coming.values())
        if self._quota is not None and used + size > self._quota:
            raise FullError(f"Wanted room for {size:,} bytes. Found: {used:,} of the quota of {self._quota:,} are used")

    def _publish(self, arrival: Path, wanted: Wanted, sha256: str | None) -> DatasetVersion:
        data, index = arrival / DATA, arrival / INDEX if wanted.kind == "folder" else None
        if sha256 is None:
            with open(data, "rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if wanted.sha256 is not None and sha256 != wanted.sha256:
            raise BodyError(f"Wanted a body with SHA-256 {wanted.sha256}. Found: {sha256}")
        with full_disks_told():
            try:
                files = 1 if index is None else write_index(data, index)
            except ArchiveError as error:
                raise BodyError(str(error)) from None
            version = DatasetVersion(
                number=1,
                kind=wanted.kind,
                filename=wanted.filename,
                bytes=data.stat().st_size,
                sha256=sha256,
                files=files,
                created=created(),
                by=wanted.by,
                card={} if index is None else card_of(data, index),
                code_version=code_version(),
            )
            return self._store.publish(wanted.name, arrival, version, wanted.conditions)

    def _give_up(self, arrival: Path) -> None:
        """Forget an upload unless somebody brings more of it."""
        with suppress(ConflictError), self._alone(arrival.name):
            self._forget(arrival)

    def _forget(self, arrival: Path) -> None:
        """Remove what is left of a body, and count it no more."""
        shutil.rmtree(arrival, ignore_errors=True)
        with self._lock:
            self._coming.pop(arrival, None)
            self._digests.pop(arrival, None)

    @contextmanager
    def _alone(self, identity: str) -> Iterator[None]:
        with self._lock:
            if identity in self._busy:
                raise ConflictError("Wanted an upload that nobody else goes on with. Found: another request does")
            self._busy.add(identity)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(identity)


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
