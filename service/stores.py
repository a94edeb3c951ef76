"""Where datasets lie: what the service asks of such a place, and what is the same in all of them."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from schemas.datasets import DatasetVersion
from schemas.errors import SchemaError
from service.arrivals import Arrivals
from service.blobs import Blob
from service.conditions import Conditions, etag
from service.errors import NotThereError

log = logging.getLogger("service")


class Store(ABC):
    """Datasets by name, in versions that never change. Safe for threads; one server has it, until `close`.

    ``used`` is the bytes of all versions.
    """

    def __init__(self, arrivals: Arrivals) -> None:
        self.arrivals = arrivals
        self.used = 0
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let other servers have it."""
        self.arrivals.close()

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
    def _read(self, name: str, number: int) -> DatasetVersion | None:
        """One version, if there is one of this number. Raises `SchemaError` for one that is damaged."""

    @abstractmethod
    def _prepare(self, name: str, arrival: Path, version: DatasetVersion) -> None:
        """Bring a body where it lasts; nobody sees it yet."""

    @abstractmethod
    def _show(self, name: str, arrival: Path, version: DatasetVersion) -> None:
        """Make a version that was prepared the newest one, in one step."""

    @abstractmethod
    def _hide(self, name: str, number: int | None, following: int) -> None:
        """Have a version, or a whole dataset, vanish in one step; ``following`` is the next version's number."""

    @abstractmethod
    def _settle(self, name: str, version: DatasetVersion) -> None:
        """Take note that a version that was prepared is shown, or given up."""

    @abstractmethod
    def _clear(self, name: str) -> None:
        """Give back the room of what nobody sees any more."""

    @abstractmethod
    def _following(self, name: str) -> int:
        """The number that was kept for the next version when one was deleted; 1 where none was."""

    def versions(self, name: str) -> Iterator[DatasetVersion]:
        """A dataset's versions in their order. Raises `NotThereError`."""
        found = (self._whole(name, number) for number in self.numbers(name))
        return (version for version in found if version is not None)  # else deleted meanwhile

    def version(self, name: str, number: int | None = None) -> DatasetVersion:
        """One version; the newest where none is named. Raises `NotThereError`."""
        found = self.newest(name) if number is None else self._whole(name, number)
        if found is not None:
            return found
        known = ", ".join(map(str, self.numbers(name)))
        if number is None or not known:
            raise NotThereError(f"Wanted data of {name!r}. Found: it is empty. Upload some: PUT /datasets/{name}")
        raise NotThereError(f"Wanted version {number} of {name!r}. Found: it has {known}")

    def newest(self, name: str) -> DatasetVersion | None:
        """The newest version, or None for a dataset without any. Raises `NotThereError`."""
        found = (self._whole(name, number) for number in reversed(self.numbers(name)))
        return next((version for version in found if version is not None), None)

    def _whole(self, name: str, number: int) -> DatasetVersion | None:
        """A version that can be read: one that is damaged is told in the log, and takes nothing else with it."""
        try:
            return self._read(name, number)
        except SchemaError as error:
            log.error("version %d of %s is not shown: %s", number, name, error)
            return None

    def publish(self, name: str, arrival: Path, version: DatasetVersion, conditions: Conditions) -> DatasetVersion:
        """Make what lies in ``arrival`` the newest version, and number it; what the newest one has already makes none.

        Raises `NotThereError`, `ConditionError`.
        """
        try:
            self._prepare(name, arrival, version)
            with self._lock:
                now = self.newest(name)
                conditions.check(None if now is None else etag(now.sha256))
                if now is not None and _content(now) == _content(version):
                    return now
                version = replace(version, number=self._next(name))
                self._show(name, arrival, version)
                self.used += version.bytes
            return version
        finally:
            self._settle(name, version)

    def delete(self, name: str, number: int | None, conditions: Conditions) -> None:
        """Delete a dataset, or one version of it. Raises `NotThereError`, `ConditionError`."""
        with self._lock:
            now = self.newest(name)
            conditions.check(None if now is None else etag(now.sha256))
            gone = list(self.versions(name)) if number is None else [self.version(name, number)]
            self._hide(name, number, self._next(name))
            self.used -= sum(version.bytes for version in gone)
        self._clear(name)

    def _next(self, name: str) -> int:
        return max(self._following(name), *(number + 1 for number in self.numbers(name)), 1)


def _content(version: DatasetVersion) -> tuple[str, str, str]:
    return version.sha256, version.kind, version.filename
