"""Where a picture ends in its file, and what follows it.

Each format but TIFF has an end. What follows it is padding, or something that the file announces (the other pictures of
a camera, the video of a phone), or it does not belong there, such as a second file.
"""

import re
import struct
from collections.abc import Callable, Iterator

_CONTENT = re.compile(rb"\xff\xd8\xff|[^\0\xff\t\n\r ]")
"""Anything but padding, with which cameras and copies fill up blocks."""

_JPEG_MARKER = re.compile(rb"\xff[^\0\xd0-\xd7\xff]")  # not an escaped 0xFF, a restart mark or a fill byte
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
_PNG_KIND = re.compile(rb"[A-Za-z]{4}")
_BOX_KIND = re.compile(rb"[ -~]{4}")
_BLANK = rb"(?:\s|#[^\n\r]*[\n\r])+"
_PNM = re.compile(rb"P(4)%b(\d+)%b(\d+)\s|P([56])%b(\d+)%b(\d+)%b(\d+)\s" % ((_BLANK,) * 5))
_VIDEO = re.compile(rb"MotionPhoto|MicroVideo")  # names in the XMP block of a photo with a video
_KINDS = {b"\xff\xd8\xff": "a JPEG", b"\x89PNG": "a PNG", b"RIFF": "a WebP", b"GIF8": "a GIF", b"II*": "a TIFF"}


def end_of(format: str, data: bytes) -> int | None:
    """The byte after the first picture of a file of this format; None if the file ends before."""
    find = _ENDS.get(format)
    try:
        return find(data) if find else len(data)  # of formats without a known end, all of the file
    except (IndexError, struct.error):
        return None


def what_follows(format: str, data: bytes, end: int) -> str | None:
    """What follows the picture that ends at this byte, in words; None for padding, and for what the file announces."""
    found = _CONTENT.search(data, end)
    if found and format == "JPEG":
        announced = _announced_end(data, end)
        if announced > len(data):
            return f"the beginning of a picture or video of which {announced - len(data):,} bytes are missing"
        found = _CONTENT.search(data, announced)
    if found is None:
        return None
    start = found.start()
    size = f"{len(data) - start:,} bytes"
    return f"{next((name for mark, name in _KINDS.items() if data.startswith(mark, start)), size)} at byte {start:,}"


def jpeg_end(data: bytes, at: int = 2) -> int | None:
    """The byte after the end mark of a JPEG, read from this marker on."""
    try:
        while found := _JPEG_MARKER.search(data, at):
            at = found.end()
            if data[at - 1] == 0xD9:
                return at
            if data[at - 1] == 0xD8:  # another picture starts before this one has ended
                return None
            at += data[at] << 8 | data[at + 1]
    except IndexError:
        pass
    return None


def png_end(data: bytes) -> int | None:
    """The byte after the IEND chunk of a PNG."""
    for kind, start, end in png_chunks(data):
        if kind == b"IEND":
            return end if data.startswith(_PNG_END, start) else None
        if not _PNG_KIND.fullmatch(kind):
            return None
    return None


def png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The chunks of a PNG: kind, start, end; the last one may be cut."""
    end = 8
    while end + 12 <= len(data):
        start = end
        length, kind = struct.unpack_from(">I4s", data, start)
        end = start + 12 + length
        yield kind, start, end


def webp_end(data: bytes) -> int | None:
    """The byte after the RIFF chunk of a WebP."""
    end = 8 + int.from_bytes(data[4:8], "little")
    return end if end <= len(data) else None


def jpeg2000_end(data: bytes) -> int | None:
    """The byte after the last box of a JP2 file, or after the end mark of a codestream without boxes."""
    if data.startswith(b"\xff\x4f"):
        return _codestream_end(data, 0)
    last = None
    for kind, start, end in _boxes(data, 0):
        if last and (kind == b"jP  " or end > len(data) or not _BOX_KIND.fullmatch(kind)):
            break  # another file, or no box
        if kind == b"jp2c":
            last = _codestream_end(data, start)
            if last is None or last > end:
                return None
        if last and (kind != b"jp2c" or end < len(data)):  # the last box may be as long as the file
            last = end
    return last


def bmp_end(data: bytes) -> int | None:
    """The byte after the pixels of a BMP, or the end that its header tells if this is later."""
    told: int
    pixels: int
    told, pixels, header = struct.unpack_from("<I4xII", data, 2)
    if header == 12:
        width, height, bits = struct.unpack_from("<HH2xH", data, 18)
        packing = size = 0
    else:
        width, height, bits, packing, size = struct.unpack_from("<ii2xHII", data, 18)
    if packing in (0, 3, 6):  # not compressed
        size = (abs(width) * bits + 31) // 32 * 4 * abs(height)
    if size == 0:
        return len(data)
    if pixels + size > len(data):
        return None
    return max(pixels + size, told) if told <= len(data) else pixels + size


def pnm_end(data: bytes) -> int | None:
    """The byte after the last picture of a binary PNM file, which may have several; the file's length for text."""
    at = 0
    while found := _PNM.match(data, at):
        kind, width, height, *most = (int(part) for part in found.groups() if part)
        row = width * (3 if kind == 6 else 1) * (2 if most[0] > 255 else 1) if most else (width + 7) // 8
        at = found.end() + row * height
        if at > len(data):
            return None
    return at or len(data)


