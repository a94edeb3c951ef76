"""The names of formats that are not read, from the first bytes of a file."""

import re

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
)
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
