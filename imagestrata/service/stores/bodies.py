"""Bodies of requests, written to files as they come: one block is written and hashed while the next one comes."""

import asyncio
import errno
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Protocol

from imagestrata.service.errors import FullError, TooLargeError
from imagestrata.service.stores.blocks import Blocks

_BLOCKS = Blocks(2 << 20, together=1 << 25)


class Digest:
    """The SHA-256 of what was written, and how many bytes that was."""

    def __init__(self) -> None:
        self._made, self.size = hashlib.sha256(), 0

    def update(self, data: bytes) -> None:
        """Count more."""
        self._made.update(data)
        self.size += len(data)

    def hexdigest(self) -> str:
        """Of all so far."""
        return self._made.hexdigest()

    def copy(self) -> "Digest":
        """One that goes on from here by itself."""
        made = Digest()
        made._made, made.size = self._made.copy(), self.size
        return made


class Hash(Protocol):
    """What is given bytes as they are written."""

    def update(self, data: bytes, /) -> None:
        """Count more."""


async def take(
    body: AsyncIterator[bytes],
    file: IO[bytes],
    *,
    hashes: Sequence[Hash],
    most: int | None,
    reserve: Callable[[int], None],
) -> int:
    """Write a body to an unbuffered file; how many bytes it had.

    ``hashes`` are given each block that was written; ``reserve`` is asked for room before one is, and may raise. What
    came before an error was written, too. Raises `TooLargeError` beyond ``most`` bytes, `FullError` on a full disk.
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
def full_disks_told() -> Iterator[None]:
    """Turn what a full disk, or a limit of files' sizes, raises into `FullError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise FullError(f"Wanted room on the disk. Found: {error.strerror}") from error
        raise


def _write(file: IO[bytes], hashes: Sequence[Hash], parts: list[bytes]) -> None:
    with full_disks_told():
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[file.write(view) :]
            for one in hashes:
                one.update(part)
