"""The EXIF orientation of an image: in which of eight ways its stored pixels are turned and mirrored."""

import struct
from typing import NamedTuple

_TAG = 0x0112
_SHORT, _LONG = 3, 4


class OrientationTag(NamedTuple):
    """The orientation that an EXIF block names, 1 to 8, and whether it is written as the standard says."""

    orientation: int
    is_standard: bool


def exif_orientation(exif: bytes) -> int:
    """The orientation in an EXIF block, from 1 (upright) to 8; 1 if the block is broken or has none."""
    return orientation_tag(exif).orientation


def orientation_tag(exif: bytes) -> OrientationTag:
    """The same, and whether every decoder must read it so: a SHORT, or no such tag in a block that can be read."""
    is_standard = not exif.startswith(b"Exif\0\0Exif\0\0")
    while exif.startswith(b"Exif\0\0"):
        exif = exif[6:]
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    try:
        if order is None:
            return OrientationTag(1, False)
        (start,) = struct.unpack_from(order + "I", exif, 4)
        (count,) = struct.unpack_from(order + "H", exif, start)
        for at in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind, values = struct.unpack_from(order + "HHI", exif, at)
            if tag == _TAG:
                if values != 1 or kind not in (_SHORT, _LONG):
                    return OrientationTag(1, False)
                (value,) = struct.unpack_from(order + ("H" if kind == _SHORT else "I"), exif, at + 8)
                return OrientationTag(value if 1 <= value <= 8 else 1, is_standard and kind == _SHORT)
    except struct.error:
        return OrientationTag(1, False)
    return OrientationTag(1, is_standard)
