"""Datasets in a bucket, of which downloads are sent straight from there.

    PREFIX/names/NAME                            a dataset; "next" in it, once a version was deleted
           datasets/NAME/versions/3.json         a version, which is there when this is
           datasets/NAME/content/SHA256          its bytes, and those of the versions that have the same
           datasets/NAME/content/SHA256.sqlite   the index of a folder's files
           tokens.json

Bodies arrive in a folder of this machine, the spool, and are sent to the bucket when they are whole. What a killed
server leaves, contents of no version and uploads that were begun, goes when the next one starts.

So a prefix is for one server at a time. The spool is locked, and with it the prefix against a second server of the same
spool; one with another spool, as on another machine, is not seen, and would take what the first one is sending for what
a killed server left. Servers that share a bucket need a prefix each.
"""

import json
import mmap
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from formats.storage import Storage
from schemas.datasets import DatasetVersion
from service.arrivals import DATA, INDEX, Arrivals
from service.errors import ConflictError, NotThereError, no_dataset
from service.stores import Store

_BLOCK = 1 << 20
_LEAST_PART = 16 << 20
_MOST_PARTS = 10_000  # of one object, on S3
_MOST_INDEXES = 64
_TYPE = "application/octet-stream"


@dataclass(slots=True)
class BucketBlob:
    """An object that does not change."""

    storage: Storage
    key: str
    size: int

    def read(self, start: int, length: int) -> bytes:
        """So many bytes from there; fewer where they end."""
        return self.storage.read_range(self.key, start, min(length, self.size - start))

    def address(self, *, filename: str) -> str | None:
        """Where they can be had without us, for an hour."""
        name = filename.encode("ascii", "replace").decode().replace("?", "_").replace('"', "_")
        told = {"ResponseContentDisposition": f'attachment; filename="{name}"', "ResponseContentType": _TYPE}
        return self.storage.signed(self.key, **told)

    def close(self) -> None:
        """Nothing is held."""


