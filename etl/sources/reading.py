"""Reading of listed images by several threads: files, ranges of archives, and remote objects."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from heapq import heappop, heappush
from types import TracebackType
from typing import Self

from etl.errors import SourceError, one_line
from etl.pictures.images import RejectedError
from etl.secrets import executor_storage
from etl.sources.archives import GzipBytes, is_compressed, is_remote, open_regular, read_on, split_address
from etl.sources.entries import text
from formats.errors import StorageError
from formats.stores.storage import Storage

MAX_BYTES = 256 << 20  # no server accepts a row of this size: it exceeds a frame of the protocol

_OPEN_ARCHIVES = 16  # local ones, which stay open between ranges


class Reader:
    """Reads the bytes of entries, for the threads of a task."""

    def __init__(self, *, storage_at: Callable[[str], Storage] = executor_storage) -> None:
        self._storage_at = storage_at
        self._lock = threading.Lock()
        self._archives: OrderedDict[bytes, _Descriptor] = OrderedDict()
        self._streams: dict[bytes, _Stream] = {}
        self._storages: dict[str, Storage] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all open archives and connections."""
        with self._lock:
            self._archives.clear()
            for stream in self._streams.values():
                stream.close()
            self._streams.clear()

    def read(self, place: bytes, offset: int | None, size: int) -> bytes:
        """Read a whole file, or ``size`` bytes from ``offset``. Raises `RejectedError` (``unreadable``, ``not a regular
        file``, ``too large``, ``truncated``) for errors of this image, and `SourceError` if a storage does not answer.
        """
        if size > MAX_BYTES:
            raise RejectedError("too large", f"{size} bytes")
        try:
            if offset is not None and is_compressed(place):
                data = self._stream(place).read(offset, size)
            elif is_remote(place):
                data = self._fetch(place, offset, size)
            elif offset is None:
                return _read_file(place)
            else:
                data = self._archive(place).read(offset, size)
        except OSError as error:
            if is_remote(place) and not isinstance(error, (FileNotFoundError, PermissionError)):
                # Not an error of this image: Spark retries the task, and then the job fails.
                if isinstance(error, StorageError):
                    raise SourceError(str(error)) from None
                raise SourceError(f"Wanted to read {text(place)}. Found: {_words(error)}") from None
            raise RejectedError("unreadable", _words(error)) from None
        if offset is not None and len(data) < size:
            raise RejectedError("truncated", f"{len(data)} of {size} bytes")
        if len(data) > MAX_BYTES:
            raise RejectedError("too large", f"{len(data)} bytes")
        return data

    def _archive(self, place: bytes) -> "_Descriptor":
        with self._lock:
            found = self._archives.get(place)
            if found is not None:
                self._archives.move_to_end(place)
                return found
        opened = _Descriptor(place)  # outside the lock: a slow file system must not block other threads
        with self._lock:
            found = self._archives.setdefault(place, opened)
            while len(self._archives) > _OPEN_ARCHIVES:
                self._archives.popitem(last=False)
        return found

    def _stream(self, place: bytes) -> "_Stream":
        with self._lock:
            if place not in self._streams:
                self._streams[place] = _Stream(lambda stack: self._open(place, stack))
            return self._streams[place]

    def _open(self, place: bytes, stack: ExitStack) -> Callable[[int], bytes | None]:
        if is_remote(place):
            return read_on(*self._storage(place))
        return stack.enter_context(open(_open_regular(place)[0], "rb", buffering=0)).read

    def _storage(self, place: bytes) -> tuple[Storage, str]:
        address, name = split_address(place)
        with self._lock:
            if address not in self._storages:
                self._storages[address] = self._storage_at(address)
            return self._storages[address], name

    def _fetch(self, place: bytes, offset: int | None, size: int) -> bytes:
        storage, name = self._storage(place)
        return storage.read_bytes(name) if offset is None else storage.read_range(name, offset, size)


class _Descriptor:
    """An open archive. It is closed when the last thread that reads from it has released it."""

    def __init__(self, place: bytes) -> None:
        self._number, _ = _open_regular(place)

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            os.close(self._number)

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._number, size, offset)
        while 0 < len(data) < size and (more := os.pread(self._number, size - len(data), offset + len(data))):
            data += more
        return data


class _Stream:
    """A compressed archive, open at the last offset. Of waiting threads, the one with the smallest offset is next."""

    # It is decompressed once, if ranges are requested roughly in the order of their offsets; otherwise again.

    def __init__(self, open_file: Callable[[ExitStack], Callable[[int], bytes | None]]) -> None:
        self._open_file = open_file
        self._turn = threading.Condition()
        self._waiting: list[int] = []
        self._taken = False
        self._stack = ExitStack()
        self._bytes: GzipBytes | None = None

    def read(self, offset: int, size: int) -> bytes:
        with self._turn:
            heappush(self._waiting, offset)
            self._turn.wait_for(lambda: not self._taken and self._waiting[0] == offset)
            heappop(self._waiting)
            self._taken = True
        try:
            if self._bytes is None or offset < self._bytes.start:
                self._stack.close()
                self._bytes = None
                self._bytes = GzipBytes(self._open_file(self._stack))
            return self._bytes.read(offset, size)
        finally:
            with self._turn:
                self._taken = False
                self._turn.notify_all()

    def close(self) -> None:
        self._stack.close()


def _open_regular(place: bytes) -> tuple[int, int]:
    opened = open_regular(place)
    if opened is None:
        raise RejectedError("not a regular file")
    return opened


def _read_file(place: bytes) -> bytes:
    descriptor, size = _open_regular(place)
    with open(descriptor, "rb", buffering=0) as file:
        if size > MAX_BYTES:
            raise RejectedError("too large", f"{size} bytes")
        return file.readall() or b""


def _words(error: OSError) -> str:
    return error.strerror or one_line(error)
