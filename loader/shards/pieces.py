"""Pieces of shards: read by many threads, verified, and kept in a cache on disk if there is one."""

import logging
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from formats import StorageError
from formats.retries import Retries
from formats.shards.layout import Contents, contents_of, piece_digest
from formats.stores.s3 import is_s3
from loader.errors import LoaderError, ShardError, UnreachableError, closed
from loader.prefetch.runtime import SYSTEM, Runtime
from loader.prefetch.stats import Meter
from loader.s3.client import told
from loader.shards.piece_cache import PieceCache, PieceLocation
from loader.shards.shard_set import TIMEOUT_SECONDS, Shards

if TYPE_CHECKING:
    from formats.stores.ranges import RangeReader

log = logging.getLogger(__name__)

# The bytes of one request: the most that a connection to a distant store has on its way. A piece is two requests.
_PART_BYTES = 2_800_000
_LEAST_ATTEMPTS = 2  # the least number of attempts, even if one takes all of the time


@dataclass(slots=True)
class Loaded:
    """A piece in memory: its bytes, and its contents."""

    data: memoryview
    contents: "Contents"
    buffer: "np.ndarray[tuple[int], np.dtype[np.uint8]]"


@dataclass(slots=True)
class _Reading:
    """A piece that is read in parts, each by the next free thread. The last part completes it."""

    location: PieceLocation
    future: "Future[Loaded]"
    parts: int
    left: int
    buffer: "np.ndarray[tuple[int], np.dtype[np.uint8]] | None"
    is_begun: bool = False
    error: tuple[int, BaseException] | None = None


def locations_of(shards: Shards) -> list[PieceLocation]:
    """The pieces of all shards, in order; those without samples are left out."""
    found: list[PieceLocation] = []
    first = 0
    for shard in shards.contents.shards:
        start = 0
        for piece in shard.pieces:
            if piece.samples:
                found.append(PieceLocation(shard.name, start, piece.bytes, piece.xxh3, piece.samples, first))
            first += piece.samples
            start += piece.bytes
    return found


