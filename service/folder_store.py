"""Datasets in a folder of this machine.

    ROOT/datasets/NAME/versions/3/   version.json  data  files.sqlite (of a folder)
         datasets/NAME/next          the next version's number, once one was deleted: none is given twice
         incoming/ID/                bodies on their way, and uploads that go on
         trash/ID/                   what is being deleted
         tokens.json  lock

A version is made ready in ``incoming`` and becomes visible by one rename; so does what is deleted vanish. What a killed
server leaves in ``incoming`` and ``trash`` goes when the next one starts.
"""

import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from schemas.datasets import VERSION_NAME, DatasetVersion
from service.blobs import FileBlob
from service.conditions import Conditions, etag
from service.errors import ConflictError, NotThereError

DATA, INDEX, UPLOAD = "data", "files.sqlite", "upload.json"
_UPLOADS_LAST_SECONDS = 7 * 86_400.0


class FolderStore:
    """Datasets of one server, which holds the folder's lock until `close`. Safe for threads.

    Raises `ConflictError` where another server has the folder.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).resolve()
        self._datasets, self.incoming, self._trash = (self.root / name for name in ("datasets", "incoming", "trash"))
        for folder in (self._datasets, self.incoming, self._trash):
            folder.mkdir(parents=True, exist_ok=True)
        self._held = FileLock(self.root / "lock", timeout=0)
        try:
            self._held.acquire()
        except Timeout:
            raise ConflictError(
                f"Wanted the folder {self.root} for this server alone. Found: another one uses it"
            ) from None
        self._lock = threading.Lock()
        self._sweep()
        self.used = sum(version.bytes for name in self.names() for version in self.versions(name))
        """Bytes of all versions."""

    def close(self) -> None:
        """Let other servers have the folder."""
        self._held.release()

    def names(self) -> list[str]:
        """The names of all datasets, sorted."""
        return sorted(os.listdir(self._datasets))

    def create(self, name: str) -> None:
        """Make a dataset without versions. Raises `ConflictError`."""
        try:
            (self._datasets / name / "versions").mkdir(parents=True)
        except FileExistsError:
            raise ConflictError(f"Wanted a new dataset {name!r}. Found: there is one") from None
        _keep(self._datasets)

    def numbers(self, name: str) -> list[int]:
        """The numbers of a dataset's versions, in their order. Raises `NotThereError`."""
        try:
            return sorted(map(int, os.listdir(self._datasets / name / "versions")))
        except FileNotFoundError:
            raise NotThereError(f"Wanted the dataset {name!r}. Found: none of this name") from None

    def versions(self, name: str) -> Iterator[DatasetVersion]:
        """A dataset's versions in their order. Raises `NotThereError`."""
        for number in self.numbers(name):
            with suppress(NotThereError):  # deleted meanwhile
                yield self.version(name, number)

    def version(self, name: str, number: int | None = None) -> DatasetVersion:
        """One version; the newest where none is named. Raises `NotThereError`."""
        if number is None:
            numbers = self.numbers(name)
            if not numbers:
                raise NotThereError(f"Wanted data of {name!r}. Found: it is empty. Upload some: PUT /datasets/{name}")
            number = numbers[-1]
        path = self.folder(name, number) / VERSION_NAME
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            known = ", ".join(map(str, self.numbers(name))) or "none"
            raise NotThereError(f"Wanted version {number} of {name!r}. Found: it has {known}") from None
        return DatasetVersion.from_json(text, place=str(path))

    def newest(self, name: str) -> DatasetVersion | None:
        """The newest version, or None for a dataset without any. Raises `NotThereError`."""
        numbers = self.numbers(name)
        return self.version(name, numbers[-1]) if numbers else None

    def folder(self, name: str, number: int) -> Path:
        """Where a version lies."""
        return self._datasets / name / "versions" / str(number)

    def blob(self, name: str, number: int) -> FileBlob:
        """A version's bytes. Raises `NotThereError`."""
        try:
            return FileBlob.open(self.folder(name, number) / DATA)
        except FileNotFoundError:
            raise NotThereError(f"Wanted version {number} of {name!r}. Found: it was deleted") from None

    def index(self, name: str, number: int) -> Path:
        """Where the index of a version's files lies on this machine."""
        return self.folder(name, number) / INDEX

    def arrival(self, identity: str | None = None) -> Path:
        """A new folder for a body that comes."""
        folder = self.incoming / (identity or secrets.token_hex(16))
        folder.mkdir()
        return folder

    def publish(
        self, name: str, arrival: Path, made: Callable[[int], DatasetVersion], conditions: Conditions
    ) -> DatasetVersion:
        """Make what lies in ``arrival`` the newest version; the same as the newest one, it makes no other.

        Raises `NotThereError`, `ConditionError`.
        """
        for file in (DATA, INDEX):
            with suppress(FileNotFoundError):
                _keep(arrival / file)
        with self._lock:
            now = self.newest(name)
            conditions.check(None if now is None else etag(now.sha256))
            version = made(self._next(name))
            if now is not None and (now.sha256, now.kind, now.filename) == (
                version.sha256,
                version.kind,
                version.filename,
            ):
                return now
            (arrival / UPLOAD).unlink(missing_ok=True)
            path = arrival / VERSION_NAME
            path.write_text(version.to_json(), encoding="utf-8")
            _keep(path)
            _keep(arrival)
            os.rename(arrival, self.folder(name, version.number))
            _keep(self._datasets / name / "versions")
            self.used += version.bytes
        return version

    def delete(self, name: str, number: int | None, conditions: Conditions) -> None:
        """Delete a dataset, or one version of it. Raises `NotThereError`, `ConditionError`."""
        with self._lock:
            now = self.newest(name)
            conditions.check(None if now is None else etag(now.sha256))
            gone = list(self.versions(name)) if number is None else [self.version(name, number)]
            if number is not None:
                kept = self._datasets / name / "next"
                aside = kept.with_suffix(".new")
                aside.write_text(str(self._next(name)), encoding="utf-8")
                os.replace(aside, kept)
            source = self._datasets / name if number is None else self.folder(name, number)
            trash = self._trash / secrets.token_hex(16)
            os.rename(source, trash)
            _keep(source.parent)
            self.used -= sum(version.bytes for version in gone)
        shutil.rmtree(trash, ignore_errors=True)

    def _next(self, name: str) -> int:
        numbers, kept = self.numbers(name), 1
        with suppress(FileNotFoundError):
            kept = int((self._datasets / name / "next").read_text(encoding="utf-8"))
        return max(kept, numbers[-1] + 1 if numbers else 1)

    def _sweep(self) -> None:
        for trash in self._trash.iterdir():
            shutil.rmtree(trash, ignore_errors=True)
        for arrival in self.incoming.iterdir():
            upload = arrival / UPLOAD
            if not upload.exists() or upload.stat().st_mtime < time.time() - _UPLOADS_LAST_SECONDS:
                shutil.rmtree(arrival, ignore_errors=True)


def _keep(path: Path) -> None:
    """Have a file, or a folder's entries, outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
