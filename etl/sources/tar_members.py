"""The members of a tar, from its headers, as far as they can be read.

If an archive is truncated, or has other data between members or after its end mark, the members before that are
returned; the last one has the reason.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from formats.tar_headers import BLOCK, NoEndError, TarError, headers

_PIECE, _LARGEST_PIECE = 4 << 10, 1 << 20
MAX_BODY = 1 << 20  # the largest body that is read with the headers

CUT = "truncated: the archive ends inside it"
TWICE = "twice: a later member has this name"
# The kinds of reasons that are about an archive. They mean that it may have more images than are listed.
FAULTS = ("truncated", "damaged", "unread", "twice", "not a tar")

_UNSUPPORTED = {"sparse file": "unsupported: sparse", "other": "unsupported: a tar entry of type {!r}"}


class Archive(Protocol):
    """The uncompressed bytes of an archive."""

    fault: str | None  # why the bytes end, unless they end properly

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes from ``offset``, fewer at the end of the archive. Offsets increase."""

    def reaches(self, end: int) -> bool:
        """Whether the archive has at least ``end`` bytes."""


class Member(NamedTuple):
    """A member of an archive that is not a folder: its ``size`` bytes begin at ``offset``."""

    name: bytes  # `@` and the offset for an error between or after members
    offset: int
    size: int
    reason: str | None = None  # why it cannot be used: `kind: detail`
    body: bytes | None = None  # the contents, if requested


class NotATarError(ValueError):
    """An archive does not begin with a tar header."""


def members(
    archive: Archive, *, start: int = 0, end: int | None = None, wanted: Callable[[bytes], bool] | None = None
) -> Iterator[Member]:
    """The members of the archive that begins at ``start``, in order, up to its end mark or ``end``; those ``wanted``
    with their bodies. Raises `NotATarError` if it does not begin with a header.
    """

    last = start

    def read(offset: int, length: int) -> bytes:
        nonlocal last
        last = offset
        return archive.read(offset, length if end is None else max(0, min(length, end - offset)))

    def reaches(place: int) -> bool:
        return (end is None or place <= end) and archive.reaches(place)

    try:
        for header in headers(read, start):
            name, body, size = header.name, header.start, header.size
            if header.kind in ("link", "device", "pipe"):
                yield Member(name, body, 0, f"not a regular file: a {header.kind}")
            elif header.kind != "folder":
                reason = _UNSUPPORTED.get(header.kind, "").format(header.type.decode("latin-1")) or None
                wants = wanted is not None and reason is None and size <= MAX_BODY and wanted(name)
                # before checking the end: some archives can only be read forward
                own = read(body, size) if wants else None
                if not reaches(body + size):
                    yield Member(name, body, size, CUT)
                    return
                yield Member(name, body, size, reason, own)
        at, reason = _after_end_mark(read, last + BLOCK)
    except NoEndError as error:
        at, reason = error.at, str(error)
    except TarError as error:
        if error.at == start:
            raise NotATarError(_instead_of_a_tar(read(start, BLOCK), str(error))) from None
        reason = CUT if error.name is not None else str(error)
        yield Member(error.name or b"@%d" % error.at, error.at, 0, reason)
        return
    if reason := (archive.fault if end is None else None) or reason:
        yield Member(b"@%d" % at, at, 0, reason)


def _after_end_mark(read: Callable[[int, int], bytes], at: int) -> tuple[int, str | None]:
    """The first block from ``at`` that is not padding and what it is, or the end of the archive and None."""
    piece = _PIECE
    while data := read(at, piece):
        if rest := data.lstrip(b"\0"):
            at += (len(data) - len(rest)) // BLOCK * BLOCK
            try:
                next(headers(read, at))
            except (TarError, StopIteration):
                return at, "unread: other data follow the end mark of the archive"
            return at, "unread: another archive follows the end mark of this one"
        at, piece = at + len(data), min(2 * piece, _LARGEST_PIECE)
    return at, None


def _instead_of_a_tar(block: bytes, error: str) -> str:
    if len(block) < BLOCK:
        return f"{len(block)} bytes" if block else "it is empty"
    if block.startswith(b"\x1f\x8b"):
        return "it is compressed"
    return "other data" if "no tar header" in error else error
