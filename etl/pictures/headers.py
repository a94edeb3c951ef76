"""A parser for the headers of well-formed JPEG, PNG and WebP files, much faster than a decoder.

It gives an answer only if there is no doubt and the picture ends as its format ends. Anything unusual gives None and is
left to a real decoder.
"""

import re
import struct
from itertools import islice
from typing import NamedTuple

from etl.pictures.endings import jpeg_end, png_chunks, png_end, webp_end
from formats.pictures.orientation import exif_orientation

MAGIC = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|II\*\0|MM\0\*|BM|RIFF....WEBP|\0\0\0\x0cjP  |\xff\x4f\xff\x51|P[1-6][\s#]|GIF8",
    re.DOTALL,
)
"""The first bytes of the formats that we know."""

_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}  # by color type
_JPEG_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive; few decoders support the others
_JPEG_PLAIN = frozenset({*range(0xE0, 0xF0), 0xFE, 0xDB, 0xC4, 0xDD})


class Look(NamedTuple):
    """The format of a file, its size in pixels as stored, its EXIF orientation (1 to 8), and in bytes where its coded
    pixels start and where the picture ends.
    """

    format: str
    width: int
    height: int
    orientation: int
    start: int
    end: int


def look(data: bytes) -> Look | None:
    """Parse a whole file; None if there is any doubt."""
    try:
        if data[:3] == b"\xff\xd8\xff":
            return _jpeg(data)
        if data[:8] == b"\x89PNG\r\n\x1a\n":
            return _png(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
    except (IndexError, struct.error):  # the file is truncated
        pass
    return None


def jpeg_orientation(start: bytes) -> int | None:
    """The EXIF orientation of a JPEG from its first bytes; None if they do not tell it, or it is no JPEG."""
    at = 2
    while start[:3] == b"\xff\xd8\xff" and at + 4 <= len(start) and start[at] == 0xFF:
        marker, length = start[at + 1], start[at + 2] << 8 | start[at + 3]
        if marker == 0xDA:
            return 1
        if marker == 0xE1 and start[at + 4 : at + 10] == b"Exif\0\0":
            return exif_orientation(start[at + 4 : at + 2 + length]) if at + 2 + length <= len(start) else None
        at += 2 + length
    return None


def _jpeg(data: bytes) -> Look | None:
    at, orientation = 2, 1
    size: tuple[int, int] | None = None
    tables: set[int] = set()
    while data[at] == 0xFF:
        marker, length = data[at + 1], data[at + 2] << 8 | data[at + 3]
        if marker in _JPEG_FRAMES:
            bits, height, width, components = struct.unpack_from(">BHHB", data, at + 4)
            if size or bits != 8 or components not in (1, 3, 4) or length != 8 + 3 * components:
                return None
            size = width, height
        elif marker == 0xDA:
            if size is None or 0 in size or not tables >= {0xDB, 0xC4}:
                return None
            end = jpeg_end(data, at)
            return Look("JPEG", *size, orientation, at, end) if end else None
        elif marker not in _JPEG_PLAIN or length < 2:
            return None
        elif marker == 0xE1 and data[at + 4 : at + 10] == b"Exif\0\0":
            orientation = exif_orientation(data[at + 4 : at + 2 + length])
        tables.add(marker)
        at += 2 + length
    return None


def _png(data: bytes) -> Look | None:
    width, height, bits, colour, packing, filtering, interlace = struct.unpack_from(">IIBBBBB", data, 16)
    usual = data[8:16] == b"\0\0\0\rIHDR" and packing == filtering == 0 and interlace <= 1
    if not usual or bits not in _PNG_DEPTHS.get(colour, ()) or not (0 < width < 1 << 31 and 0 < height < 1 << 31):
        return None
    if png_end(data) is None:
        return None
    orientation = 1
    seen: dict[bytes, int] = {}
    for kind, start, end in islice(png_chunks(data), 1, None):  # those after the header
        if kind == b"IEND":
            whole = b"IDAT" in seen and (colour != 3 or b"PLTE" in seen)
            return Look("PNG", width, height, orientation, seen[b"IDAT"], end) if whole else None
        if kind not in (b"IDAT", b"PLTE") and kind[0] < ord("a"):  # a critical chunk that is not known
            return None
        if kind == b"eXIf":
            orientation = exif_orientation(data[start + 8 : end - 4])
        seen.setdefault(kind, start)
    return None


def _webp(data: bytes) -> Look | None:
    end = webp_end(data)
    if end is None:
        return None
    at, orientation = 12, 1
    canvas: tuple[int, int] | None = None
    size: tuple[int, int] | None = None
    while at + 8 <= end:
        kind, length = struct.unpack_from("<4sI", data, at)
        start, after = at + 8, at + 8 + length
        if after > end:
            return None
        if kind == b"VP8X" and at == 12:
            canvas = (
                1 + int.from_bytes(data[start + 4 : start + 7], "little"),
                1 + int.from_bytes(data[start + 7 : start + 10], "little"),
            )
        elif kind == b"VP8 " and size is None:
            if data[start] & 1 or data[start + 3 : start + 6] != b"\x9d\x01\x2a":
                return None
            width, height = struct.unpack_from("<HH", data, start + 6)
            size = width & 0x3FFF, height & 0x3FFF
        elif kind == b"VP8L" and size is None:
            if data[start] != 0x2F:
                return None
            (sides,) = struct.unpack_from("<I", data, start + 1)
            size = 1 + (sides & 0x3FFF), 1 + (sides >> 14 & 0x3FFF)
        elif canvas is None or kind in (b"ANIM", b"ANMF", b"VP8X", b"VP8 ", b"VP8L"):
            return None
        elif kind == b"EXIF":
            orientation = exif_orientation(data[start:after])
        at = after + length % 2
    if size is None or 0 in size or canvas not in (None, size):
        return None
    return Look("WEBP", *size, orientation, 12, end)
