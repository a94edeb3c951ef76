"""The states of resumable uploads, read from their staging folders."""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.durability import sync
from imagestrata.service.conditions import Conditions
from imagestrata.service.errors import NotThereError
from imagestrata.service.stores.bodies import full_disk_errors
from imagestrata.service.stores.staging import DATA, UNVERIFIED, UPLOAD
from imagestrata.service.stores.store import Store
from imagestrata.service.uploads.finished import FinishedUploads
from imagestrata.service.uploads.upload_requests import UploadRequest
from schemas.datasets import DatasetVersion

_UNKNOWN = "Wanted an upload of this service. Found: none with this id (it was cancelled or has expired)"
_OTHERS = "Wanted an upload to {!r}. Found: an upload to another dataset"
_IDENTITY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadState:
    """The state of an upload: ``offset`` of ``length`` bytes are accepted; a complete upload has a ``version``."""

    length: int
    offset: int
    metadata: str | None
    expires: float | None = None  # when an unfinished upload is removed unless more bytes arrive
    version: DatasetVersion | None = None


class UploadStates:
    """The states of the uploads to a store."""

    def __init__(self, store: Store, finished: FinishedUploads) -> None:
        self._store, self._finished = store, finished

    def unfinished(self, name: str, identity: str) -> UploadRequest | None:
        """The request of an unfinished upload; None if it is finished or unknown. Raises `NotThereError`."""
        try:
            if not _IDENTITY.fullmatch(identity):
                raise NotThereError(_UNKNOWN)
            path = self._store.staging.folder / identity / UPLOAD
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # a power cut may have emptied it
            return None
        upload = UploadRequest(**{**found, "conditions": Conditions(**found["conditions"])})
        if upload.name != name:
            raise NotThereError(_OTHERS.format(name))
        return upload

    def state(self, upload: UploadRequest | None, name: str, identity: str) -> UploadState:
        """The state of an upload, given the result of `unfinished`. Raises `NotThereError`."""
        staged = self._store.staging.folder / identity
        if upload is not None:
            with suppress(FileNotFoundError):  # it is being published, or was cancelled
                length, expires = upload.length or 0, self._store.staging.expires(staged)
                offset = _offset(staged, length)
                return UploadState(length=length, offset=offset, metadata=upload.metadata, expires=expires)
        done = self._finished.find(identity)
        if done is None:
            raise NotThereError(_UNKNOWN)
        if done.name != name:
            raise NotThereError(_OTHERS.format(name))
        content = (done.sha256, done.kind, done.filename)
        versions = [
            one
            for one in self._store.versions(name)
            if (one.sha256, one.kind, one.filename) == content and done.number in (None, one.number)
        ]
        if not versions:
            raise NotThereError(_UNKNOWN)
        return UploadState(length=done.length, offset=done.length, metadata=done.metadata, version=versions[-1])


def mark_unverified(staged: Path, offset: int) -> None:
    """Record durably that bytes from this offset are not verified. Raises `FullError`."""
    with full_disk_errors():
        (staged / UNVERIFIED).write_text(str(offset), encoding="ascii")
        sync(staged / UNVERIFIED)
        sync(staged)


def _offset(staged: Path, length: int) -> int:
    """The number of accepted bytes of an upload."""
    # The last byte is accepted when the version is published. Otherwise a client that missed the last response would
    # take an upload as finished although its check failed or did not end.
    offset = min((staged / DATA).stat().st_size, length - 1)
    with suppress(FileNotFoundError, ValueError):
        offset = min(offset, int((staged / UNVERIFIED).read_text(encoding="ascii") or 0))
    return offset
