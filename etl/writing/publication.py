"""A folder that its manifest publishes: splits, metadata caches, and features as Parquet.

Files are written to the subfolder of an attempt, moved into the folder and synced. Then the manifest names them, and
what it replaces is removed. So readers see either the complete old output or the complete new one. What a killed
attempt leaves is recognized by its name; the next attempt that may replace the output removes it.

Nobody can tell a killed attempt from one of a run that goes on. So an attempt has marks, files in its subfolder: one
from the beginning on, one while it moves files in. Who removes files of an attempt removes its mark first. An attempt
whose marks are gone has lost: it publishes nothing, and its run fails.
"""

# Two other outputs are published differently:
# - Shards: their names follow from images and options, so tasks write them in place, and a resumed run keeps them. Only
#   the last step is the same, the manifest (`Storage.publish_text`).
# - Versions in the dataset service: a body arrives in a staging folder, and a rename or an object publishes it whole.

import fcntl
import logging
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self

import pyarrow.parquet as pq

from etl.errors import EtlError, OutputExistsError
from formats.stores.storage import Storage
from schemas import SplitFile

_ATTEMPT = re.compile(r"_attempt-[0-9a-f]{12}")
_RUNS, _MOVES = "_runs", "_moves"
"""The marks of an attempt: that it runs, and that it moves files into the folder."""

log = logging.getLogger(__name__)

