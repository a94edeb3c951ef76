"""Pictures from encoded bytes, the error instead of one, and which files DALI decodes to the same pixels."""

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from formats.errors import PictureError
from formats.pictures import Orientation
from loader.errors import require
from loader.options import check_choice

_USUAL_FRAMES = (0xC0, 0xC1, 0xC2)  # of a JPEG: baseline, extended, progressive
_NO_FRAMES = (0xC4, 0xC8, 0xCC)
_SCAN = 0xDA
_END = b"\xff\xd9"  # of a JPEG; its pixels never contain these bytes
_UNUSUAL_IN_WEBP = {b"ANIM", b"ANMF", b"EXIF"}
_PLAIN_PNM = re.compile(rb"P[56]\s(\d{1,9})\s(\d{1,9})\s255\s")


def decoded_picture(image: bytes, orientation: Orientation = "upright", *, mode: str = "RGB") -> Any:
    """An image of PIL as `formats.pictures.decoding` says, or the error that says why the bytes are not a picture."""
    decoding = require("formats.pictures.decoding", extra="train", purpose="decoding images")
    try:
        return decoding.decode(image, mode=mode, orientation=orientation)
    except PictureError as error:
        return error


def check_orientation(value: str) -> None:
    """Raise `OptionError` for a word that is no orientation."""
    check_choice("orientation", value, get_args(Orientation))


def size_in_dali(image: bytes) -> tuple[int, int] | None:
    """The height and width of a file's picture, upright, if DALI decodes it as `formats.pictures.decoding` says, as far
    as its first bytes tell; otherwise None.
    """
    # It does for complete JPEG of 8 bits, gray or in colour as YCbCr; for PNG of 8 and 16 bits without animation; for
    # WebP without EXIF and animation; and for plain PNM. Its decoders differ for rare EXIF blocks and other formats.
    # Those for GPUs also take RGB in a JPEG for YCbCr, give other values of PNG with 2 and 4 bits, and accept truncated
    # JPEG.
    try:
        if image[:2] == b"\xff\xd8":
            return _size_of_usual_jpeg(image)
        if image[:8] == b"\x89PNG\r\n\x1a\n":
            return _size_of_usual_png(image)
        if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
            return _size_of_webp(image) if _UNUSUAL_IN_WEBP.isdisjoint(_chunks_of_webp(image)) else None
        plain = _PLAIN_PNM.match(image)
        return plain and (int(plain[2]), int(plain[1]))
    except (IndexError, struct.error):  # truncated
        return None


def _size_of_usual_jpeg(image: bytes) -> tuple[int, int] | None:
    at, height, width, is_rgb, exif, frames = 2, 0, 0, False, [], []  # RGB, if it has three channels
    while (marker := image[at + 1]) != _SCAN:
        if image[at] != 0xFF:
            return None
        (length,) = struct.unpack_from(">H", image, at + 2)
        content = image[at + 4 : at + 19]  # not all of a profile or thumbnail: every image passes here
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAMES:
            bits, height, width, components = struct.unpack_from(">BHHB", content)
            is_rgb |= content[6:15:3] == b"RGB"
            frames.append(components if marker in _USUAL_FRAMES and bits == 8 else 0)
        elif marker == 0xEE and content[:5] == b"Adobe":
            is_rgb |= content[11] == 0
        elif marker == 0xE1 and content[:6] == b"Exif\0\0":
            exif.append(image[at + 4 : at + 2 + length])
        at += 2 + length
    is_whole = image[at] == 0xFF and image.rfind(_END, at) > 0
    is_usual = is_whole and (frames == [1] or (frames == [3] and not is_rgb))
    return _upright(height, width, exif) if is_usual else None


def _size_of_usual_png(image: bytes) -> tuple[int, int] | None:
    at, exif, kind = 8, [], b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", image, at)
        if (
            kind == b"acTL"
        ):  # of an animation, DALI gives a frame, and Pillow the picture, which need not be one of them
            return None
        if kind == b"eXIf":
            exif.append(image[at + 8 : at + 8 + length])
            if image[at + 8 + length : at + 12 + length] != zlib.crc32(image[at + 4 : at + 8 + length]).to_bytes(4):
                return None  # DALI ends the process
        at += 12 + length
    if image[24] not in (8, 16) or any(one[:4] == b"Exif" for one in exif):
        return None
    width, height = struct.unpack_from(">II", image, 16)
    return _upright(height, width, exif)


def _chunks_of_webp(image: bytes) -> Iterator[bytes]:
    at = 12
    while at < len(image):
        kind, length = struct.unpack_from("<4sI", image, at)
        yield kind
        at += 8 + length + length % 2


def _size_of_webp(image: bytes) -> tuple[int, int]:
    match image[12:16]:
        case b"VP8X":
            width, height = (int.from_bytes(image[at : at + 3], "little") + 1 for at in (24, 27))
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", image, 21)
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", image, 26))
    return height, width


def _upright(height: int, width: int, exif: Sequence[bytes]) -> tuple[int, int] | None:
    """The sides as they are after a turn by EXIF, or None if decoders differ in how they turn."""
    if not exif:
        return height, width
    orientation = require("formats.pictures.orientation", extra="train", purpose="decoding images")
    tag = orientation.orientation_tag(exif[0])
    # DALI mixes two EXIF blocks: it takes the size from one and the turn from the other, and can end the process.
    if len(exif) > 1 or not tag.is_standard:
        return None
    return (width, height) if tag.orientation >= 5 else (height, width)
