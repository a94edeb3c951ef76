"""Turn bodies into versions: receive them in a staging folder, then check, index and publish them."""

import asyncio
import hashlib
import json
import os
import secrets
import shutil
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from formats import ArchiveError
from formats.durability import sync
from formats.origin import code_version, created
from formats.tar_index import write_index
from imagestrata.service.conditions import Conditions
from imagestrata.service.errors import BodyError, ChecksumError, ConflictError, FullError, TooLargeError, TooManyError
from imagestrata.service.stores.bodies import Digest, Update, full_disk_errors, take
from imagestrata.service.stores.staging import DATA, INDEX, UNVERIFIED, UPLOAD
from imagestrata.service.stores.store import Store
from imagestrata.service.uploads.cards import card_of
from imagestrata.service.uploads.states import UploadState, UploadStates, mark_unverified
from imagestrata.service.uploads.tus import Checksum
from imagestrata.service.uploads.upload_requests import UploadRequest
from schemas.datasets import DatasetVersion

_NOTHING = "Wanted the bytes of a file, at least one, or of a tar. Found: none"
_NO_FILES = "Wanted a tar with at least one file. Found: none in it (an empty tar, or one of folders only)"
MOST_BEGUN, MOST_OF_TOKEN = 1000, 100  # unfinished uploads
_PROMISED_SECONDS = 3600.0
"""After this time without new bytes, an upload keeps its bytes but loses its reserved space."""


