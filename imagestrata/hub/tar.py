"""Sources of pushes: reproducible bytes of a file, or of a folder as a tar, readable from any offset.

The tar of a folder is never written to disk. Its headers follow from the names and sizes of the files, in the order of
their paths. Times, owners and permissions are not stored.
"""

import hashlib
import os
import stat
import tarfile
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from imagestrata.hub.errors import DatasetError
from schemas.datasets import check_path
from schemas.errors import SchemaError

_BLOCK = 1 << 20


class Source(Protocol):
    """The bytes of a push: their length, the number of files, and a fingerprint to detect changes."""

    kind: str
    filename: str | None
    length: int
    files: int
    fingerprint: str

    def blocks(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` to ``end``. Raises `DatasetError` if a file has changed."""
        ...


class FileSource:
    """A file. Raises `DatasetError` if it is empty or cannot be read."""

    kind = "file"
    files = 1

    def __init__(self, path: Path) -> None:
        self.filename: str | None = path.name
        try:
            check_path(path.name)
            self._path, found = path, os.stat(path)
        except (SchemaError, OSError) as error:
            raise DatasetError(f"Wanted to push the file {str(path)!r}. Found: {_why(error)}") from None
        if not found.st_size:
            raise DatasetError(f"Wanted a file of at least one byte to push. Found: none in {str(path)!r}")
        self.length, self._time = found.st_size, found.st_mtime_ns
        self.fingerprint = hashlib.sha256(f"{self.length} {self._time}".encode()).hexdigest()

    def blocks(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` to ``end``."""
        yield from _read(self._path, self.length, self._time, start, end)


class FolderSource:
    """A folder as a tar of its files and empty folders. Links to files of the same folder are stored as files. Raises
    `DatasetError` for other links, for special files, and for a folder without files.
    """

    kind = "folder"
    filename: str | None = None

    def __init__(self, path: Path) -> None:
        self._root = Path(os.path.realpath(path))
        try:
            found = sorted(_found(self._root, str(self._root), ""))
        except OSError as error:
            raise DatasetError(f"Wanted to read {error.filename!r} for a push. Found: {_why(error)}") from None
        self._names = [name for name, _, _ in found]
        self._sizes = array("q", (size for _, size, _ in found))
        self._times = array("q", (time for _, _, time in found))
        self._starts = array("q")
        self.files = sum(not name.endswith(b"/") for name in self._names)
        if not self.files:
            raise DatasetError(f"Wanted a folder with at least one file to push. Found: none in {str(path)!r}")
        offset, digest = 0, hashlib.sha256()
        for number, name in enumerate(self._names):
            self._starts.append(offset)
            size = self._sizes[number]
            offset += len(self._header(number)) + _padded(size)
            digest.update(b"%s\0%d %d\0" % (name, size, self._times[number]))
        self._end = offset
        self.length = -(-(offset + 2 * tarfile.BLOCKSIZE) // tarfile.RECORDSIZE) * tarfile.RECORDSIZE
        self.fingerprint = digest.hexdigest()

    def blocks(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` to ``end``. Small files are joined with their headers."""
        number = max(0, bisect_right(self._starts, start) - 1)
        while start < end and number < len(self._names):
            here = self._starts[number]
            for block in self._member(number, start - here, end - here):
                start += len(block)
                yield block
            number += 1
        while start < end:
            block = bytes(min(_BLOCK, end - start))
            start += len(block)
            yield block

    def _member(self, number: int, start: int, end: int) -> Iterator[bytes]:
        """Yield bytes of one file with its header and padding. Offsets are relative to the header."""
        header, size = self._header(number), self._sizes[number]
        begin = len(header)
        parts = [header[start:end]] if start < begin else []
        if size and start < begin + size and end > begin:
            path = os.path.join(os.fsencode(self._root), self._names[number])
            blocks = _read(path, size, self._times[number], max(0, start - begin), min(size, end - begin))
            for block in blocks:
                yield b"".join([*parts, block]) if parts else block
                parts = []
        elif parts:
            if not size and not self._names[number].endswith(b"/"):
                path = os.path.join(os.fsencode(self._root), self._names[number])
                yield from _read(path, 0, self._times[number], 0, 0)
            yield parts[0]
        first, last = max(start, begin + size), min(end, begin + _padded(size))
        if first < last:
            yield bytes(last - first)

    def _header(self, number: int) -> bytes:
        info = tarfile.TarInfo(self._names[number].decode("utf-8"))
        info.size, info.mode = self._sizes[number], 0o644
        if info.name.endswith("/"):
            info.name, info.type, info.mode = info.name[:-1], tarfile.DIRTYPE, 0o755
        return info.tobuf(tarfile.PAX_FORMAT, encoding="utf-8", errors="strict")


def _found(root: Path, folder: str, above: str) -> Iterator[tuple[bytes, int, int]]:
    """Yield (path in UTF-8, size, mtime in ns) of each file, and of each empty folder with a final '/'."""
    is_empty = True
    with os.scandir(folder) as entries:
        for entry in entries:
            is_empty = False
            path = above + entry.name
            try:
                check_path(path)
            except SchemaError as error:
                raise DatasetError(f"Wanted files with names for a dataset in {str(root)!r}. {error}") from None
            if entry.is_dir(follow_symlinks=False):
                yield from _found(root, entry.path, f"{path}/")
                continue
            if entry.is_symlink():
                _check_link(root, entry.path)
            about = entry.stat()
            if not stat.S_ISREG(about.st_mode):
                raise DatasetError(f"Wanted files and folders to push. Found: {entry.path!r}, which is neither")
            yield path.encode("utf-8"), about.st_size, about.st_mtime_ns
    if is_empty and above:
        yield above.encode("utf-8"), 0, 0


def _check_link(root: Path, link: str) -> None:
    target = os.path.realpath(link)
    if not os.path.isfile(target) or os.path.commonpath([root, target]) != str(root):
        raise DatasetError(
            f"Wanted only links to files of the same folder. Found: {link!r} links to {os.readlink(link)!r} "
            "(remove it, or copy the files to that place)"
        )


def _read(path: bytes | Path, size: int, time: int, start: int, end: int) -> Iterator[bytes]:
    """Yield bytes of a file. Raises `DatasetError` if it changed, checked before the last block is sent."""
    name = os.fsdecode(path)
    try:
        with open(path, "rb", buffering=0) as file:
            if start:
                file.seek(start)
            elif not size:
                _check_same(name, os.fstat(file.fileno()), size, time)
            while start < end and (block := file.read(min(_BLOCK, end - start))):
                start += len(block)
                if start >= end:  # before the last block is sent: an incomplete upload is not published
                    _check_same(name, os.fstat(file.fileno()), size, time)
                yield block
            if start < end:
                _check_same(name, os.fstat(file.fileno()), size, time)
                raise DatasetError(f"Wanted {size:,} bytes of {name!r}. Found: fewer")
    except OSError as error:
        raise DatasetError(f"Wanted to read {name!r} for a push. Found: {_why(error)}") from None


def _check_same(name: str, found: os.stat_result, size: int, time: int) -> None:
    if (found.st_size, found.st_mtime_ns) != (size, time):
        what = f"{found.st_size:,} bytes" if found.st_size != size else "it was modified"
        raise DatasetError(
            f"Wanted {name!r} of {size:,} bytes to stay unchanged during a push. Found: {what} (push again when "
            "it no longer changes)"
        )


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
