"""Datasets in a bucket. Downloads are redirected to the bucket.

    PREFIX/names/NAME                            a dataset; has "next" after a version was deleted
           descriptions/NAME                     its description
           datasets/NAME/versions/3.json         a version, which exists when this file does
           datasets/NAME/content/SHA256          its bytes; versions with equal bytes share them
           datasets/NAME/content/SHA256.sqlite   the index of a folder's files
           tokens.json

Bodies arrive in a local folder, the spool, and are sent to the bucket when they are complete. When a server starts, it
removes what a killed server left: contents without a version, and unfinished transfers to the bucket.

Use one server for each prefix. A lock on the spool keeps out a second server with the same spool. A server with another
spool, for example on another machine, is not detected: it would remove the transfers of the first one. Servers that
share a bucket need different prefixes.
"""

import json
import logging
import mmap
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from formats.durability import whole_file
from formats.stores.storage import Storage
from imagestrata.service.errors import ConflictError, NotThereError, UnreadableError, no_dataset
from imagestrata.service.stores.staging import DATA, INDEX, Staging
from imagestrata.service.stores.store import Blob, Store
from schemas.datasets import DatasetVersion

_BLOCK = 1 << 20
_LEAST_PART = 16 << 20
_MOST_PARTS = 10_000  # of an object on S3
_MOST_INDEXES = 64
_LINK_SECONDS = 300
"""How long a link to the bucket is valid. Clients that resume later get a new one from the service."""
_TYPE = "application/octet-stream"

log = logging.getLogger(__name__)


