"""Pieces of shards on a local disk."""

import os
import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from formats.shards.layout import piece_digest
from loader.errors import OptionError

FOLDER = "imagestrata-pieces"  # a folder for nothing else, in the one that the user names
_COUNTED_EVERY = 32  # files are counted again after this part of the cache was written
_OURS = re.compile(r"[0-9a-f]{32}|\.[0-9a-f]{32}\.[0-9]+")


@dataclass(frozen=True, slots=True)
class PieceLocation:
    """The place of a piece: the shard, its first byte and length, its number of samples, and the number of the first
    one.
    """

    shard: str
    start: int
    bytes: int
    xxh3: str
    samples: int
    first: int


class PieceCache:
    """Pieces in a folder of a local disk, which several processes may share. When it is full, those whose last use is
    oldest are removed. Files are named by their XXH3, and verified when they are read.
    """

    def __init__(self, folder: str | os.PathLike[str], *, size: int) -> None:
        self._folder, self._size = Path(folder) / FOLDER, size
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"Wanted a cache folder at {folder}. Found: {error.strerror or error}") from None
        self._lock = threading.Lock()
        self._held: int | None = None
        self._written = 0  # since files were counted, because other processes write, too

    def read(self, location: PieceLocation, data: memoryview) -> bool:
        """Read a piece; whether it was there."""
        path = self._path(location)
        try:
            with open(path, "rb", buffering=0) as file:
                length = file.readinto(data)
            if length == location.bytes and piece_digest(data) == location.xxh3:
                os.utime(path)
                return True
            path.unlink(missing_ok=True)
        except OSError:
            pass
        return False

    def keep(self, location: PieceLocation, data: memoryview) -> None:
        """Write a piece, and make room for it; a full or failing disk is no error, only no help."""
        path = self._path(location)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        with self._lock:  # one at a time, or those that make room would not know what others write
            try:
                self._make_room(location.bytes)
                with open(aside, "wb", buffering=0) as file:
                    file.write(data)
                os.replace(aside, path)
                self._held = (self._held or 0) + location.bytes
                self._written += location.bytes
            except OSError:
                with suppress(OSError):
                    aside.unlink(missing_ok=True)

    def _make_room(self, wanted: int) -> None:
        is_known = self._held is not None and self._written + wanted < self._size // _COUNTED_EVERY
        if is_known and (self._held or 0) + wanted <= self._size:
            return
        self._written = 0
        files = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if not _OURS.fullmatch(entry.name):
                    continue
                with suppress(FileNotFoundError):  # another process has made room, too
                    looks = entry.stat()
                    files.append((looks.st_mtime, looks.st_size, entry.path))
        files.sort()
        held = sum(size for _, size, _ in files)
        for _, size, path in files:
            if held + wanted <= self._size:
                break
            with suppress(FileNotFoundError):
                os.unlink(path)
            held -= size
        self._held = held

    def _path(self, location: PieceLocation) -> Path:
        return self._folder / location.xxh3
