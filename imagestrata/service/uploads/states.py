"""The states of resumable uploads: of unfinished ones in their staging folders, of finished ones beside these."""

import json
import re
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.durability import sync, whole_file
from imagestrata.service.conditions import Conditions
from imagestrata.service.errors import NotThereError
from imagestrata.service.stores.bodies import full_disk_errors
from imagestrata.service.stores.staging import DATA, UNVERIFIED, UPLOAD
from imagestrata.service.stores.store import Store
from imagestrata.service.uploads.upload_requests import UploadRequest
from schemas.datasets import DatasetVersion

_UNKNOWN = "Wanted an upload of this service. Found: none with this id (it was cancelled or has expired)"
_OTHERS = "Wanted an upload to {!r}. Found: an upload to another dataset"
_IDENTITY = re.compile(r"[0-9a-f]{32}")
_MOST_FINISHED = 1_000
_OF_FINISHED = ("name", "kind", "filename", "length", "sha256", "metadata")
"""What is kept of the request of a finished upload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadState:
    """The state of an upload: ``offset`` of ``length`` bytes are accepted; a complete upload has a ``version``."""

    length: int
    offset: int
    metadata: str | None
    expires: float | None = None  # when an unfinished upload is removed unless more bytes arrive
    version: DatasetVersion | None = None


class UploadStates:
    """The states of the uploads to a store. The latest 1,000 finished ones are kept, for clients that missed the last
    response, each in a file. Safe for threads.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._finished = store, store.staging.folder.parent / "finished"
        self._finished.mkdir(parents=True, exist_ok=True)
        files = sorted(self._finished.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        self._known = OrderedDict.fromkeys(path.name for path in files)
        self._lock = threading.Lock()

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
        try:
            found = json.loads((self._finished / identity).read_text(encoding="utf-8"))
            number = found.pop("number", None)  # earlier versions did not store it
            done = UploadRequest(**found)
        except (FileNotFoundError, ValueError, TypeError, AttributeError):  # emptied by a power cut
            raise NotThereError(_UNKNOWN) from None
        if done.name != name:
            raise NotThereError(_OTHERS.format(name))
        content, length = (done.sha256, done.kind, done.filename), done.length or 0
        for one in reversed(self._store.versions(name)):
            if (one.sha256, one.kind, one.filename) == content and number in (None, one.number):
                return UploadState(length=length, offset=length, metadata=done.metadata, version=one)
        raise NotThereError(_UNKNOWN)

    def finish(self, identity: str, upload: UploadRequest, number: int | None = None) -> None:
        """Store a complete upload with its SHA-256, and the number of its version once it is published, and remove the
        oldest above the limit. Raises OSError.
        """
        # Written before the version is published: after a crash in between, the server knows the upload and finds out
        # from the versions whether it was published.
        with whole_file(self._finished / identity) as file:
            told = {key: getattr(upload, key) for key in _OF_FINISHED} | {"number": number}
            file.write(json.dumps(told).encode("utf-8"))
        with self._lock:
            self._known[identity] = None
            oldest = [self._known.popitem(last=False)[0] for _ in range(len(self._known) - _MOST_FINISHED)]
        for one in oldest:
            (self._finished / one).unlink(missing_ok=True)

    def forget(self, identity: str) -> None:
        """Remove a finished upload. Its version stays."""
        with self._lock:
            self._known.pop(identity, None)
        (self._finished / identity).unlink(missing_ok=True)


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
