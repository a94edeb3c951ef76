"""A strict parser of tar headers, which finds the byte range of each member.

It reads ustar, pax and GNU archives with long names and sizes over 8 GB. Names are raw bytes and need not be text. A
header that GNU tar and Python's tarfile interpret differently counts as damaged: otherwise tar could extract members,
even links, that an index of the same bytes does not have.
"""

import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

BLOCK = 512
# The largest extended header, which is read into memory. The longest paths have a few kilobytes.
MAX_EXTENDED = 1 << 20

_NOTHING = bytes(BLOCK)
_MOST_BYTES = 1 << 62
_OCTAL = re.compile(rb" *([0-7]+|(?=\0))[ \0]*")
_DECIMAL = re.compile(rb"[0-9]{1,19}")
_LENGTH = re.compile(rb"([0-9]{1,7}) ")
_SPARSE = b"GNU.sparse."

Kind = Literal["file", "folder", "link", "device", "pipe", "sparse file", "other"]
_KINDS: dict[bytes, Kind] = {b"0": "file", b"\0": "file", b"7": "file", b"1": "link", b"2": "link", b"3": "device"}
_KINDS.update({b"4": "device", b"5": "folder", b"D": "folder", b"6": "pipe", b"S": "sparse file"})
_WITHOUT_SIZE = b"15"  # all readers skip nothing after these, whatever size the header has


class TarError(ValueError):
    """An archive cannot be read further. ``at`` is the offset in bytes, ``name`` the member's name if it is known."""

    def __init__(self, reason: str, at: int, name: bytes | None = None) -> None:
        super().__init__(reason)
        self.at, self.name = at, name


class NoEndError(TarError):
    """An archive ends after a complete member, without an end mark."""


class Header(NamedTuple):
    """A member: its ``size`` bytes begin at ``start``, and the next header is at ``end``. ``type`` is the letter in the
    header; ``target`` is the target of a link.
    """

    kind: Kind
    type: bytes
    name: bytes
    start: int
    size: int
    is_executable: bool
    target: bytes

    @property
    def end(self) -> int:
        return self.start + whole_blocks(self.size)


def headers(read: Callable[[int, int], bytes], start: int = 0) -> Iterator[Header]:
    """Parse the members of an archive, which begins at ``start``, up to its end mark. ``read`` reads a number of bytes
    from an offset, fewer at the end; offsets increase. Raises `TarError` if a header is damaged, or the archive ends
    too early.
    """
    at, extended = start, _Extended()
    while True:
        block = read(at, BLOCK)
        if len(block) < BLOCK:
            if block or at == start or extended.types:
                raise TarError("truncated: the archive ends inside a header", at, extended.name)
            raise NoEndError("truncated: the archive ends without its end mark", at)
        if block == _NOTHING and not extended.types:
            return
        try:
            kind, size, name, mode = _parse(block)
            body = at + BLOCK
            if kind in b"LKxXg":
                if size > MAX_EXTENDED:
                    raise ValueError(f"an extended header of {size:,} bytes")
                content = read(body, size)
                if len(content) < size:
                    raise TarError("truncated: the archive ends inside a header", body, extended.name)
                extended.take(kind, content)
                at = body + whole_blocks(size)
                continue
            target = block[157:257].partition(b"\0")[0] if extended.target is None else extended.target
            header = _member(kind, extended, name, body, size, mode, target)
        except TarError:
            raise
        except ValueError as error:
            raise TarError(f"damaged: {error}; nothing after it can be read", at) from None
        if kind == b"S":
            header = header._replace(start=_after_sparse_map(read, block, body))
        if kind != b"V":  # a volume label, not a member
            yield header
        at, extended = header.end, _Extended()


def number(field: bytes) -> int:
    """Parse the number in a header field: octal digits with blanks and NULs around them, or base 256. Raises ValueError
    for anything else, and for negative numbers.
    """
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    return _octal(field)