class BucketStore(Store):
    """The datasets of one server in a bucket, with a local folder for bodies that only this server uses. Raises
    `StorageError` if the bucket cannot be used.
    """

    def __init__(self, storage: Storage, *, spool: str | os.PathLike[str]) -> None:
        storage.check()
        self._storage = storage
        self._indexes = Path(spool).resolve() / "indexes"
        self._indexes.mkdir(parents=True, exist_ok=True)
        super().__init__(Staging(Path(spool).resolve()))
        self._preparing: Counter[tuple[str, str]] = Counter()
        storage.abandon("datasets/")  # unfinished transfers of a killed server
        self._described = {*storage.names("descriptions")}  # most datasets have none: this saves a request
        for name in {*self.names(), *storage.names("datasets"), *self._described}:
            self._clear(name)
        self._count()

    def names(self) -> list[str]:
        return self._storage.names("names")

    def create(self, name: str) -> None:
        with self._lock:
            if self._storage.exists(f"names/{name}"):
                raise ConflictError(f"Wanted a new dataset {name!r}. Found: it exists already")
            self._storage.write_bytes(f"names/{name}", b"{}")

    def numbers(self, name: str) -> list[int]:
        keys = (key.removesuffix(".json") for key in self._storage.names(f"datasets/{name}/versions"))
        found = sorted(int(key) for key in keys if key.isascii() and key.isdecimal())
        if not found:
            self._check(name)
        return found

    def blob(self, name: str, version: DatasetVersion) -> Blob:
        key, size = self._content(name, version.sha256), version.bytes

        def address(filename: str) -> str:
            plain = filename.encode("ascii", "replace").decode().replace("?", "_").replace('"', "_")
            told = {"ResponseContentDisposition": f'attachment; filename="{plain}"', "ResponseContentType": _TYPE}
            return self._storage.signed(key, seconds=_LINK_SECONDS, **told)

        return Blob(
            size=size,
            read=lambda start, length: self._storage.read_range(key, start, min(length, size - start)),
            address=address,
        )

    def index(self, name: str, version: DatasetVersion) -> Path:
        path = self._indexes / f"{version.sha256}.sqlite"
        if not path.exists():  # it is downloaded on first use
            try:
                content = self._content(name, version.sha256)
                with self._storage.open(f"{content}.sqlite") as source, whole_file(path) as to:
                    shutil.copyfileobj(source, to, _BLOCK)
            except FileNotFoundError:
                raise NotThereError(f"Wanted version {version.number} of {name!r}. Found: it was deleted") from None
            for old in sorted(self._indexes.iterdir(), key=lambda path: path.stat().st_mtime)[:-_MOST_INDEXES]:
                old.unlink(missing_ok=True)
        return path

    def description(self, name: str) -> str:
        if name in self._described:
            with suppress(FileNotFoundError):
                return self._storage.read_text(f"descriptions/{name}")
        self._check(name)
        return ""

    def describe(self, name: str, text: str) -> None:
        with self._lock:
            self._check(name)
            if text:
                self._described.add(name)
                self._storage.write_bytes(f"descriptions/{name}", text.encode())
            elif name in self._described:
                self._storage.remove_files([f"descriptions/{name}"])
                self._described.discard(name)

    def _check(self, name: str) -> None:
        if not self._storage.exists(f"names/{name}"):
            raise no_dataset(name)

    def _location(self, name: str, version: DatasetVersion) -> str:
        return version.sha256

    def _share(self, name: str, version: DatasetVersion, staged: Path) -> None:
        """Do nothing: versions with equal bytes share one object."""

    def _content(self, name: str, sha256: str) -> str:
        return f"datasets/{name}/content/{sha256}"

    def _read(self, name: str, number: int) -> DatasetVersion | None:
        key = f"datasets/{name}/versions/{number}.json"
        try:
            return DatasetVersion.from_json(self._storage.read_text(key), place=f"{self._storage.address}/{key}")
        except FileNotFoundError:
            return None

    def _prepare(self, name: str, staged: Path, version: DatasetVersion) -> None:
        content = self._content(name, version.sha256)
        with self._lock:
            self._preparing[name, version.sha256] += 1
        for file, key in ((INDEX, f"{content}.sqlite"), (DATA, content)):
            if (staged / file).exists():
                with open(staged / file, "rb") as source, self._storage.create(key) as write:
                    for part in _parts(source):
                        write(*part)

    def _show(self, name: str, staged: Path, version: DatasetVersion) -> None:
        self._storage.write_bytes(f"datasets/{name}/versions/{version.number}.json", version.to_json().encode())

    def _settle(self, name: str, version: DatasetVersion) -> None:
        with self._lock:
            self._preparing[name, version.sha256] -= 1
            self._preparing += Counter()  # drops counts of zero
        self._clear(name)

    def _hide(self, name: str, number: int | None, following: int) -> None:
        if number is None:
            self._storage.remove_files([f"names/{name}", f"descriptions/{name}", *self._versions_of(name)])
            self._described.discard(name)
        else:
            self._storage.write_bytes(f"names/{name}", json.dumps({"next": following}).encode())
            self._storage.remove_files([f"datasets/{name}/versions/{number}.json"])

    def _versions_of(self, name: str) -> list[str]:
        return [f"datasets/{name}/versions/{key}" for key in self._storage.names(f"datasets/{name}/versions")]

    def _clear(self, name: str) -> None:
        with self._lock:
            try:
                self._clear_alone(name)
            except OSError as error:  # the request itself succeeded; the rest is removed next time
                log.warning("cannot remove unused contents of %s now: %s", name, error)

    def _clear_alone(self, name: str) -> None:
        if name not in self.names():
            self._storage.remove_files([f"descriptions/{name}", *self._versions_of(name)])
            self._described.discard(name)
        folder = f"datasets/{name}/content"
        found = self._storage.names(folder)
        kept = {sha256 for of, sha256 in self._preparing if of == name}
        with suppress(NotThereError):
            for number in self.numbers(name):
                try:
                    version = self._whole(name, number)
                except UnreadableError:
                    return
                if version is None:  # it was listed, and this server has not deleted it
                    return
                kept.add(version.sha256)
        gone = [f"{folder}/{key}" for key in found if key.removesuffix(".sqlite") not in kept]
        if gone:
            self._storage.remove_files(gone)

    def _following(self, name: str) -> int:
        key = f"names/{name}"
        try:
            data = self._storage.read_bytes(key)
        except FileNotFoundError:
            return 1
        with suppress(ValueError, AttributeError):
            following = json.loads(data).get("next", 1)
            if type(following) is int and following >= 1:
                return following
        raise UnreadableError(  # a version number is never used twice
            f"Wanted the number of the next version of {name!r} in {self._storage.address}/{key}. "
            f"Found: {data[:40]!r}. "
            'Write {"next": N} there, where N is greater than all version numbers so far'
        )


def part_bytes(size: int) -> int:
    """The part size for an object: at least 16 MiB, and large enough for 10,000 parts."""
    return max(_LEAST_PART, -(-size // (_MOST_PARTS * _BLOCK)) * _BLOCK)


def _parts(file: IO[bytes]) -> Iterator[list[memoryview]]:
    """Split a file into parts, each as a list of blocks, because each block has its own time limit when it is sent."""
    size = os.fstat(file.fileno()).st_size
    length = part_bytes(size)
    for start in range(0, size, length):
        # Mapped, so that parts take no memory.
        part = mmap.mmap(file.fileno(), min(length, size - start), access=mmap.ACCESS_READ, offset=start)
        whole = memoryview(part)
        yield [whole[at : at + _BLOCK] for at in range(0, len(whole), _BLOCK)]
