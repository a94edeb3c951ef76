"""Formats that are named, but not read."""

from typing import Any

import numpy as np
import pytest
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from etl.pictures.foreign import raw_name_of
from etl.pictures.images import Header, RejectedError, read_header
from tests.support.encoding import encoded
from tests.support.picture_kinds import tiff


def _boxed(brand: bytes, *others: bytes) -> bytes:
    body = brand + b"\0\0\0\0" + b"".join(others)
    return (len(body) + 8).to_bytes(4) + b"ftyp" + body + bytes(40)


def _raw(tags: dict[int, Any]) -> bytes:
    """A TIFF with one small picture and these tags."""
    directory = ImageFileDirectory_v2()
    for tag, value in tags.items():
        directory[tag] = value
    return encoded(np.zeros((4, 4), np.uint8), "TIFF", tiffinfo=directory)


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
        (_raw({50706: b"\1\4\0\0"}), "DNG"),
        (b"II*\0\x10\0\0\0CR\2\0" + bytes(99), "CR2"),
        (_raw({254: 1, 271: "NIKON CORPORATION", 330: 8}), "NEF"),
        (_raw({254: 1, 271: "SONY", 330: 8}), "ARW"),
        (_raw({254: 1, 271: "Leaf", 330: 8}), "TIFF whose first picture is a thumbnail"),
        (tiff(np.zeros((4, 4), np.uint16), bits=16, photometric=32803), "camera raw"),
        (b"FUJIFILMCCD-RAW 0201" + bytes(99), "RAF"),
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


def test_a_tiff_of_a_camera_that_is_no_raw_file_is_read() -> None:
    alone = _raw({254: 1, 271: "SONY"})  # a thumbnail, but there is nothing else
    for data in (_raw({271: "NIKON CORPORATION"}), alone, tiff(np.full((4, 4), ord("C"), np.uint8))):
        assert read_header(data) == Header("TIFF", 4, 4)
        assert {raw_name_of(data[:end]) for end in range(len(data))} == {None}