class Uploads:
    """Receives bodies for a store. Safe for threads. ``most`` limits a body, ``quota`` all versions and bodies
    together, in bytes; None is no limit.
    """

    def __init__(self, store: Store, *, most: int | None = None, quota: int | None = None) -> None:
        self._store, self._most, self._room = store, most, store.room
        self._room.quota = quota
        self._lock = threading.Lock()
        self._begun: dict[Path, str | None] = {staged: said.get("by") for staged, said in store.staging.uploads()}
        self._busy: set[str] = set()
        self._states = UploadStates(store)
        # Of resumable uploads, so that the last request need not read all bytes again.
        self._digests: dict[Path, Digest] = {}

    async def put(self, upload: UploadRequest, body: AsyncIterator[bytes]) -> DatasetVersion:
        """Receive a whole body and publish it. Raises `ServiceError`; then nothing of the body is kept."""
        await asyncio.to_thread(self._check, upload)
        staged = self._store.staging.folder / secrets.token_hex(16)
        try:
            self._room.promise(staged, upload.length or 0)
            with full_disk_errors():
                await asyncio.to_thread(self._store.staging.new, staged.name)
            digest = Digest()
            size = await self._take(staged, body, [digest.update], most=_least(upload.length, self._most))
            if upload.length is None and not size:
                raise BodyError(_NOTHING)
            if upload.length not in (None, size):
                raise BodyError(f"Wanted {upload.length:,} bytes. Found: {size:,}")
            return await asyncio.to_thread(self._publish, staged, upload, digest.hexdigest())
        finally:
            self._forget(staged)

    def restore(self, name: str, number: int, conditions: Conditions, *, by: str | None) -> DatasetVersion:
        """Publish an older version again, under a new number. Raises `ServiceError`."""
        staged = self._store.staging.new()
        try:
            with full_disk_errors():
                return self._store.restore(name, number, staged, conditions, by=by)
        finally:
            self._forget(staged)

    def begin(self, upload: UploadRequest) -> str:
        """Create a resumable upload, whose length is known, and return its id. Raises `ServiceError`."""
        self._check(upload)
        for forgotten in self._store.staging.forgotten():
            self._give_up(forgotten)
        identity = secrets.token_hex(16)
        staged = self._store.staging.folder / identity
        self._count(staged, upload.by)
        with full_disk_errors():
            try:
                self._room.promise(staged, upload.length or 0)
                self._room.keep(staged, here=0, seconds=_PROMISED_SECONDS)
                self._store.staging.new(identity)
                (staged / DATA).touch()
                (staged / UPLOAD).write_text(json.dumps(asdict(upload)), encoding="utf-8")
            except (OSError, FullError):
                self._forget(staged)
                raise
        self._digests[staged] = Digest()
        return identity

    def drop(self, name: str) -> None:
        """Cancel all uploads to a deleted dataset."""
        for staged, said in self._store.staging.uploads():
            if said.get("name") == name:
                self._give_up(staged)

    @property
    def most(self) -> int | None:
        """The size of the largest body in bytes, or None for no limit."""
        return _least(self._most, self._room.quota)

    def state(self, name: str, identity: str) -> UploadState:
        """Return the state of an upload. Raises `NotThereError`."""
        return self._states.state(self._states.unfinished(name, identity), name, identity)

    async def append(
        self,
        name: str,
        identity: str,
        offset: int,
        body: AsyncIterator[bytes],
        *,
        sha256: str | None = None,
        checksum: Checksum | None = None,
    ) -> UploadState:
        """Append bytes from ``offset`` to an upload, publish it with the last byte, and return its state. ``sha256`` is
        that of the whole upload, ``checksum`` that of these bytes. Raises `ServiceError` if the bytes cannot be
        accepted; what arrived before stays, unless it has a checksum or was the last of the upload.
        """
        with self._alone(identity):
            upload = await asyncio.to_thread(self._states.unfinished, name, identity)
            state = await asyncio.to_thread(self._states.state, upload, name, identity)
            if offset != state.offset:
                raise ConflictError(
                    f"Wanted Upload-Offset: {state.offset}. Found: {offset}",
                    headers={"Upload-Offset": str(state.offset)},
                )
            if state.version is not None or upload is None:
                async for chunk in body:
                    if chunk:
                        raise TooLargeError(f"Wanted no bytes after the {state.length:,} of the upload. Found: more")
                return state
            staged = self._store.staging.folder / identity
            offset += await self._receive(staged, body, checksum, offset, length=state.length)
            if offset < state.length:
                return replace(state, offset=offset, expires=self._store.staging.expires(staged))
            upload = replace(upload, sha256=sha256 or upload.sha256)
            try:
                digest = self._digests.get(staged)
                made = None if digest is None or digest.size != offset else digest.hexdigest()
                version = await asyncio.to_thread(self._publish, staged, upload, made)
            finally:
                self._forget(staged)
            return replace(state, offset=offset, expires=None, version=version)

    async def _receive(
        self, staged: Path, body: AsyncIterator[bytes], checksum: Checksum | None, offset: int, *, length: int
    ) -> int:
        """Receive bytes of an upload from an offset on, and return how many. Raises `ServiceError`."""
        self._room.promise(staged, length, here=offset)
        try:
            await asyncio.to_thread(self._cut, staged, offset)
            if checksum is not None:
                return await self._take_checked(staged, body, checksum, offset, most=length - offset)
            hashes = [digest.update] if (digest := self._digests.get(staged)) is not None else []
            return await self._take(staged, body, hashes, most=length - offset)
        finally:
            here = (staged / DATA).stat().st_size
            self._room.keep(staged, here=here, seconds=_PROMISED_SECONDS)

    async def _take_checked(
        self, staged: Path, body: AsyncIterator[bytes], checksum: Checksum, offset: int, *, most: int
    ) -> int:
        """Receive bytes that are accepted only if they are complete and match the checksum. Raises `ChecksumError`."""
        before = self._digests.get(staged)
        made, after = checksum.new(), None if before is None else before.copy()
        hashes = [made.update] if after is None else [made.update, after.update]
        try:
            await asyncio.to_thread(mark_unverified, staged, offset)
            size = await self._take(staged, body, hashes, most=most)
            if not checksum.is_of(made):
                raise ChecksumError(
                    f"Wanted {size:,} bytes with the {checksum.algorithm} of Upload-Checksum, {checksum.digest.hex()}. "
                    f"Found: {made.hexdigest()}. Send them again from byte {offset:,}",
                    headers={"Upload-Offset": str(offset)},
                )
            await asyncio.to_thread(sync, staged / DATA)
        except BaseException:
            self._cut(staged, offset)
            raise
        (staged / UNVERIFIED).unlink()
        if after is not None:
            self._digests[staged] = after
        return size

    def _cut(self, staged: Path, offset: int) -> None:
        """Remove bytes that were not accepted."""
        if (staged / DATA).stat().st_size > offset:
            os.truncate(staged / DATA, offset)
        (staged / UNVERIFIED).unlink(missing_ok=True)
        with self._lock:
            if (digest := self._digests.get(staged)) is not None and digest.size != offset:  # works on a full disk, too
                del self._digests[staged]

    def cancel(self, name: str, identity: str) -> None:
        """Cancel an upload. Raises `NotThereError`, `ConflictError`."""
        with self._alone(identity):
            self.state(name, identity)
            self._forget(self._store.staging.folder / identity)
            self._states.forget(identity)

    async def _take(
        self, staged: Path, body: AsyncIterator[bytes], hashes: Sequence[Update], *, most: int | None
    ) -> int:
        reserve = partial(self._room.take, staged)
        with full_disk_errors(), open(staged / DATA, "ab", buffering=0) as file:
            return await take(body, file, hashes=hashes, most=most, reserve=reserve)

    def _check(self, upload: UploadRequest) -> None:
        """Check what is known before the body arrives."""
        self._store.check(upload.name, upload.conditions)
        if upload.length == 0:  # curl sends this for a missing file
            raise BodyError(_NOTHING)
        if self.most is not None and (upload.length or 0) > self.most:
            raise TooLargeError(f"Wanted a body of at most {self.most:,} bytes. Found: {upload.length:,}")

    def _count(self, staged: Path, by: str | None) -> None:
        """Count a new upload. Raises `TooManyError`."""
        with self._lock:
            of_token = sum(1 for one in self._begun.values() if one == by)
            most = MOST_OF_TOKEN if by is not None else MOST_BEGUN
            if of_token >= most or len(self._begun) >= MOST_BEGUN:
                raise TooManyError(
                    f"Wanted at most {most:,} unfinished uploads for a token, and {MOST_BEGUN:,} in total. Found: "
                    f"{of_token:,} for {by or 'everyone'}, {len(self._begun):,} in total. Finish or delete some; each "
                    "is removed after seven days without new bytes",
                    headers={"Retry-After": "60"},
                )
            self._begun[staged] = by

    def _publish(self, staged: Path, upload: UploadRequest, sha256: str | None) -> DatasetVersion:
        data, index = staged / DATA, staged / INDEX if upload.kind == "folder" else None
        if sha256 is None:
            with open(data, "rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if upload.sha256 is not None and sha256 != upload.sha256:
            raise BodyError(f"Wanted a body with SHA-256 {upload.sha256}. Found: {sha256}")
        with full_disk_errors():
            try:
                files = 1 if index is None else write_index(data, index)
            except ArchiveError as error:
                raise BodyError(str(error)) from None
            if not files:
                raise BodyError(_NO_FILES)
            version = DatasetVersion(
                number=1,
                kind=upload.kind,
                filename=upload.filename,
                bytes=data.stat().st_size,
                sha256=sha256,
                files=files,
                created=created(),
                by=upload.by,
                card={} if index is None else card_of(data, index),
                code_version=code_version(),
            )
            if not (staged / UPLOAD).exists():
                return self._store.publish(upload.name, staged, version, upload.conditions)
            done = replace(upload, length=version.bytes, sha256=sha256)
            self._states.finish(staged.name, done)
            try:
                published = self._store.publish(upload.name, staged, version, upload.conditions)
            except BaseException:
                self._states.forget(staged.name)
                raise
            with suppress(OSError):  # without its number it is found by its contents, as after a crash
                self._states.finish(staged.name, done, published.number)
            return published

    def _give_up(self, staged: Path) -> None:
        """Forget an upload unless another request continues it."""
        with suppress(ConflictError), self._alone(staged.name):
            self._forget(staged)

    def _forget(self, staged: Path) -> None:
        """Remove the bytes of a body, and stop counting it."""
        shutil.rmtree(staged, ignore_errors=True)
        self._room.forget(staged)
        with self._lock:
            self._begun.pop(staged, None)
            self._digests.pop(staged, None)

    @contextmanager
    def _alone(self, identity: str) -> Iterator[None]:
        with self._lock:
            if identity in self._busy:
                raise ConflictError(
                    "Wanted an upload without other active requests. Found: another request is writing to it"
                )
            self._busy.add(identity)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(identity)


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