class BucketStore(Store):
    """Datasets of one server, whose ``spool`` and prefix are its own.

    Raises `StorageError` for a bucket that cannot be used.
    """

    def __init__(self, storage: Storage, *, spool: str | os.PathLike[str]) -> None:
        storage.check()
        self._storage = storage
        self._indexes = Path(spool).resolve() / "indexes"
        self._indexes.mkdir(parents=True, exist_ok=True)
        super().__init__(Arrivals(Path(spool).resolve()))
        self._preparing: Counter[tuple[str, str]] = Counter()
        storage.abandon("datasets/")  # what was being sent when a server was killed
        for name in {*self.names(), *storage.names("datasets")}:
            self._clear(name)
        self.used = sum(version.bytes for name in self.names() for version in self.versions(name))

    def names(self) -> list[str]:
        """The names of all datasets, sorted."""
        return self._storage.names("names")

    def create(self, name: str) -> None:
        """Make a dataset without versions. Raises `ConflictError`."""
        with self._lock:
            if self._storage.exists(f"names/{name}"):
                raise ConflictError(f"Wanted a new dataset {name!r}. Found: there is one")
            self._storage.write_bytes(f"names/{name}", b"{}")

    def numbers(self, name: str) -> list[int]:
        """The numbers of a dataset's versions, in their order. Raises `NotThereError`."""
        found = sorted(int(key.removesuffix(".json")) for key in self._storage.names(f"datasets/{name}/versions"))
        if not found and not self._storage.exists(f"names/{name}"):
            raise no_dataset(name)
        return found

    def blob(self, name: str, version: DatasetVersion) -> BucketBlob:
        """A version's bytes."""
        return BucketBlob(self._storage, self._content(name, version.sha256), version.bytes)

    def index(self, name: str, version: DatasetVersion) -> Path:
        """Where the index of a folder's files lies; it is brought here when it is first asked for."""
        place = self._indexes / f"{version.sha256}.sqlite"
        if not place.exists():
            aside = place.with_suffix(f".{secrets.token_hex(4)}")
            try:
                with (
                    self._storage.open(f"{self._content(name, version.sha256)}.sqlite") as source,
                    aside.open("wb") as to,
                ):
                    shutil.copyfileobj(source, to, _BLOCK)
                os.replace(aside, place)
            except FileNotFoundError:
                raise NotThereError(f"Wanted version {version.number} of {name!r}. Found: it was deleted") from None
            finally:
                aside.unlink(missing_ok=True)
            for old in sorted(self._indexes.iterdir(), key=lambda path: path.stat().st_mtime)[:-_MOST_INDEXES]:
                old.unlink(missing_ok=True)
        return place

    def _content(self, name: str, sha256: str) -> str:
        return f"datasets/{name}/content/{sha256}"

    def _read(self, name: str, number: int) -> DatasetVersion | None:
        key = f"datasets/{name}/versions/{number}.json"
        try:
            return DatasetVersion.from_json(self._storage.read_text(key), place=f"{self._storage.address}/{key}")
        except FileNotFoundError:
            return None

    def _prepare(self, name: str, arrival: Path, version: DatasetVersion) -> None:
        content = self._content(name, version.sha256)
        with self._lock:
            self._preparing[name, version.sha256] += 1
        for file, key in ((INDEX, f"{content}.sqlite"), (DATA, content)):
            if (arrival / file).exists():
                with open(arrival / file, "rb") as source, self._storage.create(key) as write:
                    for part in _parts(source):
                        write(*part)

    def _show(self, name: str, arrival: Path, version: DatasetVersion) -> None:
        self._storage.write_bytes(f"datasets/{name}/versions/{version.number}.json", version.to_json().encode())

    def _settle(self, name: str, version: DatasetVersion) -> None:
        with self._lock:
            self._preparing[name, version.sha256] -= 1
            self._preparing += Counter()  # forgets those that nobody prepares
        self._clear(name)

    def _hide(self, name: str, number: int | None, following: int) -> None:
        if number is None:
            self._storage.remove_files([f"names/{name}", *self._versions_of(name)])
        else:
            self._storage.write_bytes(f"names/{name}", json.dumps({"next": following}).encode())
            self._storage.remove_files([f"datasets/{name}/versions/{number}.json"])

    def _versions_of(self, name: str) -> list[str]:
        return [f"datasets/{name}/versions/{key}" for key in self._storage.names(f"datasets/{name}/versions")]

    def _clear(self, name: str) -> None:
        with self._lock:
            if name not in self.names():
                self._storage.remove_files(self._versions_of(name))
            kept = {sha256 for of, sha256 in self._preparing if of == name}
            with suppress(NotThereError):
                kept |= {version.sha256 for version in self.versions(name)}
            folder = f"datasets/{name}/content"
            gone = [f"{folder}/{key}" for key in self._storage.names(folder) if key.removesuffix(".sqlite") not in kept]
            if gone:
                self._storage.remove_files(gone)

    def _following(self, name: str) -> int:
        with suppress(FileNotFoundError):
            return int(json.loads(self._storage.read_bytes(f"names/{name}")).get("next", 1))
        return 1


def part_bytes(size: int) -> int:
    """How long the parts of an object of so many bytes are: as short as S3 allows, and not too short to send well."""
    return max(_LEAST_PART, -(-size // (_MOST_PARTS * _BLOCK)) * _BLOCK)


def _parts(file: IO[bytes]) -> Iterator[list[memoryview]]:
    """A file in parts, of which each is in blocks, as each has its time to be sent in.

    They are mapped: what is sent takes no memory, however long the file and its parts are.
    """
    size = os.fstat(file.fileno()).st_size
    length = part_bytes(size)
    for start in range(0, size, length):
        part = mmap.mmap(file.fileno(), min(length, size - start), access=mmap.ACCESS_READ, offset=start)
        whole = memoryview(part)
        yield [whole[at : at + _BLOCK] for at in range(0, len(whole), _BLOCK)]
