"""Formats that are named, but not read."""

import pytest

from etl.pictures.images import RejectedError, read_header


def _boxed(brand: bytes, *others: bytes) -> bytes:
    body = brand + b"\0\0\0\0" + b"".join(others)
    return (len(body) + 8).to_bytes(4) + b"ftyp" + body + bytes(40)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (_boxed(b"heic", b"mif1", b"heic"), "HEIC"),
        (_boxed(b"mif1", b"mif1", b"heix"), "HEIC"),
        (_boxed(b"msf1", b"msf1", b"hevc"), "HEIC"),
        (_boxed(b"mif1", b"miaf"), "HEIF"),
        (_boxed(b"avif", b"mif1"), "AVIF"),
        (_boxed(b"mif1", b"avif"), "AVIF"),
        (_boxed(b"isom", b"mp42"), "MP4"),
        (b"\xff\x0a\xfa\x7f" + bytes(9), "JPEG XL"),
        (b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(9), "JPEG XL"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- a <svg> --><!DOCTYPE svg [<!ENTITY a 'b'>]>\n<svg:svg>", "SVG"),
        ("\ufeff<?xml version='1.0' encoding='utf-16'?>\r\n<svg>".encode("utf-16-le"), "SVG"),
        (b"%PDF-1.7\n", "PDF"),
        (bytes(128) + b"DICM\2\0", "DICOM"),
    ],
)
def test_formats_that_are_not_read_are_named(data: bytes, name: str) -> None:
    for check in ("header", "full"):
        with pytest.raises(RejectedError, match=f"^unsupported format {name}$"):
            read_header(data, check=check)


def test_other_texts_are_no_images_however_many_remarks_they_have() -> None:
    for data in (b"<html><svg/></html>", b"<!-- -->" * 5000 + b"<a>", b"<!DOCTYPE [" * 5000, b"<?" * 30_000):
        with pytest.raises(RejectedError, match=r"^not an image$"):
            read_header(data)
