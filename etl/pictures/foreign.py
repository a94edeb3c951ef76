"""The names of formats that are not read, from the first bytes of a file."""

import re
import struct

_HEAD = 65_536
_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"), "HEIC"),
    b"jxl ": "JPEG XL",
    b"crx ": "CR3",
    b"qt  ": "QuickTime",
}
_MARKS = (
    (re.compile(rb"\xff\x0a|\0\0\0\x0cJXL \r\n\x87\n"), "JPEG XL"),
    (re.compile(rb"\xff\xd8\xff\xf7"), "JPEG-LS"),
    (re.compile(rb"II\xbc\x01"), "JPEG XR"),
    (re.compile(rb"v/1\x01"), "OpenEXR"),
    (re.compile(rb".{128}DICM", re.DOTALL), "DICOM"),
    (re.compile(rb"%PDF-"), "PDF"),
    (re.compile(rb"P7\s"), "PAM"),
    (re.compile(rb"FUJIFILMCCD-RAW"), "RAF"),
    (re.compile(rb"IIU\0"), "RW2"),
    (re.compile(rb"IIR[OS]|MMOR"), "ORF"),
    (re.compile(rb"II\x1a\0\0\0HEAPCCDR"), "CRW"),
    (re.compile(rb"FOVb"), "X3F"),
)
_MAKERS = {"NIKON": "NEF", "SONY": "ARW", "PENTAX": "PEF", "SAMSUNG": "SRW"}
"""The raw formats of cameras that are TIFF files, by the makers that these name."""
_KIND, _PHOTOMETRIC, _MAKE, _PARTS, _DNG = 254, 262, 271, 330, 50706  # tags of TIFF
_OF_A_SENSOR = (32803, 34892)
_THUMBNAIL = 1
_SHORT = 3
# A text of XML may start with a mark of its byte order, its declaration, remarks and a document type. Groups are atomic
# so that a file of many remarks is searched once.
_SVG = re.compile(
    rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?"
    rb"(?>\s+|(?><\?.*?\?>)|(?><!--.*?-->)|(?><!DOCTYPE(?>[^>\[]+)(?>\[.*?\]\s*)?>))*<(?:[\w-]+:)?svg[\s/>]",
    re.DOTALL | re.IGNORECASE,
)


def name_of(data: bytes) -> str | None:
    """The name of a format that we know but do not read, such as ``HEIC``; None for any other file."""
    if data[4:8] == b"ftyp":
        brands = [data[8:12], *(data[at : at + 4] for at in range(16, min(int.from_bytes(data[:4]), _HEAD), 4))]
        named = next((_BRANDS[brand] for brand in brands if brand in _BRANDS), None)
        return named or ("HEIF" if brands[0] in (b"mif1", b"msf1") else "MP4")
    for mark, name in _MARKS:
        if mark.match(data):
            return name
    text = data[:_HEAD].replace(b"\0", b"")  # each letter has a zero in UTF-16
    return "SVG" if _SVG.match(text) else None


def raw_name_of(data: bytes) -> str | None:
    """The name of a camera's raw format that is a TIFF file, such as ``DNG``; None for any other file."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None:
        return None
    if data[4:11] == b"\x10\0\0\0CR\2":
        return "CR2"
    try:
        tags, has_more = _first_directory(data, order)
    except struct.error:
        return None
    if _DNG in tags:
        return "DNG"
    # The first picture of such a file is often a thumbnail, which a decoder of TIFF takes for the photo. A TIFF of
    # another program that says this of its first picture, and has others, is named too.
    is_of_sensor = tags.get(_PHOTOMETRIC) in _OF_A_SENSOR
    if not is_of_sensor and not (tags.get(_KIND, 0) & _THUMBNAIL and (has_more or _PARTS in tags)):
        return None
    make = data[tags.get(_MAKE, len(data)) :][:7].upper().decode("latin-1")
    named = next((_MAKERS[maker] for maker in _MAKERS if make.startswith(maker)), None)
    return named or ("camera raw" if is_of_sensor else "TIFF whose first picture is a thumbnail")


def _first_directory(data: bytes, order: str) -> tuple[dict[int, int], bool]:
    """The tags of the first picture of a TIFF, with their values or places, and whether others follow."""
    (start,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, start)
    tags = {}
    for at in range(start + 2, start + 2 + 12 * count, 12):
        tag, kind = struct.unpack_from(f"{order}HH", data, at)
        tags[tag] = struct.unpack_from(f"{order}{'H' if kind == _SHORT else 'I'}", data, at + 8)[0]
    return tags, struct.unpack_from(f"{order}I", data, start + 2 + 12 * count) != (0,)
