"""Where datasets lie: what the service asks of such a place, and what is the same in all of them."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from formats import StorageError
from formats.origin import created
from imagestrata.service.conditions import Conditions, etag
from imagestrata.service.errors import ConflictError, NotThereError, UnreadableError
from imagestrata.service.stores.blobs import Blob
from imagestrata.service.stores.room import Room
from imagestrata.service.stores.staging import Staging
from schemas.datasets import DatasetVersion

log = logging.getLogger(__name__)


class Store(ABC):
    """Datasets by name, in versions that never change. Safe for threads; one server has it, until `close`.

    ``room`` counts the bytes of all versions. A version whose manifest cannot be read is never taken for one that was
    deleted: while a dataset has one, none of its bytes are removed unless somebody deletes the whole dataset or that
    version.
    """

    def __init__(self, staging: Staging) -> None:
        self.staging = staging
        self.room = Room(staging.folder)
        self._lock = threading.Lock()
        self._reported: set[tuple[str, int]] = set()

    def _count(self) -> None:
        """Count the versions that a server finds when it starts."""
        for name in self.names():
            for version in self.versions(name):
                self.room.add(name, version.number, self._location(name, version), version.bytes)

    def close(self) -> None:
        """Let other servers have it."""
        self.staging.close()

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all datasets, sorted."""

    @abstractmethod
    def create(self, name: str) -> None:
        """Make a dataset without versions. Raises `ConflictError`."""

    @abstractmethod
    def numbers(self, name: str) -> list[int]:
        """The numbers of a dataset's versions, in their order. Raises `NotThereError`."""

    @abstractmethod
    def blob(self, name: str, version: DatasetVersion) -> Blob:
        """A version's bytes. Raises `NotThereError`."""

    @abstractmethod
    def index(self, name: str, version: DatasetVersion) -> Path:
        """Where the index of a folder's files lies on this machine. Raises `NotThereError`."""

    @abstractmethod
    def description(self, name: str) -> str:
        """What people say about a dataset; empty where they say nothing. Raises `NotThereError`."""

    @abstractmethod
    def describe(self, name: str, text: str) -> None:
        """Replace a dataset's description; the last one who writes it wins. Raises `NotThereError`, `FullError`."""

    @abstractmethod
    def _location(self, name: str, version: DatasetVersion) -> str:
        """Where a version's bytes are; versions of a dataset that share them have the same."""

    @abstractmethod
    def _share(self, name: str, version: DatasetVersion, staged: Path, reserve: Callable[[int], None]) -> None:
        """Prepare a version's bytes for one more version. ``reserve`` is called first for bytes that are copied.

        Raises `NotThereError`, and what ``reserve`` raises.
        """

    @abstractmethod
    def _read(self, name: str, number: int) -> DatasetVersion | None:
        """One version, or None if it was deleted. Raises ValueError or OSError for one that cannot be read."""

    @abstractmethod
    def _prepare(self, name: str, staged: Path, version: DatasetVersion) -> None:
        """Bring a body where it lasts; nobody sees it yet."""

    @abstractmethod
    def _show(self, name: str, staged: Path, version: DatasetVersion) -> None:
        """Make a version that was prepared the newest one, in one step."""

    @abstractmethod
    def _hide(self, name: str, number: int | None, following: int) -> None:
        """Have a version, or a whole dataset, vanish in one step; ``following`` is the next version's number."""

    @abstractmethod
    def _settle(self, name: str, version: DatasetVersion) -> None:
        """Take note that a version that was prepared is shown, or given up."""

    @abstractmethod
    def _clear(self, name: str) -> None:
        """Remove what belongs to no version; nothing of a dataset with a version that cannot be read."""

    @abstractmethod
    def _following(self, name: str) -> int:
        """The number that was kept for the next version when one was deleted; 1 where none was."""

    def versions(self, name: str) -> list[DatasetVersion]:
        """The versions of a dataset that can be read, in their order. Raises `NotThereError`."""
        found: list[DatasetVersion] = []
        for number in self.numbers(name):
            with suppress(UnreadableError):
                found += filter(None, [self._whole(name, number)])  # None: it was deleted meanwhile
        return found

    def version(self, name: str, number: int | None = None) -> DatasetVersion:
        """One version; the newest where none is named. Raises `NotThereError`, `UnreadableError`."""
        found = self.newest(name) if number is None else self._whole(name, number)
        if found is not None:
            return found
        known = ", ".join(map(str, self.numbers(name)))
        if number is None or not known:
            raise NotThereError(f"Wanted data of {name!r}. Found: it is empty. Upload some: PUT /datasets/{name}")
        raise NotThereError(f"Wanted version {number} of {name!r}. Found: it has {known}")

    def newest(self, name: str) -> DatasetVersion | None:
        """The newest version, or None for a dataset without any. Raises `NotThereError`, `UnreadableError`."""
        found = (self._whole(name, number) for number in reversed(self.numbers(name)))
        return next((version for version in found if version is not None), None)

    def unreadable(self, name: str) -> dict[int, UnreadableError]:
        """The errors of the versions that cannot be read, by number. Raises `NotThereError`."""
        found: dict[int, UnreadableError] = {}
        for number in self.numbers(name):
            try:
                self._whole(name, number)
            except UnreadableError as error:
                found[number] = error
        return found

    def _whole(self, name: str, number: int) -> DatasetVersion | None:
        """A version, None if it was deleted; the log names one that cannot be read, once."""
        try:
            return self._read(name, number)
        except StorageError:  # nothing can be read now, whatever it is
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

    def check(self, name: str, conditions: Conditions) -> None:
        """Raises `NotThereError`, and `ConditionError` or `UnreadableError` if a publication would, as things are."""
        self._now(name, conditions)

    def publish(
        self,
        name: str,
        staged: Path,
        version: DatasetVersion,
        conditions: Conditions,
        *,
        source: int | None = None,
    ) -> DatasetVersion:
        """Make what is in ``staged`` the newest version and number it, unless the newest one has the same bytes.

        ``source`` is the version whose bytes it shares, if any: it must not be deleted meanwhile. Over a version that
        cannot be read, a new one is published unless the request has conditions.
        Raises `NotThereError`, `ConditionError`, `UnreadableError`.
        """
        try:
            self._prepare(name, staged, version)
            with self._lock:
                now = self._now(name, conditions)
                if source is not None and self._whole(name, source) is None:
                    raise NotThereError(f"Wanted version {source} of {name!r}. Found: it was deleted")
                if now is not None and _content(now) == _content(version):
                    return now
                version = replace(version, number=self._next(name))
                self._show(name, staged, version)
                self.room.publish(staged, name, version.number, self._location(name, version), version.bytes)
            return version
        finally:
            self._settle(name, version)

    def restore(
        self,
        name: str,
        number: int,
        staged: Path,
        conditions: Conditions,
        *,
        by: str | None,
        reserve: Callable[[int], None],
    ) -> DatasetVersion:
        """Make an older version the newest one again, under a new number. Its bytes are shared where that is possible.

        Raises `NotThereError`, `ConditionError`, and what ``reserve`` raises for bytes that must be copied.
        """
        found = self.version(name, number)
        self._share(name, found, staged, reserve)
        version = replace(found, created=created(), by=by)
        return self.publish(name, staged, version, conditions, source=number)

    def delete(self, name: str, number: int | None, conditions: Conditions) -> None:
        """Delete a dataset, or one version of it, which may be one that cannot be read.

        Raises `NotThereError`, `ConditionError`; `ConflictError` while another version cannot be read, because both may
        have the same bytes.
        """
        with self._lock:
            self._now(name, conditions)
            if number is None:
                self._hide(name, None, 1)
            else:
                self._check_deletable(name, number)
                self._hide(name, number, self._next(name))
            self.room.remove(name, number)
            self._reported -= {(of, one) for of, one in self._reported if of == name and number in (None, one)}
        self._clear(name)

    def _check_deletable(self, name: str, number: int) -> None:
        """Raise an error unless a version may be deleted; one that cannot be read always may."""
        try:
            self.version(name, number)
        except UnreadableError:
            return
        for error in self.unreadable(name).values():
            raise ConflictError(f"Wanted to delete version {number} of {name!r}. {error.detail}")

    def _now(self, name: str, conditions: Conditions) -> DatasetVersion | None:
        """The newest version, for which conditions hold; None where it cannot be read and there are no conditions."""
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
