"""Reading of listed images by several threads: files, ranges of archives, and remote objects."""

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import lru_cache
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
        # A place may be opened twice at the same time: no lock is held while a slow file system opens it.
        self._archive = lru_cache(_OPEN_ARCHIVES)(_Descriptor)
        self._streams: dict[bytes, _Stream] = {}
        self._storages: dict[str, Storage] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._archive.cache_clear()
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
                storage, name = self._storage(place)
                data = storage.read_bytes(name) if offset is None else storage.read_range(name, offset, size)
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
    """A compressed archive, open at the last offset. It is decompressed once if ranges are requested roughly in the
    order of their offsets, as by tasks that read such archives in one thread; otherwise again.
    """

    def __init__(self, open_file: Callable[[ExitStack], Callable[[int], bytes | None]]) -> None:
        self._open_file = open_file
        self._turn = threading.Lock()
        self._stack = ExitStack()
        self._bytes: GzipBytes | None = None

    def read(self, offset: int, size: int) -> bytes:
        with self._turn:
            if self._bytes is None or offset < self._bytes.start:
                self._stack.close()
                self._bytes = None
                self._bytes = GzipBytes(self._open_file(self._stack))
            return self._bytes.read(offset, size)

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
