"""Write request bodies to files, a block while the next one arrives; and the sizes of the blocks of transfers."""

import asyncio
import errno
import hashlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from imagestrata.service.errors import FullError, TooLargeError

_LEAST_BLOCK = 1 << 16


class Blocks:
    """Divides ``together`` bytes of memory among transfers: 64 KiB to ``most`` bytes for each block."""

    def __init__(self, most: int, *, together: int) -> None:
        self._most, self._together = most, together
        self._lock = threading.Lock()
        self._count = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Count a transfer while the block runs."""
        with self._lock:
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1

    @property
    def size(self) -> int:
        """The size of the next block of each transfer, in bytes."""
        return max(_LEAST_BLOCK, min(self._most, self._together // max(1, self._count)))


_BLOCKS = Blocks(2 << 20, together=1 << 25)
Update = Callable[[bytes], None]
"""Adds bytes to a hash."""


class Digest:
    """The SHA-256 and the size of what was written."""

    def __init__(self) -> None:
        self._made, self.size = hashlib.sha256(), 0

    def update(self, data: bytes) -> None:
        """Add bytes."""
        self._made.update(data)
        self.size += len(data)

    def hexdigest(self) -> str:
        """Return the digest of all bytes so far."""
        return self._made.hexdigest()

    def copy(self) -> "Digest":
        """Return an independent copy."""
        made = Digest()
        made._made, made.size = self._made.copy(), self.size
        return made


async def take(
    body: AsyncIterator[bytes],
    file: IO[bytes],
    *,
    hashes: Sequence[Update],
    most: int | None,
    reserve: Callable[[int], None],
) -> int:
    """Write a body to an unbuffered file, also what arrived before an error, and return the number of bytes. Blocks are
    given to ``reserve`` (their size) before they are written, and to ``hashes`` after it. Raises `TooLargeError` for
    more than ``most`` bytes, `FullError` for a full disk, and what ``reserve`` raises.
    """
    size, held = 0, 0
    parts: list[bytes] = []
    writing: asyncio.Task[None] | None = None
    with _BLOCKS.shared():
        try:
            async for chunk in body:
                size, held = size + len(chunk), held + len(chunk)
                if most is not None and size > most:
                    raise TooLargeError(f"Wanted a body of at most {most:,} bytes. Found: more")
                parts.append(chunk)
                if held >= _BLOCKS.size:
                    if writing is not None:
                        await writing
                    reserve(held)
                    writing = asyncio.create_task(asyncio.to_thread(_write, file, hashes, parts))
                    parts, held = [], 0
        finally:
            if writing is not None:
                await writing
            if parts:
                reserve(held)
                await asyncio.to_thread(_write, file, hashes, parts)
    return size


@contextmanager
def full_disk_errors() -> Iterator[None]:
    """Turn errors of a full disk or a file size limit into `FullError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise FullError(f"Wanted free space on the disk. Found: {error.strerror}") from error
        raise


def _write(file: IO[bytes], hashes: Sequence[Update], parts: list[bytes]) -> None:
    with full_disk_errors():
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[file.write(view) :]
            for update in hashes:
                update(part)
