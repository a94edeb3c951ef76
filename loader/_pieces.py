"""Pieces of shards, read by many threads at once, checked, and kept on a disk where that is wanted."""

import os
import queue
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from loader._errors import LoaderError, ShardError
from loader._s3_client import told
from loader._shard_set import Shards
from loader._stats import Meter

if TYPE_CHECKING:
    from formats.ranges import RangeReader

Members: TypeAlias = list[tuple[str, int, int]]
"""A sample's files: extension, and where each begins and ends in its piece."""

_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a piece is: the shard, its bytes from ``start``, how many samples it has, and their first one's number."""

    shard: str
    start: int
    bytes: int
    xxh3: str
    samples: int
    first: int


@dataclass(slots=True)
class Loaded:
    """A piece that is in memory: its bytes, and its samples' keys and files."""

    data: memoryview
    samples: list[tuple[str, Members]]
    buffer: object


def places_of(shards: Shards) -> list[Place]:
    """The pieces of all shards, in order; those without samples are left out."""
    found: list[Place] = []
    first = 0
    for shard in shards.contents.shards:
        start = 0
        for piece in shard.pieces:
            if piece.samples:
                found.append(Place(shard.name, start, piece.bytes, piece.xxh3, piece.samples, first))
            first += piece.samples
            start += piece.bytes
    return found


class PieceReader:
    """Threads, each with a connection of its own, that read pieces; the first request starts them.

    Raises the errors of `loader` in the futures it gives.
    """

    def __init__(self, shards: Shards, *, threads: int, meter: Meter, cache: "PieceCache | None" = None) -> None:
        self._shards, self._most, self._cache, self.meter = shards, threads, cache, meter
        self.places = places_of(shards)
        self._largest = max((place.bytes for place in self.places), default=0)
        self._lock = threading.Lock()
        self._reader: RangeReader | None = None
        self._wanted: queue.SimpleQueue[tuple[Place, Future[Loaded]] | None] = queue.SimpleQueue()
        self._threads = self._idle = self._queued = 0
        self._free: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
        self.is_closed = False

    @property
    def connections(self) -> int:
        """How many threads there are."""
        return self._threads

    def connect(self) -> None:
        """Be ready to read. Raises `AccessError`, `UnreachableError`."""
        from formats.ranges import RangeReader

        with self._lock:
            if self._reader is None:
                self._reader = RangeReader(self._shards.storage())

    def read(self, number: int) -> "Future[Loaded]":
        """Begin to read a piece."""
        future: Future[Loaded] = Future()
        self._wanted.put((self.places[number], future))
        with self._lock:
            self._queued += 1
            if self._queued > self._idle and self._threads < self._most:
                self._threads += 1
                # Daemons, because a store that answers nothing must not hold up the end of the process.
                threading.Thread(target=self._work, name="loader-pieces", daemon=True).start()
        return future

    def forget(self, loaded: Loaded) -> None:
        """Give back the memory of a piece, of which nothing is used any more."""
        if isinstance(loaded.buffer, np.ndarray) and len(self._free) < self._most:
            self._free.append(loaded.buffer)

    def close(self) -> None:
        """End the threads, as soon as what they read has come."""
        self.is_closed = True
        for _ in range(self._threads):
            self._wanted.put(None)

    def _work(self) -> None:
        try:
            self._read_on()
        finally:
            if self._reader is not None:
                self._reader.leave()

    def _read_on(self) -> None:
        while not self.is_closed:
            with self._lock:
                self._idle += 1
            wanted = self._wanted.get()
            with self._lock:
                self._idle -= 1
                self._queued -= wanted is not None
            if wanted is None:
                return
            place, future = wanted
            if not future.set_running_or_notify_cancel():
                continue
            self.meter.in_flight += 1
            try:
                loaded = self._load(place)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(loaded)
            finally:
                self.meter.in_flight -= 1

    def _load(self, place: Place) -> Loaded:
        from formats.shards import samples_of

        buffer = self._buffer(place.bytes)
        data = memoryview(buffer.data)[: place.bytes]
        is_cached = self._cache is not None and self._cache.read(place, data)
        if not is_cached:
            self._fetch(place, data)
            if self._cache is not None:
                self._cache.keep(place, data)
        try:
            samples = samples_of(data)
        except ValueError as error:
            raise self._damaged(place, str(error)) from error
        if len(samples) != place.samples:
            raise self._damaged(place, f"{len(samples)} samples instead of {place.samples}")
        return Loaded(data, samples, buffer)

    def _fetch(self, place: Place, data: memoryview) -> None:
        """Read and check; what is damaged is read once more, as it may have been so on its way only."""
        from formats import StorageError
        from formats.shards import piece_digest

        reader = self._reader
        assert reader is not None
        found = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self.meter.retries += 1
            try:
                length = reader.read_into(place.shard, place.start, data)
            except FileNotFoundError:
                raise ShardError(
                    f"Wanted the shard {place.shard} of {self._shards.address}, which the manifest names. "
                    "Found: no such file. Was it deleted? Write the shards again."
                ) from None
            except StorageError as error:
                raise told(error) from error
            except OSError as error:
                raise ShardError(f"Wanted to read {self._name(place)}. Found: {error.strerror or error}") from error
            if length < place.bytes:
                found = f"the shard ends {place.bytes - length:,} bytes earlier"
            elif (digest := piece_digest(data)) != place.xxh3:
                found = f"XXH3 {digest[:12]} instead of {place.xxh3[:12]}"
            else:
                return
        raise self._damaged(place, found)

    def _damaged(self, place: Place, found: str) -> LoaderError:
        return ShardError(
            f"Wanted {self._name(place)} as the manifest tells it. Found: {found}. "
            "It was cut off or replaced: write the shards again."
        )

    def _name(self, place: Place) -> str:
        return (
            f"samples {place.first:,} to {place.first + place.samples - 1:,} in {place.shard} of "
            f"{self._shards.address}, {place.bytes:,} bytes from {place.start:,}"
        )

    def _buffer(self, size: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
        with suppress(IndexError):
            return self._free.pop()
        return np.empty(max(size, self._largest), dtype=np.uint8)


class PieceCache:
    """Pieces in a folder of a local disk, of which those that were used longest ago go when it is full.

    Several processes may share it. Files are named by their XXH3, and checked when they are read.
    """

    def __init__(self, folder: str | os.PathLike[str], *, size: int) -> None:
        self._folder, self._size = Path(folder), size
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._held: int | None = None

    def read(self, place: Place, data: memoryview) -> bool:
        """Whether a piece is there, and was read."""
        from formats.shards import piece_digest

        path = self._path(place)
        try:
            with open(path, "rb", buffering=0) as file:
                length = file.readinto(data)
            if length == place.bytes and piece_digest(data) == place.xxh3:
                os.utime(path)
                return True
            path.unlink(missing_ok=True)
        except OSError:
            pass
        return False

    def keep(self, place: Place, data: memoryview) -> None:
        """Write a piece, and make room for it; a full or failing disk is no error, only no help."""
        path = self._path(place)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        with self._lock:  # one at a time, or those that make room would not know what others write
            try:
                self._make_room(place.bytes)
                with open(aside, "wb", buffering=0) as file:
                    file.write(data)
                os.replace(aside, path)
                self._held = (self._held or 0) + place.bytes
            except OSError:
                with suppress(OSError):
                    aside.unlink(missing_ok=True)

    def _make_room(self, wanted: int) -> None:
        if self._held is not None and self._held + wanted <= self._size:
            return
        files = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
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

    def _path(self, place: Place) -> Path:
        return self._folder / place.xxh3
