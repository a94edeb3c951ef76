"""An index of the files in a tar: the tar is checked once, and then each file is a range of bytes.

The index is an SQLite file, so a tar of a million files takes no memory::

    files(path TEXT PRIMARY KEY, start INTEGER, bytes INTEGER, sha256 BLOB)
"""

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from formats.errors import ArchiveError
from formats.tar_headers import Header, NoEndError, TarError, headers
from schemas.datasets import check_path
from schemas.errors import SchemaError

_BLOCK = 1 << 20
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"PK\x03\x04": "zip",
}
_LAST = "\U0010ffff"  # after all letters; no path has it, because it is not printable
# Stripping all characters but slashes from the end of a path leaves its folder.
_IN_FOLDER = """
AND instr('/' || path, ?) > 0
AND substr('/' || rtrim(path, replace(path, '/', '')), -length(?)) = ?
"""
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
    """An existing index, for one thread at a time. Use it as a context manager."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        address = f"{Path(os.path.abspath(place)).as_uri()}?mode=ro&immutable=1"  # with quotes around '#', '?' and '%'
        self._rows = sqlite3.connect(address, uri=True, check_same_thread=False)

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

    def page(self, *, after: str = "", prefix: str = "", label: str | None = None, limit: int) -> list[TarMember]:
        """List files whose paths start with ``prefix`` and come after ``after``, in the order of their UTF-8 paths.
        With ``label``, only files directly in a folder of this name, at any depth.
        """
        rows = self._rows.execute(
            f"SELECT path, start, bytes, sha256 FROM files WHERE path > ? AND path >= ? AND path < ? "
            f"{'' if label is None else _IN_FOLDER} ORDER BY path LIMIT ?",
            (after, prefix, prefix + _LAST, *([] if label is None else [f"/{label}/"] * 3), limit),
        )
        return [_member(row) for row in rows]

    def level(self, *, after: str = "", prefix: str = "", limit: int) -> list[TarMember | str]:
        """List one level below ``prefix``: files, and folders as paths that end with a slash, in the order of `page`.
        ``after`` is the path of the last file or folder on the previous page.
        """
        found: list[TarMember | str] = []
        while len(found) < limit:
            # One query finds each, however many files a folder has.
            rows = self.page(after=after + _LAST if after.endswith("/") else after, prefix=prefix, limit=1)
            if not rows:
                break
            name, slash, _ = rows[0].path[len(prefix) :].partition("/")
            after = prefix + name + slash
            found.append(after if slash else rows[0])
        return found

    def in_place(self) -> Iterator[TarMember]:
        """All files, in the order of the tar."""
        for row in self._rows.execute("SELECT path, start, bytes, sha256 FROM files ORDER BY start, path"):
            yield _member(row)


def write_index(tar: str | os.PathLike[str], place: str | os.PathLike[str]) -> int:
    """Check a tar, write its index to ``place``, and return the number of files. Raises `ArchiveError` if the file is
    not a complete tar, has links, devices or sparse files, or has paths that lead out of its folder or occur twice.
    """
    with suppress(FileNotFoundError):
        os.unlink(place)
    with closing(sqlite3.connect(place)) as rows, open(tar, "rb") as file:
        rows.executescript(_MAKE)
        count = _fill(rows, file)
        if both := rows.execute("SELECT path FROM files JOIN folders USING (path) LIMIT 1").fetchone():
            raise ArchiveError(f"Wanted different names for files and folders of the tar. Found: {both[0]!r} as both")
        rows.execute("DROP TABLE folders")
        rows.commit()
    return count


def _fill(rows: sqlite3.Connection, file: IO[bytes]) -> int:
    count, above = 0, ""
    for path, start, size, is_folder, _ in entries(file):
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


class TarEntry(NamedTuple):
    """A file or folder in a tar: its path, the offset of its bytes in the tar, and its size in bytes."""

    path: str
    start: int
    bytes: int
    is_folder: bool
    is_executable: bool


def entries(file: IO[bytes]) -> Iterator[TarEntry]:
    """The files and folders of a tar, in their order, without the folder that has them all. Raises `ArchiveError` as
    `write_index`, but not for paths that come twice.
    """
    descriptor, end = file.fileno(), 0
    length = os.fstat(descriptor).st_size
    try:
        for header in headers(lambda place, count: os.pread(descriptor, count, place)):
            path, end = _path_of(header), header.end
            if header.start + header.size > length:
                raise ArchiveError(f"Wanted a complete tar. Found: it ends in the middle of {path!r}")
            if path:
                yield TarEntry(path, header.start, header.size, header.kind == "folder", header.is_executable)
    except NoEndError:
        raise ArchiveError("Wanted a complete tar. Found: no end mark (was tar interrupted?)") from None
    except TarError as error:
        raise ArchiveError(f"Wanted a tar. Found: {_packed(file) or f'{error} (byte {error.at:,})'}") from None
    _check_end(file, end)


def _check_end(file: IO[bytes], end: int) -> None:
    """Raise `ArchiveError` unless only zeros follow the last file."""
    while block := os.pread(file.fileno(), _BLOCK, end):
        if block.strip(b"\0"):
            raise ArchiveError("Wanted one tar. Found: more bytes after its end (another tar?)")
        end += len(block)


def _packed(file: IO[bytes]) -> str:
    """The kind of a compressed or packed file that is not a tar, or an empty text."""
    first = os.pread(file.fileno(), 8, 0)
    found = next((name for mark, name in _PACKED.items() if first.startswith(mark)), "")
    return f"{found} (send an uncompressed tar)" if found else ""


def _path_of(header: Header) -> str:
    """The path of a file or folder in a tar; empty for the top folder. Raises `ArchiveError` for other members, and for
    paths that lead out of the top folder.
    """
    name = header.name.decode("utf-8", "surrogateescape")
    while name.startswith("./"):
        name = name[2:]
    if header.kind == "folder" and name in ("", "."):
        return ""
    if header.kind not in ("file", "folder"):
        raise ArchiveError(f"Wanted only files and folders in the tar. Found: {_other(header)}")
    try:
        return check_path(name.rstrip("/") if header.kind == "folder" else name)
    except SchemaError as error:
        raise ArchiveError(f"Wanted a tar whose paths stay in its folder. {error}") from None


def _other(header: Header) -> str:
    """Describe a member that is neither a file nor a folder; for links, say how to store the files instead."""
    name, target = (repr(one[:200].decode("utf-8", "surrogateescape")) for one in (header.name, header.target))
    if header.type == b"2":  # GNU tar stores a second name of the same file as a hard link, even with -h
        return (
            f"a symbolic link, {name} to {target}. Make the tar with `tar -h --hard-dereference`: it stores the files "
            "that links lead to"
        )
    if header.type == b"1":
        return (
            f"a hard link, {name} to {target}. Make the tar with `tar --hard-dereference`: it stores the file under "
            "each of its names"
        )
    if header.kind == "sparse file":
        return f"a sparse file, {name}. Make the tar without `--sparse`"
    return f"a {header.kind}, {name}" if header.kind != "other" else f"an entry of type {header.type!r}, {name}"


def _digest(file: IO[bytes], start: int, size: int) -> bytes:
    digest, place, end = hashlib.sha256(), start, start + size
    while place < end and (block := os.pread(file.fileno(), min(_BLOCK, end - place), place)):
        digest.update(block)
        place += len(block)
    return digest.digest()


def _member(row: tuple[str, int, int, bytes]) -> TarMember:
    path, start, size, sha256 = row
    return TarMember(path, start, size, sha256.hex())
