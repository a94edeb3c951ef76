"""The interface of a store of datasets, and the logic that all stores share."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from formats import StorageError
from formats.origin import created
from imagestrata.service.conditions import Conditions, etag
from imagestrata.service.errors import ConflictError, NotThereError, UnreadableError
from imagestrata.service.stores.room import Room
from imagestrata.service.stores.staging import Staging
from schemas.datasets import DatasetVersion

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """The immutable bytes of a version, open until `close`. ``read`` is given a start and a length, and returns fewer
    bytes at the end. ``address`` is given a file name, and returns a temporary address for a direct download; None if
    the service must send the bytes.
    """

    size: int
    read: Callable[[int, int], bytes]
    address: Callable[[str], str | None] = lambda filename: None
    close: Callable[[], None] = lambda: None


class Store(ABC):
    """Datasets by name, in versions that never change, whose bytes ``room`` counts. Safe for threads. Locked for one
    server until `close`. A version whose manifest cannot be read does not count as deleted: while a dataset has such a
    version, no bytes are removed unless a request deletes the dataset or that version.
    """

    def __init__(self, staging: Staging) -> None:
        self.staging = staging
        self.room = Room(staging.folder)
        self._lock = threading.Lock()
        self._reported: set[tuple[str, int]] = set()

    def _count(self) -> None:
        """Count the versions that exist when the server starts."""
        for name in self.names():
            for version in self.versions(name):
                self.room.add(name, version.number, self._location(name, version), version.bytes)

    def close(self) -> None:
        """Release the store for other servers."""
        self.staging.close()

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all datasets, sorted."""

    @abstractmethod
    def create(self, name: str) -> None:
        """Make a dataset without versions. Raises `ConflictError`, `FullError`."""

    @abstractmethod
    def numbers(self, name: str) -> list[int]:
        """The version numbers of a dataset, ascending. Raises `NotThereError`."""

    @abstractmethod
    def blob(self, name: str, version: DatasetVersion) -> Blob:
        """The bytes of a version. Raises `NotThereError`."""

    @abstractmethod
    def index(self, name: str, version: DatasetVersion) -> Path:
        """The local path of the index of a folder's files. Raises `NotThereError`."""

    @abstractmethod
    def description(self, name: str) -> str:
        """The description of a dataset, which may be empty. Raises `NotThereError`."""

    @abstractmethod
    def describe(self, name: str, text: str) -> None:
        """Replace the description of a dataset; the last write wins. Raises `NotThereError`, `FullError`."""

    @abstractmethod
    def _location(self, name: str, version: DatasetVersion) -> str:
        """The location of a version's bytes. Versions that share bytes have the same location."""

    @abstractmethod
    def _share(self, name: str, version: DatasetVersion, staged: Path) -> None:
        """Prepare the bytes of a version for another version. Raises `NotThereError`, and `FullError` if they must be
        copied.
        """

    @abstractmethod
    def _read(self, name: str, number: int) -> DatasetVersion | None:
        """Read a version; None if it was deleted. Raises ValueError or OSError if it cannot be read."""

    @abstractmethod
    def _prepare(self, name: str, staged: Path, version: DatasetVersion) -> None:
        """Move a body to its final place, where it is not visible yet."""

    @abstractmethod
    def _show(self, name: str, staged: Path, version: DatasetVersion) -> None:
        """Make a prepared version visible as the newest, in one step."""

    @abstractmethod
    def _hide(self, name: str, number: int | None, following: int) -> None:
        """Hide a version or a dataset in one step. ``following`` is the number of the next version."""

    @abstractmethod
    def _settle(self, name: str, version: DatasetVersion) -> None:
        """Finish the preparation of a version that is now visible or abandoned."""

    @abstractmethod
    def _clear(self, name: str) -> None:
        """Remove bytes without a version, unless a version of the dataset cannot be read."""

    @abstractmethod
    def _following(self, name: str) -> int:
        """The number that a deletion stored for the next version; 1 without a deletion."""

    def versions(self, name: str) -> list[DatasetVersion]:
        """The readable versions of a dataset, ascending. Raises `NotThereError`."""
        found: list[DatasetVersion] = []
        for number in self.numbers(name):
            with suppress(UnreadableError):
                found += filter(None, [self._whole(name, number)])  # None: deleted in the meantime
        return found

    def version(self, name: str, number: int | None = None) -> DatasetVersion:
        """Return a version, by default the newest. Raises `NotThereError`, `UnreadableError`."""
        found = self.newest(name) if number is None else self._whole(name, number)
        if found is not None:
            return found
        known = ", ".join(map(str, self.numbers(name)))
        if number is None or not known:
            raise NotThereError(f"Wanted data of {name!r}. Found: it is empty. Upload some: PUT /datasets/{name}")
        raise NotThereError(f"Wanted version {number} of {name!r}. Found: it has {known}")

    def newest(self, name: str) -> DatasetVersion | None:
        """Return the newest version; None for an empty dataset. Raises `NotThereError`, `UnreadableError`."""
        found = (self._whole(name, number) for number in reversed(self.numbers(name)))
        return next((version for version in found if version is not None), None)

    def unreadable(self, name: str) -> dict[int, UnreadableError]:
        """Return the errors of unreadable versions by number. Raises `NotThereError`."""
        found: dict[int, UnreadableError] = {}
        for number in self.numbers(name):
            try:
                self._whole(name, number)
            except UnreadableError as error:
                found[number] = error
        return found

    def _whole(self, name: str, number: int) -> DatasetVersion | None:
        """Read a version; None if it was deleted. An unreadable version is logged once."""
        try:
            return self._read(name, number)
        except StorageError:  # the storage fails, not the manifest
            raise
        except (ValueError, OSError) as error:
            words = " ".join(str(error).split())
            if (name, number) not in self._reported:
                self._reported.add((name, number))
                log.error("version %d of %s cannot be read; its bytes are kept: %s", number, name, words)
            raise UnreadableError(
                f"Wanted version {number} of {name!r}. Found: its manifest cannot be read: {words} Ask for another "
                f"version, upgrade the service, or delete this one: DELETE /datasets/{name}?version={number}"
            ) from error

    def publish(
        self,
        name: str,
        staged: Path,
        version: DatasetVersion,
        conditions: Conditions,
        *,
        source: int | None = None,
    ) -> DatasetVersion:
        """Publish a staged body as the newest version, with its number, unless the newest version has the same bytes;
        return the newest version. ``source`` is the version whose bytes it shares, if any. Raises `NotThereError` if
        the dataset or the source was deleted, `ConditionError`, and `UnreadableError` if the request has conditions and
        the newest version cannot be read.
        """
        try:
            self._prepare(name, staged, version)
            with self._lock:
                now = self.check(name, conditions)
                if source is not None and self._whole(name, source) is None:
                    raise NotThereError(f"Wanted version {source} of {name!r}. Found: it was deleted")
                if now is not None and _content(now) == _content(version):
                    return now
                version = replace(version, number=self._next(name))
                self._show(name, staged, version)
                location = self._location(name, version)
                self.room.add(name, version.number, location, version.bytes, staged=staged)
            return version
        finally:
            self._settle(name, version)

    def restore(
        self, name: str, number: int, staged: Path, conditions: Conditions, *, by: str | None
    ) -> DatasetVersion:
        """Publish an older version again, under a new number; its bytes are shared if possible, otherwise copied to the
        empty folder ``staged``. Raises `NotThereError`, `ConditionError`, `FullError`.
        """
        found = self.version(name, number)
        self._share(name, found, staged)
        version = replace(found, created=created(), by=by)
        return self.publish(name, staged, version, conditions, source=number)

    def delete(self, name: str, number: int | None, conditions: Conditions) -> None:
        """Delete one version, also an unreadable one, or the whole dataset (None). Raises `NotThereError`,
        `ConditionError`, and `ConflictError` if another version cannot be read, because both may share bytes.
        """
        with self._lock:
            self.check(name, conditions)
            if number is None:
                self._hide(name, None, 1)
            else:
                self._check_deletable(name, number)
                self._hide(name, number, self._next(name))
            self.room.remove(name, number)
            self._reported -= {(of, one) for of, one in self._reported if of == name and number in (None, one)}
        self._clear(name)

    def _check_deletable(self, name: str, number: int) -> None:
        """Raise an error unless a version may be deleted. An unreadable version may always be deleted."""
        try:
            self.version(name, number)
        except UnreadableError:
            return
        for error in self.unreadable(name).values():
            raise ConflictError(f"Wanted to delete version {number} of {name!r}. {error.detail}")

    def check(self, name: str, conditions: Conditions) -> DatasetVersion | None:
        """Check conditions on the newest version and return it; None if it is unreadable and there are none. Raises
        what a publication would raise now: `NotThereError`, `ConditionError` or `UnreadableError`.
        """
        try:
            now = self.newest(name)
        except UnreadableError:
            if conditions == Conditions():
                return None
            raise
        conditions.check(None if now is None else etag(now.sha256))
        return now

    def _next(self, name: str) -> int:
        return max(self._following(name), *(number + 1 for number in self.numbers(name)), 1)


def _content(version: DatasetVersion) -> tuple[str, str, str]:
    return version.sha256, version.kind, version.filename