Test = Callable[[str], object]  # such as `re.Pattern.fullmatch`


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What messages call an output, a new one and an old one, and the names that may be in its folder."""

    new: str
    old: str
    otherwise: str  # what users can do instead of --overwrite
    manifests: tuple[str, ...]  # the current name, and those of earlier versions
    folders: Test
    files: Test  # paths of files in these folders
    beside: Test = lambda name: False  # files beside the manifest
    older: tuple[str, ...] = ()  # files that a new manifest replaces
    is_manifest: Callable[[Storage, str], bool] = lambda storage, name: True


class Publication:
    """Writes the files of an output aside, and publishes them with a manifest. A context manager: at its end, what was
    not published is removed.
    """

    def __init__(self, address: str, kind: Kind, *, overwrite: bool) -> None:
        """Raises `OutputExistsError` unless the folder is free, or ``overwrite`` may replace its output of this kind.
        Files that do not belong to such an output, complete or half-written, are never replaced.
        """
        self.storage, self._kind, self._overwrite = Storage(address), kind, overwrite
        self.tag = secrets.token_hex(6)  # unique to this attempt
        self._attempt = f"_attempt-{self.tag}"
        self._marks: list[str] = []
        self._moved: list[str] = []  # files in the folder that no manifest names yet
        try:
            self._is_new = not self.storage.exists()
            is_file = not self._is_new and not self.storage.is_folder()
            names = [] if is_file else self.storage.names()
        except NotADirectoryError:
            is_file = True
        if is_file:
            raise OutputExistsError(
                f"Wanted a folder for the {kind.new} at {address}. Found: a file. Use another path."
            )
        self._stale = [name for name in names if _ATTEMPT.fullmatch(name)]
        self._check_free([name for name in names if name not in self._stale])

    def _check_free(self, there: Collection[str]) -> None:
        place, kind = self.storage.address, self._kind
        if strangers := [name for name in there if not self._is_ours(name)]:
            raise OutputExistsError(
                f"Wanted an empty or new folder for the {kind.new}, or an old {kind.old}, at {place}. "
                f"Found: {', '.join(strangers[:3])} in it. Use another folder."
            )
        if (there or self._stale) and not self._overwrite:
            is_complete = bool(set(kind.manifests) & set(there))
            state = "exists already" if is_complete else "was left half-written, or that another run is writing"
            raise OutputExistsError(
                f"Wanted a new folder for the {kind.new} at {place}. Found: a {kind.old} that {state}. "
                f"{'Set' if is_complete else 'If none is writing, set'} --overwrite to replace it, or {kind.otherwise}."
            )

    def _is_ours(self, name: str) -> bool:
        kind = self._kind
        if name in kind.manifests:
            return kind.is_manifest(self.storage, name)
        if kind.folders(name):
            return all(kind.files(f"{name}/{file}") for file in self.storage.files(name))
        return bool(kind.beside(name))

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, kind: object = None, error: BaseException | None = None, trace: object = None) -> None:
        # If another run has removed the files, Spark's own error only says that a path does not exist.
        is_lost = isinstance(error, Exception) and not isinstance(error, EtlError) and not self._has_marks()
        self.storage.remove_files(self._moved)
        self.storage.remove(self._attempt)
        if self._is_new and self.storage.is_local:
            with suppress(OSError):  # it is not empty
                os.rmdir(self.storage.path())
        if is_lost:
            raise self._lost() from error

    def begin(self) -> None:
        """Create the folder of the attempt, to find out early whether this is possible. Raises OSError."""
        self._mark(_RUNS)

    def _mark(self, name: str) -> None:
        if name not in self._marks:
            self.storage.write_bytes(f"{self._attempt}/{name}", b"")
            self._marks.append(name)

    def aside(self, name: str) -> str:
        """An address for Spark at which to write a part of the output."""
        return self.storage.url(f"{self._attempt}/{name}")

    def files(self, name: str, *, into: str) -> list[SplitFile]:
        """The Parquet files of a part, sorted: the paths that they will have in the folder ``into``, and their rows."""
        found = []
        for file in self.storage.files(f"{self._attempt}/{name}"):
            path = f"{into}/{file}" if into else file
            if self._kind.files(path) and path.endswith(".parquet"):
                with self.storage.open(f"{self._attempt}/{name}/{file}") as opened:
                    found.append(SplitFile(path, pq.read_metadata(opened).num_rows))
        return found

    def move_in(self, paths: Mapping[str, str]) -> None:
        """Move files that were written aside into the folder, by their paths in both. Raises `OutputExistsError` if
        another attempt has removed some.
        """
        self._mark(_MOVES)
        with self._lost_if_gone():
            for source, path in sorted(paths.items()):
                self._moved.append(path)
                self.storage.move(f"{self._attempt}/{source}", path)

    def publish(self, manifest: str, *, files: Collection[str], beside: Mapping[str, bytes] | None = None) -> None:
        """Write the manifest, the files ``beside`` it, and remove what it does not name. ``files`` are in its folders.
        Raises `OutputExistsError`, and publishes nothing, if another attempt has removed files of this one.
        """
        pages = beside or {}
        with self._lost_if_gone():
            if files:  # before the manifest: it must never name a file that is not on the disk
                self.storage.settle(files)
        with self._one_at_a_time():
            self._replace(manifest, pages=pages)
            self._write_beside(manifest, pages)
            try:
                self._clean_up(manifest, files=files)
            except OSError as error:
                log.warning("Could not remove files that are no longer needed: %s", error)

    def _replace(self, manifest: str, *, pages: Collection[str]) -> None:
        """Write the manifest instead of the current one. Raises `OutputExistsError`."""
        storage, name = self.storage, self._kind.manifests[0]
        self._check_marks()
        before = storage.read_text(name) if storage.exists(name) else None
        if before is not None and not self._overwrite:
            raise self._lost()
        for page in pages:  # a page of another manifest would be wrong, and one that is missing is not
            storage.remove(page)
        moved, self._moved = self._moved, []  # if this fails halfway, the manifest may name them
        try:
            if not storage.publish_instead(name, manifest, before=before):
                raise self._lost()
            self._check_marks()  # again, for storages on which attempts cannot wait for each other
        except OutputExistsError:
            if before is None:
                if storage.exists(name) and storage.read_text(name) == manifest:
                    storage.remove(name)
            else:
                storage.publish_instead(name, before, before=manifest)
            storage.remove_files(moved)
            raise

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Let attempts on one local disk publish one after the other."""
        if not self.storage.is_local:
            yield
            return
        folder = os.open(self.storage.path(), os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system that has no locks
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _check_marks(self) -> None:
        """Raise `OutputExistsError` if another attempt has removed files of this one."""
        if not self._has_marks():
            raise self._lost()

    def _has_marks(self) -> bool:
        """Whether no other run has removed the files of this attempt."""
        return all(self.storage.exists(f"{self._attempt}/{mark}") for mark in self._marks)

    @contextmanager
    def _lost_if_gone(self) -> Iterator[None]:
        """Explain that files of this attempt are missing."""
        try:
            yield
        except FileNotFoundError:
            self._check_marks()
            raise

    def _lost(self) -> OutputExistsError:
        return OutputExistsError(
            f"Wanted no other run that writes a {self._kind.new} to {self.storage.address}. Found: one that has "
            "published there since this run began. Nothing of this run was published. If it is to replace the other "
            "one, run it again with --overwrite."
        )

    def _write_beside(self, manifest: str, beside: Mapping[str, bytes]) -> None:
        for name, data in beside.items():
            try:
                self.storage.write_bytes(name, data, durable=True)
            except OSError as error:
                place = self.storage.address
                log.warning(
                    "Cannot write %s/%s: %s. The %s is complete without it.", place, name, error, self._kind.new
                )
        if beside and self.storage.read_text(self._kind.manifests[0]) != manifest:
            self.storage.remove_files([*beside])  # they may have replaced those of the other run

    def has_more(self, files: Collection[str]) -> bool:
        """Whether the folder has others than these files: those of runs that were killed, or still write."""
        return bool(self._stale or self._unnamed(files))

    def _unnamed(self, files: Collection[str]) -> list[str]:
        storage, kind = self.storage, self._kind
        return [
            path
            for folder in filter(kind.folders, storage.names())
            for path in (f"{folder}/{file}" for file in storage.files(folder))
            if path not in files and kind.files(path)
        ]

    def _clean_up(self, manifest: str, *, files: Collection[str]) -> None:
        """Remove what the manifest does not name. Until it was replaced, readers needed what the old one names."""
        storage, kind = self.storage, self._kind
        if unnamed := self._unnamed(files):
            others = [name for name in storage.names() if _ATTEMPT.fullmatch(name) and name != self._attempt]
            storage.remove_files([f"{name}/{_MOVES}" for name in others])
        if storage.read_text(kind.manifests[0]) != manifest:  # the run that published since removes it
            return
        storage.remove_files(unnamed)
        for name in self._stale:
            remove_attempt(storage, name)
        for name in kind.older:
            storage.remove(name)


def remove_attempt(storage: Storage, name: str) -> None:
    """Remove the folder of an attempt, killed or not. One that still runs fails then."""
    storage.remove_files([f"{name}/{_RUNS}"])
    storage.remove(name)