_ENDS: dict[str, Callable[[bytes], int | None]] = {
    **{"JPEG": jpeg_end, "PNG": png_end, "WEBP": webp_end, "JPEG2000": jpeg2000_end, "BMP": bmp_end, "PNM": pnm_end},
}


def _announced_end(data: bytes, end: int) -> int:
    """The byte after the pictures, the video and the notes that a JPEG of this end announces."""
    try:
        end = max(end, _album_end(data, end))
        if _has_samsung_notes(data, end):
            return len(data)
        return max((after for _, _, after in _boxes(data, end)), default=end) if _VIDEO.search(data, 0, end) else end
    except struct.error:
        return end


def _album_end(data: bytes, end: int) -> int:
    """The byte after the last picture of a multi-picture file (CIPA DC-007), as its index tells; 0 without one."""
    at = data.find(b"\xff\xe2", 0, end)
    while at >= 0 and not data.startswith(b"MPF\0", at + 4):
        at = data.find(b"\xff\xe2", at + 2, end)
    if at < 0:
        return 0
    base = at + 8
    order = "<" if data.startswith(b"II", base) else ">"
    (start,) = struct.unpack_from(order + "I", data, base + 4)
    (count,) = struct.unpack_from(order + "H", data, base + start)
    last = 0
    for entry in range(base + start + 2, base + start + 2 + 12 * count, 12):
        tag, _, size, pictures = struct.unpack_from(order + "HHII", data, entry)
        if tag == 0xB002:
            for picture in range(base + pictures, base + pictures + size, 16):
                length, offset = struct.unpack_from(order + "4xII", data, picture)
                last = max(last, base + offset + length if offset else 0)
    return last


def _has_samsung_notes(data: bytes, at: int) -> bool:
    """Whether the rest of a file is a trailer of Samsung's, whose directory stands at its end."""
    tail = data.rstrip(b"\0")
    (length, mark) = struct.unpack_from("<I4s", tail, len(tail) - 8)
    directory = len(tail) - 8 - length
    if mark != b"SEFT" or directory < at or not data.startswith(b"SEFH", directory):
        return False
    (count,) = struct.unpack_from("<I", data, directory + 8)
    back = [struct.unpack_from("<4xI", data, directory + 12 + 12 * n)[0] for n in range(count)]
    return not _CONTENT.search(data, at, max(at, directory - max(back, default=0)))


def _boxes(data: bytes, at: int) -> Iterator[tuple[bytes, int, int]]:
    """The boxes of an ISO base media file: kind, start of the contents, end; the last box may be cut."""
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, start)
            start += 8
        end = at + size if size else len(data)
        if end < start:
            return
        yield kind, start, end
        at = end


def _codestream_end(data: bytes, at: int) -> int | None:
    """The byte after the end mark of a JPEG 2000 codestream, whose tile parts tell their lengths."""
    at += 2
    while True:
        marker, length = struct.unpack_from(">HH", data, at) if data[at : at + 2] != b"\xff\xd9" else (0xFFD9, 0)
        if marker == 0xFFD9:
            return at + 2
        if marker == 0xFF90:  # a tile part
            (part,) = struct.unpack_from(">I", data, at + 6)
            if part == 0:  # up to the end mark
                end = data.rfind(b"\xff\xd9", at)
                return end + 2 if end >= 0 else None
            at += part
        elif marker >= 0xFF00 and length >= 2:
            at += 2 + length
        else:
            return None