def whole_blocks(size: int) -> int:
    """A size in bytes, rounded up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


def _octal(field: bytes) -> int:
    found = _OCTAL.fullmatch(field)
    if found is None:
        raise ValueError(f"{field!r} instead of a number")
    return int(found[1] or b"0", 8)


def _parse(block: bytes) -> tuple[bytes, int, bytes, int]:
    """Type, size, name and mode of a header. Raises ValueError for anything else."""
    try:
        written = _octal(block[148:156])
    except ValueError:
        raise ValueError("no tar header here") from None
    if written != sum(block) - sum(block[148:156]) + 8 * 32:
        signed = sum(byte - 256 * (byte > 127) for byte in block[:148] + block[156:])  # the checksum of very old tars
        if written != signed + 8 * 32:
            raise ValueError("no tar header here")
    name = block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0" and block[345]:
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    return block[156:157], _sized(number(block[124:136])), name, number(block[100:108])


def _sized(size: int) -> int:
    if size >= _MOST_BYTES:
        raise ValueError(f"a size of {size} bytes")
    return size


def _member(type: bytes, extended: "_Extended", name: bytes, body: int, size: int, mode: int, target: bytes) -> Header:
    name = name if extended.name is None else extended.name
    size = (0 if type in _WITHOUT_SIZE else size) if extended.size is None else extended.size
    kind = _KINDS.get(type, "other")
    if extended.is_sparse and (kind != "file" or name.endswith(b"/")):
        raise ValueError(f"holes in a {'folder' if kind == 'file' else kind}, which tars skip in different ways")
    if kind == "file":
        # Very old tars wrote folders as files with a / at the end.
        kind = "folder" if name.endswith(b"/") else "sparse file" if extended.is_sparse else kind
    if size and type != b"D" and (kind in ("folder", "link", "device", "pipe") or type == b"V"):
        raise ValueError(f"a {kind} of {size:,} bytes, which some tars skip and others do not")
    return Header(kind, type, name, body, size, bool(mode & 0o100), target)


def _after_sparse_map(read: Callable[[int, int], bytes], header: bytes, at: int) -> int:
    """The offset of the bytes of a GNU sparse file, whose map may continue in further blocks."""
    more = header[482]
    while more:
        block = read(at, BLOCK)
        at += BLOCK
        more = len(block) == BLOCK and block[504]
    return at


class _Extended:
    """The extended headers of the next member. Combinations that readers interpret differently raise ValueError."""

    def __init__(self) -> None:
        self.types: set[bytes] = set()
        self.name: bytes | None = None
        self.target: bytes | None = None
        self.size: int | None = None
        self.is_sparse = False

    def take(self, type: bytes, content: bytes) -> None:
        """Parse one more extended header."""
        if type == b"g":
            if any(key in (b"path", b"size") or key.startswith(_SPARSE) for key in dict(_records(content))):
                raise ValueError("a name or size for all members")
            return
        type = b"x" if type == b"X" else type
        if type in self.types:
            raise ValueError("two extended headers for one member")
        self.types.add(type)
        if type == b"L":
            self._call(content.partition(b"\0")[0])
        elif type == b"K":
            self.target = content.partition(b"\0")[0]
        elif type == b"x":
            self._read(dict(_records(content)))

    def _read(self, records: dict[bytes, bytes]) -> None:
        self.is_sparse = any(key.startswith(_SPARSE) for key in records)
        name = records.get(_SPARSE + b"name", records.get(b"path"))
        if name is not None:
            self._call(name)
        self.target = records.get(b"linkpath", self.target)
        if (size := records.get(b"size")) is not None:
            if not _DECIMAL.fullmatch(size):
                raise ValueError(f"{size!r} instead of a size")
            self.size = _sized(int(size))

    def _call(self, name: bytes) -> None:
        if not name or b"\0" in name or self.name is not None:
            raise ValueError("an extended name that is empty, is cut by a NUL or comes twice")
        self.name = name


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Parse the ``key=value`` records of a pax header. Raises ValueError for anything but records and padding."""
    at, last = 0, len(content.rstrip(b"\0"))
    while at < last:
        found = _LENGTH.match(content, at)
        end = at + int(found[1]) if found else 0
        if found is None or not found.end() < end <= len(content) or content[end - 1 : end] != b"\n":
            raise ValueError("a pax header with a record of a wrong length")
        key, equals, value = content[found.end() : end - 1].partition(b"=")
        if not equals or b"\0" in key:
            raise ValueError("a pax header with a record without a key")
        yield key, value
        at = end
