"""The EXIF orientation of an image: in which of eight ways its stored pixels are turned and mirrored."""

import struct
from typing import NamedTuple

_TAG = 0x0112
_MAGIC = 42
_SHORT, _LONG = 3, 4
_KINDS = range(1, 13)  # of values


class OrientationTag(NamedTuple):
    """The orientation that an EXIF block names, 1 to 8, and whether it is written as the standard says."""

    orientation: int
    is_standard: bool


def exif_orientation(exif: bytes) -> int:
    """The orientation in an EXIF block, from 1 (upright) to 8; 1 if the block is broken or has none."""
    return orientation_tag(exif).orientation


def orientation_tag(exif: bytes) -> OrientationTag:
    """The same, and whether every decoder must read it so: one SHORT, or no such tag, in a block that is whole."""
    is_standard = not exif.startswith(b"Exif\0\0Exif\0\0")
    while exif.startswith(b"Exif\0\0"):
        exif = exif[6:]
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    try:
        if order is None:
            return OrientationTag(1, False)
        magic, start = struct.unpack_from(order + "HI", exif, 2)
        (count,) = struct.unpack_from(order + "H", exif, start)
        end = start + 2 + 12 * count
        is_standard &= magic == _MAGIC and end <= len(exif)
        for at in range(start + 2, end, 12):
            tag, kind, values = struct.unpack_from(order + "HHI", exif, at)
            is_standard &= kind in _KINDS
            if tag == _TAG:
                if values != 1 or kind not in (_SHORT, _LONG):
                    return OrientationTag(1, False)
                is_standard &= all(exif[other : other + 2] != exif[at : at + 2] for other in range(at + 12, end, 12))
                (value,) = struct.unpack_from(order + ("H" if kind == _SHORT else "I"), exif, at + 8)
                return OrientationTag(value if 1 <= value <= 8 else 1, is_standard and kind == _SHORT)
    except struct.error:
        return OrientationTag(1, False)
    return OrientationTag(1, is_standard)
