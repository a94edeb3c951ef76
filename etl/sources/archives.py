"""Access to the bytes of an archive: a local file or a remote object, decompressed if needed.

A place is the absolute path of a local file or a full address (``s3://bucket/key``), as raw bytes.
"""

import os
import stat
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from etl.errors import SourceError
from etl.sources.entries import text
from etl.sources.tar_members import Archive
from formats.errors import StorageError
from formats.stores.storage import Storage

_SPARSELY = 4 << 10
_LOCAL_BLOCK = 64 << 10
_REMOTE_BLOCK = 4 << 20
_CHUNK = 256 << 10
_PIECE = 1 << 20
_SMALLEST = 512
_KEPT = 16 << 20  # the decompressed bytes that late readers may still ask for


def place_of(address: str) -> bytes:
    """The place of an address: relative paths become absolute."""
    raw = os.fsencode(address)
    return raw if b"://" in raw else os.path.abspath(raw)


def is_remote(place: bytes) -> bool:
    """Whether a place is an address rather than a local path."""
    return not place.startswith(b"/") and b"://" in place


def is_compressed(place: bytes) -> bool:
    """Whether a place has the name of a compressed tar."""
    return place.lower().endswith((b".tar.gz", b".tgz"))


def split_address(place: bytes) -> tuple[str, str]:
    """Split an address into its storage (``s3://bucket``) and the name in the storage."""
    scheme, _, rest = os.fsdecode(place).partition("://")
    holder, _, name = rest.partition("/")
    return f"{scheme}://{holder}", name


def open_regular(place: bytes) -> tuple[int, int] | None:
    """Open a local file: its descriptor and size, or None if it is not regular (pipes never block). Raises OSError."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode):
        return descriptor, found.st_size
    os.close(descriptor)
    return None


def read_on(storage: Storage, name: str) -> Callable[[int], bytes]:
    """Make a reader of an object from start to end, in large requests, each of which is retried separately."""
    at = 0

    def read(_: int) -> bytes:
        nonlocal at
        data = storage.read_range(name, at, _REMOTE_BLOCK)
        at += len(data)
        return data

    return read


@contextmanager
def open_archive(place: bytes, storage_at: Callable[[str], Storage]) -> Iterator[Archive]:
    """Open an archive to read its headers. Raises `SourceError` if it cannot be read."""
    try:
        if is_remote(place):
            address, name = split_address(place)
            storage = storage_at(address)
            size = storage.size(name)
            if is_compressed(place):
                yield GzipBytes(read_on(storage, name))
            else:
                yield RangedBytes(lambda at, count: storage.read_range(name, at, count), size, _REMOTE_BLOCK)
            return
        opened = open_regular(place)
        if opened is None:
            raise SourceError(f"Wanted an archive at {text(place)}. Found: not a regular file.")
        descriptor, size = opened
        with open(descriptor, "rb", buffering=0) as file:
            if is_compressed(place):
                yield GzipBytes(file.read)
            else:
                yield RangedBytes(lambda at, count: os.pread(descriptor, count, at), size, _LOCAL_BLOCK)
    except FileNotFoundError:
        mend = "It must have the same path on the driver and on every executor: use a shared file system."
        found = "nothing there." if is_remote(place) else f"nothing there on this machine. {mend}"
        raise SourceError(f"Wanted an archive at {text(place)}. Found: {found}") from None
    except StorageError as error:
        raise SourceError(str(error)) from None
    except OSError as error:
        raise SourceError(f"Wanted an archive at {text(place)}. Found: {error.strerror or error}") from None


class RangedBytes:
    """An archive with random access. Headers that are close together are read in blocks, others individually."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, block: int) -> None:
        self.fault: str | None = None
        self._fetch, self._size, self._block = fetch, size, block
        self._start, self._buffer = 0, b""
        self._last: int | None = None

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes from ``offset``, fewer at the end of the archive."""
        near = self._last is not None and 0 <= offset - self._last <= self._block // 4
        self._last = offset
        length = min(length, self._size - offset)
        if length <= 0:
            return b""
        at = offset - self._start
        if not 0 <= at <= len(self._buffer) - length:
            count = min(max(length, self._block if near else _SPARSELY), self._size - offset)
            self._start, self._buffer, at = offset, self._fetch(offset, count), 0
        return self._buffer[at : at + length]

    def reaches(self, end: int) -> bool:
        """Whether the archive has at least ``end`` bytes."""
        return end <= self._size


class GzipBytes:
    """The contents of a gzip file, decompressed sequentially. If it is damaged, they end there; ``fault`` says why."""

    def __init__(self, read: Callable[[int], bytes | None]) -> None:
        self.fault: str | None = None
        self.start = 0  # the offset of the first byte that can still be read
        self._read, self._end = read, 0
        self._pieces: deque[bytes] = deque()
        self._inflate, self._input = zlib.decompressobj(wbits=31), b""
        self._piece = _PIECE

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes from ``offset``, which is not before ``start``; fewer at the end."""
        if offset < self.start:
            raise ValueError(f"Wanted an offset from {self.start} on. Found: {offset}")
        while self._end < offset + length and self._more():
            while self._end - self.start - len(self._pieces[0]) >= _KEPT and (
                self.start + len(self._pieces[0]) <= offset
            ):
                self.start += len(self._pieces.popleft())
        at, parts = self.start, []
        for piece in self._pieces:
            if at < offset + length and at + len(piece) > offset:
                parts.append(piece[max(0, offset - at) : offset + length - at])
            at += len(piece)
        return b"".join(parts)

    def reaches(self, end: int) -> bool:
        """Whether there are at least ``end`` bytes."""
        return end <= self._end or bool(self.read(end - 1, 1))

    def _more(self) -> bool:
        """Decompress one more piece; False at the end."""
        while self.fault is None:
            data = self._input or self._read(_CHUNK) or b""
            if self._inflate.eof:  # another stream may follow, which continues the contents, or padding
                self._input = data.lstrip(b"\0")
                if not data:
                    return False
                if self._input:
                    self._inflate = zlib.decompressobj(wbits=31)
                continue
            before = self._inflate.copy()
            try:
                piece = self._inflate.decompress(data, self._piece)
            except zlib.error as error:
                self._inflate, self._input = before, data
                if self._piece == _SMALLEST:
                    self.fault = f"damaged: {str(error).rpartition(': ')[2]}"
                self._piece = _SMALLEST  # recover all blocks before the damage
                continue
            self._input = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if piece:
                self._pieces.append(piece)
                self._end += len(piece)
                return True
            if not data:
                self.fault = "truncated: the compressed data end too early"
        return False
