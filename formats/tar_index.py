"""The files in a tar and where each lies: a tar is checked once, and then any file of it is a range of bytes.

The index is an SQLite file, so that a tar of a million files takes no memory::

    files(path TEXT PRIMARY KEY, start INTEGER, bytes INTEGER, sha256 BLOB)
"""

import hashlib
import io
import os
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import IO

from formats.errors import ArchiveError
from schemas.datasets import check_path
from schemas.errors import SchemaError

_BLOCK = 1 << 20
_MOST_HEADER = 1 << 20  # of one file: the system's longest paths are a few kilobytes
_MOST_GLOBAL = 100
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"PK\x03\x04": "zip",
}
_LAST = "\U0010ffff"  # behind all letters: no path has it, as it cannot be printed
_MAKE = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE files (path TEXT PRIMARY KEY, start INTEGER, bytes INTEGER, sha256 BLOB) WITHOUT ROWID;
CREATE TABLE folders (path TEXT PRIMARY KEY) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file of a tar: its path, where its bytes begin in the tar, how many they are, and their SHA-256 in hex."""

    path: str
    start: int
    bytes: int
    sha256: str


class TarIndex:
    """An index that is there, for one thread at a time. Use it as a context manager."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._rows = sqlite3.connect(f"file:{os.fspath(place)}?mode=ro&immutable=1", uri=True, check_same_thread=False)

    def __enter__(self) -> "TarIndex":
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def __len__(self) -> int:
        return int(self._rows.execute("SELECT count(*) FROM files").fetchone()[0])

    def find(self, path: str) -> TarMember | None:
        """One file, or None."""
        row = self._rows.execute("SELECT path, start, bytes, sha256 FROM files WHERE path = ?", (path,)).fetchone()
        return None if row is None else _member(row)

    def page(self, *, after: str = "", prefix: str = "", limit: int) -> list[TarMember]:
        """Files whose paths begin with ``prefix`` and stand behind ``after``, in the order of their paths' UTF-8."""
        rows = self._rows.execute(
            "SELECT path, start, bytes, sha256 FROM files WHERE path > ? AND path >= ? AND path < ? "
            "ORDER BY path LIMIT ?",
            (after, prefix, prefix + _LAST, limit),
        )
        return [_member(row) for row in rows]

    def in_place(self) -> Iterator[TarMember]:
        """All files, as they lie in the tar."""
        for row in self._rows.execute("SELECT path, start, bytes, sha256 FROM files ORDER BY start, path"):
            yield _member(row)


def write_index(tar: str | os.PathLike[str], place: str | os.PathLike[str]) -> int:
    """Check a tar and write its index; how many files it has.

    Raises `ArchiveError` for one that is cut off or none at all; for links, devices and sparse files; for paths that
    lead out of it, or come twice.
    """
    with suppress(FileNotFoundError):
        os.unlink(place)
    with closing(sqlite3.connect(place)) as rows, open(tar, "rb") as file:
        rows.executescript(_MAKE)
        count = _fill(rows, file)
        _check_folders(rows)
        rows.execute("DROP TABLE folders")
        rows.commit()
    return count


def _fill(rows: sqlite3.Connection, file: IO[bytes]) -> int:
    count, above = 0, ""
    for path, start, size, is_folder in _members(file):
        folder = path if is_folder else path.rpartition("/")[0]
        if folder != above:
            parts = folder.split("/") if folder else []
            names = [("/".join(parts[:number]),) for number in range(1, len(parts) + 1)]
            rows.executemany("INSERT OR IGNORE INTO folders VALUES (?)", names)
            above = folder
        if is_folder:
            continue
        try:
            rows.execute("INSERT INTO files VALUES (?, ?, ?, ?)", (path, start, size, _digest(file, start, size)))
        except sqlite3.IntegrityError:
            raise ArchiveError(f"Wanted each file of the tar once. Found: {path!r} twice") from None
        count += 1
    return count


def _check_folders(rows: sqlite3.Connection) -> None:
    both = rows.execute("SELECT path FROM files JOIN folders USING (path) LIMIT 1").fetchone()
    if both:
        raise ArchiveError(f"Wanted files and folders of a tar with names of their own. Found: {both[0]!r} as both")


