"""Pictures from encoded bytes, the error instead of one, and which files DALI decodes to the same pixels."""

import re
import struct
from collections.abc import Iterator
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
_PLAIN_PNM = re.compile(rb"P[56]\s\d+\s\d+\s255\s")


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


def is_read_by_dali(image: bytes) -> bool:
    """Whether DALI decodes a file as `formats.pictures.decoding` says, as far as its first bytes tell."""
    # It does for complete JPEG of 8 bits, gray or in colour as YCbCr; for PNG of 8 and 16 bits without animation; for
    # WebP without EXIF and animation; and for plain PNM. Its decoders differ for rare EXIF blocks and other formats.
    # Those for GPUs also take RGB in a JPEG for YCbCr, give other values of PNG with 2 and 4 bits, and accept truncated
    # JPEG.
    try:
        if image[:2] == b"\xff\xd8":
            return _is_usual_jpeg(image)
        if image[:8] == b"\x89PNG\r\n\x1a\n":
            return _is_usual_png(image)
        if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
            return _UNUSUAL_IN_WEBP.isdisjoint(_chunks_of_webp(image))
        return _PLAIN_PNM.match(image) is not None
    except (IndexError, struct.error):  # truncated
        return False


def _is_usual_jpeg(image: bytes) -> bool:
    at, is_rgb, exif, frames = 2, False, [], []  # RGB, if it has three channels
    while (marker := image[at + 1]) != _SCAN:
        if image[at] != 0xFF:
            return False
        (length,) = struct.unpack_from(">H", image, at + 2)
        content = image[at + 4 : at + 19]  # not all of a profile or thumbnail: every image passes here
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAMES:
            bits, components = content[0], content[5]
            is_rgb |= content[6:15:3] == b"RGB"
            frames.append(components if marker in _USUAL_FRAMES and bits == 8 else 0)
        elif marker == 0xEE and content[:5] == b"Adobe":
            is_rgb |= content[11] == 0
        elif marker == 0xE1 and content[:6] == b"Exif\0\0":
            exif.append(image[at + 4 : at + 2 + length])
        at += 2 + length
    is_whole = image[at] == 0xFF and image.rfind(_END, at) > 0
    # DALI mixes two EXIF blocks: it takes the size from one and the turn from the other, and can end the process.
    is_upright = len(exif) < 2 and all(map(_is_usual, exif))
    return is_whole and is_upright and (frames == [1] or (frames == [3] and not is_rgb))


def _is_usual_png(image: bytes) -> bool:
    at, exif, kind = 8, [], b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", image, at)
        if (
            kind == b"acTL"
        ):  # of an animation, DALI gives a frame, and Pillow the picture, which need not be one of them
            return False
        if kind == b"eXIf":
            exif.append(image[at + 8 : at + 8 + length])
        at += 12 + length
    is_upright = len(exif) < 2 and all(map(_is_usual, exif)) and not any(one[:4] == b"Exif" for one in exif)
    return is_upright and image[24] in (8, 16)


def _chunks_of_webp(image: bytes) -> Iterator[bytes]:
    at = 12
    while at < len(image):
        kind, length = struct.unpack_from("<4sI", image, at)
        yield kind
        at += 8 + length + length % 2


def _is_usual(exif: bytes) -> bool:
    orientation = require("formats.pictures.orientation", extra="train", purpose="decoding images")
    return bool(orientation.orientation_tag(exif).is_standard)