class PieceReader:
    """Threads, each with its own connection, that read pieces; the first request starts them. A failing request, and a
    failing connection, is repeated until ``timeout`` seconds have passed since it began. The futures raise the errors
    of `loader`.
    """

    def __init__(
        self,
        shards: Shards,
        *,
        threads: int,
        meter: Meter,
        cache: PieceCache | None = None,
        timeout: float = TIMEOUT_SECONDS,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self.runtime = runtime
        self._shards, self._most, self._cache, self.meter, self._timeout = shards, threads, cache, meter, timeout
        self.locations = locations_of(shards)
        sizes = [location.bytes for location in self.locations]
        # Not more than they need: the system clears all huge pages of a buffer, even those that are not used.
        most = 2 * np.median(sizes or [0])
        self._usual = max((size for size in sizes if size <= most), default=0)
        self._lock = threading.Lock()
        self._reader: RangeReader | None = None
        self._wanted = runtime.queue()  # of parts, (reading, number) each; None ends a thread
        self._threads = self._idle = self._queued = self._born = 0
        self._free: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
        self._has_warned = False
        self._answered = float("-inf")  # when the last part of a piece was here
        self.is_closed = False

    def is_usable(self) -> bool:
        """Until it is closed."""
        return not self.is_closed

    def figures(self) -> dict[str, int]:
        """The most requests at the same time, and the threads, each with a connection."""
        return {"window": self._most, "connections": self._threads}

    def connect(self) -> None:
        """Connect. Raises `AccessError`, `UnreachableError`."""
        from formats.stores.ranges import RangeReader

        if self._reader is not None:
            return
        system = self.runtime
        retries = Retries(
            _LEAST_ATTEMPTS, self._timeout, is_stopped=lambda: self.is_closed, note=self._note_retry,
            clock=system.clock, sleep=system.sleep, uniform=system.uniform,
        )  # fmt: skip
        try:
            storage = retries.run(self._shards.storage, UnreachableError)
        except UnreachableError:
            if self.is_closed:
                raise closed() from None
            raise
        with self._lock:
            self._reader = self._reader or RangeReader(storage, retries, local=system.local)

    def read(self, number: int, *, room: int) -> "Future[Loaded]":
        """Begin to read a piece into ``room`` bytes, which memory that is kept for further pieces is part of."""
        location = self.locations[number]
        if location.bytes > self._usual:
            self.trim(room - location.bytes)
        buffer = self._buffer(location.bytes)
        # A cache has whole pieces, so the thread that looks there reads all of it.
        parts = 1 if self._cache is not None else max(1, round(location.bytes / _PART_BYTES))
        reading = _Reading(location, Future(), parts, left=parts, buffer=buffer)
        for part in range(parts):
            self._wanted.put((reading, part))
        with self._lock:
            self._queued += parts
            while self._queued > self._idle + self._born and self._threads < self._most:
                self._threads += 1
                self._born += 1
                self.runtime.start(self._work, "loader-pieces")
        return reading.future

    def check_answers(self, *, since: float) -> None:
        """Raise `UnreachableError` if a store that fails no reads by itself has answered none for ``timeout`` seconds
        ``since`` then: a folder that is mounted from a server may hang.
        """
        silent = self.runtime.clock() - max(since, self._answered)
        if silent > self._timeout and not is_s3(self._shards.address):
            raise UnreachableError(f"Wanted {self._shards.address} within {self._timeout:g} s. Found: no answer")

    def cost(self, number: int) -> int:
        """The bytes that a piece takes in memory."""
        return max(self.locations[number].bytes, self._usual)

    def forget(self, loaded: Loaded, *, room: int) -> None:
        """Give back the memory of a piece, of which nothing is used any more; it is kept for others in ``room``."""
        if len(loaded.buffer) == self._usual and len(self._free) < self._most:
            self._free.append(loaded.buffer)
            self.trim(room)

    def trim(self, room: int) -> None:
        """Free memory that is kept for further pieces, but for so many bytes."""
        while len(self._free) * self._usual > max(0, room):
            with suppress(IndexError):  # another stream may take one
                self._free.pop()

    def warn_of_budget(self, budget: int) -> None:
        """Log, once, that the budget does not hold what is mixed."""
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: memory_budget (%s bytes in this process) does not hold the samples that are mixed, so pieces are "
                "read again. Use a larger memory_budget, or a lower mix or streams.",
                self._shards.address,
                f"{budget:,}",
            )

    def close(self) -> None:
        """End the threads, as soon as what they read has come."""
        self.is_closed = True
        for _ in range(self._threads):
            self._wanted.put(None)

    def _note_retry(self) -> None:
        self.meter.retries += 1

    def _work(self) -> None:
        try:
            self._read_on()
        finally:
            if self._reader is not None:
                self._reader.leave()

    def _read_on(self) -> None:
        is_new = True
        while not self.is_closed:
            with self._lock:
                self._idle += 1
                self._born -= is_new
            is_new = False
            wanted = self._wanted.get()
            with self._lock:
                self._idle -= 1
                self._queued -= wanted is not None
            if wanted is None:
                return
            self.meter.in_flight += 1
            try:
                self._read_part(*wanted)
            finally:
                self.meter.in_flight -= 1
                del wanted  # or a thread that waits for its next part would keep the memory of this one

    def _read_part(self, reading: _Reading, part: int) -> None:
        with self._lock:
            if not reading.is_begun:
                reading.is_begun = True
                if not reading.future.set_running_or_notify_cancel():
                    reading.buffer = None
            buffer = reading.buffer
        if buffer is None:
            return
        data = memoryview(buffer.data)[: reading.location.bytes]
        error: BaseException | None = None
        is_kept = False
        try:
            is_kept = self._cache is not None and self._cache.read(reading.location, data)
            if not is_kept:
                start, stop = (reading.location.bytes * number // reading.parts for number in (part, part + 1))
                self._fetch(reading.location, data, start, stop)
        except BaseException as found:
            error = _let_go(found)
        with self._lock:
            self._answered = self.runtime.clock()
            # The error of the first part that fails is raised.
            if error is not None and (reading.error is None or part < reading.error[0]):
                reading.error = part, error
            reading.left -= 1
            is_last = not reading.left
        if not is_last:
            return
        loaded: Loaded | None = None
        if (error := None if reading.error is None else reading.error[1]) is None:
            try:
                if not is_kept:
                    self._check(reading.location, data, is_read_again=False)
                    if self._cache is not None:
                        self._cache.keep(reading.location, data)
                loaded = self._loaded(reading.location, data, buffer)
            except BaseException as found:
                error = _let_go(found)
        reading.buffer = None
        del data, buffer  # before another piece takes their place in the budget
        if loaded is not None:
            reading.future.set_result(loaded)
        else:
            reading.future.set_exception(error)

    def _loaded(
        self, location: PieceLocation, data: memoryview, buffer: "np.ndarray[tuple[int], np.dtype[np.uint8]]"
    ) -> Loaded:
        try:
            contents = contents_of(data)
        except ValueError as error:
            raise self._damaged(location, str(error)) from error
        if len(contents) != location.samples:
            raise self._damaged(location, f"{len(contents)} samples instead of {location.samples}")
        return Loaded(data, contents, buffer)

    def _check(self, location: PieceLocation, data: memoryview, *, is_read_again: bool) -> None:
        """Compare a piece with the manifest; a damaged one is read again, in case only the transfer damaged it."""
        digest = piece_digest(data)
        if digest == location.xxh3:
            return
        if is_read_again:
            raise self._damaged(location, f"XXH3 {digest[:12]} instead of {location.xxh3[:12]}")
        self.meter.retries += 1
        self._fetch(location, data, 0, location.bytes)
        self._check(location, data, is_read_again=True)

    def _fetch(self, location: PieceLocation, data: memoryview, start: int, stop: int) -> None:
        """Read a part of a piece. Raises the errors of `loader`."""
        reader = self._reader
        assert reader is not None
        try:
            length = reader.read_into(location.shard, location.start + start, data[start:stop])
        except FileNotFoundError:
            raise ShardError(
                f"Wanted the shard {location.shard} of {self._shards.address}, which the manifest names. "
                "Found: no such file. Was it deleted? Write the shards again."
            ) from None
        except StorageError as error:
            found = str(error).partition("Found: ")[2] or str(error)
            raise told(type(error)(f"Wanted to read {self._name(location)}. Found: {found}")) from error
        except OSError as error:
            raise ShardError(f"Wanted to read {self._name(location)}. Found: {error.strerror or error}") from error
        if length < stop - start:
            raise self._damaged(location, f"the shard ends {location.bytes - start - length:,} bytes earlier")

    def _damaged(self, location: PieceLocation, found: str) -> LoaderError:
        return ShardError(
            f"Wanted {self._name(location)} as in the manifest. Found: {found}. "
            "The shard was truncated or replaced. Write the shards again."
        )

    def _name(self, location: PieceLocation) -> str:
        return (
            f"samples {location.first:,} to {location.first + location.samples - 1:,} in {location.shard} of "
            f"{self._shards.address}, {location.bytes:,} bytes from {location.start:,}"
        )

    def _buffer(self, size: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
        if size > self._usual:  # a piece of large samples, whose memory is not kept for others
            return np.empty(size, dtype=np.uint8)
        with suppress(IndexError):
            return self._free.pop()
        return np.empty(self._usual, dtype=np.uint8)


def _let_go(error: BaseException) -> BaseException:
    """An error that does not keep the memory of its piece: the frames of a traceback refer to it. Ours say enough."""
    found: BaseException | None = error if isinstance(error, LoaderError) else None
    while found is not None:
        found.__traceback__ = None
        found = found.__cause__ or found.__context__
    return error