def _members(file: IO[bytes]) -> Iterator[tuple[str, int, int, bool]]:
    """(path, start, bytes, whether it is a folder) of each file and folder, in their order."""
    length = os.fstat(file.fileno()).st_size
    headers = _Headers(file)
    try:
        with tarfile.open(fileobj=headers, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # or a tar of many files would fill the memory
                headers.read_so_far = 0
                kept = tar.pax_headers  # for all that follow
                if len(kept) > _MOST_GLOBAL or sum(map(len, kept.values())) > _MOST_HEADER:
                    raise ArchiveError(f"Wanted a tar with {_MOST_GLOBAL} short global headers at most. Found: more")
                path = path_of(member)
                if member.offset_data + member.size > length:
                    raise ArchiveError(f"Wanted a whole tar. Found: it ends in the middle of {path!r}")
                if path:
                    yield path, member.offset_data, member.size, member.isdir()
            end = tar.offset
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        said = _packed(file) or " ".join(str(error).split()) or type(error).__name__
        raise ArchiveError(f"Wanted a tar. Found: {said}") from None
    _check_end(file, end)


def _check_end(file: IO[bytes], end: int) -> None:
    """Raise `ArchiveError` unless zeros are all that stands behind the last file, one block of them at least."""
    # The library takes any damaged header behind the first for the end, and so it does where a tar was cut off.
    block = os.pread(file.fileno(), tarfile.BLOCKSIZE, end)
    if block.strip(b"\0"):
        raise ArchiveError(f"Wanted a whole tar. Found: a damaged header at byte {end:,}")
    if len(block) < tarfile.BLOCKSIZE:
        raise ArchiveError("Wanted a whole tar. Found: it ends without the mark of its end (was tar broken off?)")
    while block := os.pread(file.fileno(), _BLOCK, end):
        if block.strip(b"\0"):
            raise ArchiveError("Wanted one tar. Found: more bytes behind its end (another tar?)")
        end += len(block)


def _packed(file: IO[bytes]) -> str:
    """What a file is that many take for a tar; nothing if it is none of them."""
    first = os.pread(file.fileno(), 8, 0)
    found = next((name for mark, name in _PACKED.items() if first.startswith(mark)), "")
    return f"{found} (send the tar itself, unpacked)" if found else ""


def path_of(member: tarfile.TarInfo) -> str:
    """The path of a file or folder in a tar; empty for the folder that holds all.

    Raises `ArchiveError` for what is neither, and for paths that lead out. (The library's own filters are not in every
    Python 3.11.)
    """
    name = member.name
    while name.startswith("./"):
        name = name[2:]
    if member.isdir() and name in ("", "."):
        return ""
    if member.issparse() or not (member.isreg() or member.isdir()):
        kind = "a link" if member.islnk() or member.issym() else "a sparse file" if member.issparse() else "a device"
        kind = "a FIFO" if member.isfifo() else kind
        raise ArchiveError(f"Wanted files and folders in a tar. Found: {kind}, {member.name[:200]!r}")
    try:
        return check_path(name.rstrip("/") if member.isdir() else name)
    except SchemaError as error:
        raise ArchiveError(f"Wanted a tar that stays in its folder. {error}") from None


def _digest(file: IO[bytes], start: int, size: int) -> bytes:
    digest, place, end = hashlib.sha256(), start, start + size
    while place < end and (block := os.pread(file.fileno(), min(_BLOCK, end - place), place)):
        digest.update(block)
        place += len(block)
    return digest.digest()


def _member(row: tuple[str, int, int, bytes]) -> TarMember:
    path, start, size, sha256 = row
    return TarMember(path, start, size, sha256.hex())


class _Headers(io.RawIOBase):
    """A tar of which only headers are read: those of one file that are too large are refused before they take memory.

    ``read_so_far`` is to be set to 0 behind each file.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.read_so_far = 0

    def read(self, size: int = -1) -> bytes:
        self.read_so_far += max(size, 0)
        if size < 0 or self.read_so_far > _MOST_HEADER:
            raise ArchiveError(f"Wanted headers of a tar's file of at most {_MOST_HEADER:,} bytes. Found: more")
        return self._file.read(size)

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(place, whence)

    def tell(self) -> int:
        return self._file.tell()
