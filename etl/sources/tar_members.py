"""The members of a tar, from its headers alone: where the bytes of each begin and how many they are.

ustar, pax and GNU archives are read, with long names, sizes over 8 GB and names that are no text: names are raw bytes.
An archive that ends too early, or holds something else between its members, gives what comes before that; the last
member then tells what is wrong.
"""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

log = logging.getLogger(__name__)

BLOCK = 512
MAX_BODY = 1 << 20
"""No longer bodies are read with the headers: neither extended headers nor those that the caller wants."""

CUT = "truncated: the archive ends inside it"

_NOTHING = bytes(BLOCK)
_FILES = b"0\x007"  # 7: a file that wants to lie in one piece
_FOLDERS = b"5D"
_OTHERS = {b"1": "a link", b"2": "a link", b"3": "a device", b"4": "a device", b"6": "a pipe"}
_SPARSE = b"GNU.sparse."


class Archive(Protocol):
    """The bytes of an archive, as they are without compression."""

    fault: str | None
    """Why there is nothing after the last byte, if that is no proper end."""

    def read(self, offset: int, length: int) -> bytes:
        """So many bytes from there; fewer where the archive ends. Offsets are asked for in rising order."""

    def reaches(self, end: int) -> bool:
        """Whether the archive has so many bytes, or more."""


class Member(NamedTuple):
    """Something in an archive that is no folder.

    Its ``size`` bytes begin at ``offset``; ``reason`` (``kind: detail``) says why they are no file that can be taken.
    Where an archive goes wrong between members, the name is ``@`` and the place in bytes. ``body`` is the content, if
    it was asked for.
    """

    name: bytes
    offset: int
    size: int
    reason: str | None = None
    body: bytes | None = None


class NotATarError(ValueError):
    """There is no tar header where an archive has to begin with one."""


def members(
    archive: Archive, *, start: int = 0, end: int | None = None, wanted: Callable[[bytes], bool] | None = None
) -> Iterator[Member]:
    """The members of the archive that begins at ``start``, in its order; those ``wanted`` with their bodies.

    It ends at its end mark, or at ``end``. Raises `NotATarError` if it begins with no header.
    """
    at, extended, everywhere = start, _Extended(), _Extended()

    def read(offset: int, length: int) -> bytes:
        return archive.read(offset, length if end is None else max(0, min(length, end - offset)))

    def reaches(place: int) -> bool:
        return (end is None or place <= end) and archive.reaches(place)

    while True:
        block = read(at, BLOCK)
        if len(block) < BLOCK:
            if at == start:
                raise NotATarError(f"{len(block)} bytes" if block else "it is empty")
            if extended.name is not None:
                yield Member(extended.name, at, 0, CUT)
            elif block:
                yield Member(b"@%d" % at, at, 0, "truncated: the archive ends inside a header")
            else:
                log.warning("an archive ends without its end mark, after %s bytes", f"{at - start:,}")
            return
        if block == _NOTHING:
            return
        try:
            kind, size, name = _parse(block)
        except ValueError:
            if at == start:
                raise NotATarError("it is compressed" if block.startswith(b"\x1f\x8b") else "other data") from None
            yield Member(b"@%d" % at, at, 0, "damaged: no tar header here; nothing behind it can be read")
            return
        body = at + BLOCK
        if kind in b"LKxXg" and size <= MAX_BODY:
            at = body + _whole_blocks(size)
            content = read(body, size)
            if len(content) < size:
                yield Member(extended.name or b"@%d" % body, body, size, "truncated: the archive ends inside a header")
                return
            (everywhere if kind == b"g" else extended).take(kind, content)
            continue
        if kind == b"S":
            body = _after_sparse_map(read, block, body)
        name = next(one for one in (extended.name, everywhere.name, name) if one is not None)
        size = next(one for one in (extended.size, everywhere.size, size) if one is not None)
        reason = "unsupported: sparse" if kind == b"S" or extended.sparse or everywhere.sparse else None
        extended = _Extended()
        at = body
        if kind in _FILES and not name.endswith(b"/"):
            wants = wanted is not None and reason is None and size <= MAX_BODY and wanted(name)
            own = read(body, size) if wants else None  # before the end is looked for: some archives only go forward
            if not reaches(body + size):
                yield Member(name, body, size, CUT)
                return
            yield Member(name, body, size, reason, own)
            at += _whole_blocks(size)
        elif kind in _OTHERS:
            yield Member(name, body, 0, f"not a regular file: {_OTHERS[kind]}")
        elif kind in _FOLDERS or kind in _FILES:
            at += _whole_blocks(size) if kind == b"D" else 0
        elif kind != b"V":  # V: the name of the archive itself
            if not reaches(body + size):
                yield Member(name, body, size, CUT)
                return
            yield Member(name, body, size, reason or f"unsupported: a tar entry of type {kind.decode('latin-1')!r}")
            at += _whole_blocks(size)


def _parse(block: bytes) -> tuple[bytes, int, bytes]:
    """Type, size and name of a header. Raises ValueError for anything else."""
    written = _number(block[148:156])
    if written != sum(block) - sum(block[148:156]) + 8 * 32:
        signed = sum(byte - 256 * (byte > 127) for byte in block[:148] + block[156:])  # as very old tars counted
        if written != signed + 8 * 32:
            raise ValueError("no tar header")
    name = block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0" and block[345]:
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    return block[156:157], _size(_number(block[124:136])), name


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big") if field[0] == 0x80 else -1
    return int(field.partition(b"\0")[0].strip() or b"0", 8)


def _size(number: int) -> int:
    if not 0 <= number < 1 << 62:
        raise ValueError("a size that cannot be")
    return number


def _whole_blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _after_sparse_map(read: Callable[[int, int], bytes], header: bytes, at: int) -> int:
    """Where the bytes of a GNU sparse file begin: its map may go on in further blocks."""
    more = header[482]
    while more:
        block = read(at, BLOCK)
        at += BLOCK
        more = len(block) == BLOCK and block[504]
    return at


class _Extended:
    """What extended headers say of the next member, or of all."""

    def __init__(self) -> None:
        self.name: bytes | None = None
        self.size: int | None = None
        self.sparse = False

    def take(self, kind: bytes, content: bytes) -> None:
        if kind == b"L":
            self.name = content.partition(b"\0")[0]
        elif kind in b"xXg":
            for key, value in _records(content):
                if key == b"path" and not self.sparse:
                    self.name = value
                elif key == b"size" and value.isdigit():
                    self.size = int(value)
                elif key.startswith(_SPARSE):
                    self.sparse = True
                    if key == b"GNU.sparse.name":
                        self.name = value


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The ``key=value`` records of a pax header, up to the first that is none."""
    at = 0
    while at < len(content):
        digits = content[at : at + 20].partition(b" ")[0]
        if not digits.isdigit() or not len(digits) < int(digits) <= len(content) - at:
            return
        record = content[at : at + int(digits)]
        key, equals, value = record[len(digits) + 1 :].removesuffix(b"\n").partition(b"=")
        if not equals:
            return
        yield key, value
        at += int(digits)
