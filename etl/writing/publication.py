"""A folder that its manifest publishes: splits, metadata caches, and features as Parquet.

Files are written to the subfolder of an attempt, moved into the folder and synced. Then the manifest names them, and
what it replaces is removed. So readers see either the complete old output or the complete new one. What a killed
attempt leaves is recognized by its name; the next attempt that may replace the output removes it.
"""

# Two other outputs are published differently:
# - Shards: their names follow from images and options, so tasks write them in place, and a resumed run keeps them. Only
#   the last step is the same, the manifest (`Storage.publish_text`).
# - Versions in the dataset service: a body arrives in a staging folder, and a rename or an object publishes it whole.

import re
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow.parquet as pq

from etl.errors import OutputExistsError
from formats.stores.storage import Storage
from schemas import SplitFile

_ATTEMPT = re.compile(r"_attempt-[0-9a-f]{12}")

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
        self.storage, self._kind = Storage(address), kind
        self.tag = secrets.token_hex(6)  # unique to this attempt
        self._attempt = f"_attempt-{self.tag}"
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
        self._check_free([name for name in names if name not in self._stale], overwrite=overwrite)

    def _check_free(self, there: Collection[str], *, overwrite: bool) -> None:
        place, kind = self.storage.address, self._kind
        if strangers := [name for name in there if not self._is_ours(name)]:
            raise OutputExistsError(
                f"Wanted an empty or new folder for the {kind.new}, or an old {kind.old}, at {place}. "
                f"Found: {', '.join(strangers[:3])} in it. Use another folder."
            )
        if (there or self._stale) and not overwrite:
            state = "exists already" if set(kind.manifests) & set(there) else "was left half-written"
            raise OutputExistsError(
                f"Wanted a new folder for the {kind.new} at {place}. Found: a {kind.old} that {state}. "
                f"Set --overwrite to replace it, or {kind.otherwise}."
            )

    def _is_ours(self, name: str) -> bool:
        kind = self._kind
        if name in kind.manifests:
            return kind.is_manifest(self.storage, name)
        if kind.folders(name):
            return all(kind.files(f"{name}/{file}") for file in self.storage.files(name))
        return bool(kind.beside(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.storage.remove(self._attempt)
        if self._is_new and not self.storage.names():
            self.storage.remove("")

    def make_folder(self) -> None:
        """Create the folder of the attempt, to find out early whether this is possible. Raises OSError."""
        self.storage.make_folder(self._attempt)

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
        """Move files that were written aside into the folder, by their paths in both."""
        for source, path in sorted(paths.items()):
            self.storage.move(f"{self._attempt}/{source}", path)

    def publish(self, manifest: str, *, files: Collection[str], beside: Collection[str] = ()) -> None:
        """Write the manifest, and remove what it does not name. ``files`` are in its folders, ``beside`` beside it."""
        kind = self._kind
        self.storage.publish_text(kind.manifests[0], manifest, files=[*files, *beside])
        # Only now: until the manifest was replaced, readers needed what the old one names.
        for name in (*kind.older, *self._stale):
            self.storage.remove(name)
        for folder in filter(kind.folders, self.storage.names()):
            for path in (f"{folder}/{file}" for file in self.storage.files(folder)):
                if path not in files and kind.files(path):
                    self.storage.remove(path)
