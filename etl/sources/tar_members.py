"""The members of a tar, from its headers, as far as they can be read.

If an archive is truncated, or has other data between members, the members before that are returned; the last one has
the reason.
"""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from formats.tar_headers import BLOCK, NoEndError, TarError, headers

log = logging.getLogger(__name__)

MAX_BODY = 1 << 20
"""The largest body that is read with the headers."""

CUT = "truncated: the archive ends inside it"

_UNSUPPORTED = {"sparse file": "unsupported: sparse", "other": "unsupported: a tar entry of type {!r}"}


class Archive(Protocol):
    """The uncompressed bytes of an archive."""

    fault: str | None
    """The reason why the bytes end, unless they end properly."""

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes from ``offset``, fewer at the end of the archive. Offsets increase."""

    def reaches(self, end: int) -> bool:
        """Whether the archive has at least ``end`` bytes."""


class Member(NamedTuple):
    """A member of an archive that is not a folder.

    Its ``size`` bytes begin at ``offset``. ``reason`` (``kind: detail``) is why it cannot be used. For an error between
    members, the name is ``@`` and the offset in bytes. ``body`` has the contents, if requested.
    """

    name: bytes
    offset: int
    size: int
    reason: str | None = None
    body: bytes | None = None


class NotATarError(ValueError):
    """An archive does not begin with a tar header."""


def members(
    archive: Archive, *, start: int = 0, end: int | None = None, wanted: Callable[[bytes], bool] | None = None
) -> Iterator[Member]:
    """The members of the archive that begins at ``start``, in order; those ``wanted`` with their bodies.

    The archive ends at its end mark, or at ``end``. Raises `NotATarError` if it does not begin with a header.
    """

    def read(offset: int, length: int) -> bytes:
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
                own = (
                    read(body, size) if wants else None
                )  # before checking the end: some archives can only be read forward
                if not reaches(body + size):
                    yield Member(name, body, size, CUT)
                    return
                yield Member(name, body, size, reason, own)
    except NoEndError as error:
        log.warning("an archive ends without its end mark, after %s bytes", f"{error.at - start:,}")
    except TarError as error:
        if error.at == start:
            raise NotATarError(_instead_of_a_tar(read(start, BLOCK), str(error))) from None
        reason = CUT if error.name is not None else str(error)
        yield Member(error.name or b"@%d" % error.at, error.at, 0, reason)


def _instead_of_a_tar(block: bytes, error: str) -> str:
    if len(block) < BLOCK:
        return f"{len(block)} bytes" if block else "it is empty"
    if block.startswith(b"\x1f\x8b"):
        return "it is compressed"
    return "other data" if "no tar header" in error else error
