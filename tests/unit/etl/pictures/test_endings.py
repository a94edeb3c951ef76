"""Where pictures end, and what may follow them."""

import io
import struct

import pytest
from PIL import Image

from etl.pictures.images import RejectedError, read_header
from etl.pictures.plan import Check
from tests.support.encoding import encoded
from tests.support.pictures import texture

CHECKS: tuple[Check, ...] = ("header", "full")


def _coded(format: str, **options: object) -> bytes:
    with Image.open(io.BytesIO(texture(3, width=120, height=90))) as image:
        return encoded(image, format, **options)


JPEG = _coded("JPEG", quality=90)
OTHERS = {
    "progressive JPEG": _coded("JPEG", progressive=True),
    "PNG": _coded("PNG"),
    "WebP": _coded("WEBP"),
    "JPEG 2000": _coded("JPEG2000"),
    "JPEG 2000 codestream": _coded("JPEG2000", no_jp2=True),
    "BMP": _coded("BMP"),
    "PNM": _coded("PPM"),
}
PICTURES = {"JPEG": JPEG, **OTHERS}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", PICTURES)
def test_padding_may_follow_a_picture_and_another_file_may_not(name: str, check: Check) -> None:
    data = PICTURES[name]
    for padding in (b"", b"\0" * 4096, b"\xff" * 512, b"\r\n"):
        assert read_header(data + padding, check=check).width == 120
        for other in (JPEG, PICTURES["PNG"], b"<html>"):
            with pytest.raises(RejectedError, match=r"^more than one picture: after the \w+ comes .* at byte"):
                read_header(data + padding + other, check=check)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_that_lacks_its_last_bytes_is_truncated(name: str, check: Check) -> None:
    data = PICTURES[name]
    for missing in (1, 2, 4, 12, 16, len(data) // 2):
        # Zeros in place of pixels are pixels too in formats that code each value by itself or have no end mark.
        for tail in (b"", bytes(missing)) if name not in ("BMP", "PNM", "WebP") else (b"",):
            with pytest.raises(RejectedError, match=r"^(truncated|damaged): "):
                read_header(data[:-missing] + tail, check=check)


def _zeros(data: bytes, start: int, size: int) -> bytes:
    return data[:start] + bytes(size) + data[start + size :]


@pytest.mark.parametrize(
    "options",
    [{}, {"progressive": True}, {"optimize": True}, {"restart_marker_rows": 1}, {"subsampling": 0, "quality": 95}],
    ids=str,
)
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpegs_with_a_hole_of_zeros_or_pixels_missing_are_damaged(mode: str, options: dict[str, object]) -> None:
    with Image.open(io.BytesIO(texture(3, width=320, height=240))) as image:
        data = encoded(image.convert(mode), "JPEG", **options)
    middle = len(data) // 2
    assert read_header(data, check="full") == read_header(data)
    for check in CHECKS:
        for damaged in (_zeros(data, middle, len(data) - middle - 2), _zeros(data, middle, 4096)):
            with pytest.raises(RejectedError, match=r"^(truncated|damaged): "):
                read_header(damaged, check=check)
    with pytest.raises(RejectedError, match=r"^(truncated|damaged): "):
        read_header(data[:middle] + b"\xff\xd9", check="full")


def test_zeros_in_a_whole_picture_are_no_damage() -> None:
    data = encoded(Image.new("RGB", (1500, 1000), (128, 128, 128)), "JPEG", optimize=True)
    assert bytes(64) in data
    for check in CHECKS:
        assert read_header(data, check=check).width == 1500


def test_jpegs_of_a_rare_subsampling_and_of_all_colour_spaces_are_whole() -> None:
    # All coded bits are 0, so it can be read with other sampling factors.
    plain = encoded(Image.new("RGB", (16, 16), (128, 128, 128)), "JPEG", optimize=True, subsampling=0)
    frame = plain.index(b"\xff\xc0") + 11
    for factors in ((0x31, 0x11, 0x11), (0x22, 0x11, 0x12), (0x14, 0x11, 0x11)):
        odd = bytearray(plain)
        odd[frame : frame + 9 : 3] = bytes(factors)
        assert read_header(bytes(odd), check="full").width == 16
    cmyk = encoded(Image.new("CMYK", (64, 48), (10, 60, 110, 160)), "JPEG")
    adobe = cmyk.index(b"Adobe")
    without = cmyk[: adobe - 4] + cmyk[adobe + 12 :]
    for data in (cmyk, cmyk[: adobe + 11] + b"\2" + cmyk[adobe + 12 :], without, _coded("JPEG", keep_rgb=True)):
        assert read_header(data, check="full").format == "JPEG"


def _album() -> tuple[bytes, int]:
    first, second = (Image.new("RGB", (80, 80), colour) for colour in ("green", "red"))
    data = encoded(first, "MPO", save_all=True, append_images=[second])
    return data, data.index(b"\xff\xd9") + 2


@pytest.mark.parametrize("check", CHECKS)
def test_a_jpeg_may_announce_what_follows(check: Check) -> None:
    album, first = _album()
    video = struct.pack(">I4s8s", 16, b"ftyp", b"mp42\0\0\0\0") + struct.pack(">I4s", 400, b"mdat") + b"video" * 80
    video = video[:416]
    filmed = JPEG[:2] + b'\xff\xe1\0\x1ehttp://x MotionPhoto="1" xmp' + JPEG[2:]
    note = b"\0\0\x30\x0a" + b"a note of Samsung"
    directory = b"SEFH" + struct.pack("<IIHHII", 106, 1, 0, 0x0A30, len(note), len(note))
    notes = note + directory + struct.pack("<I4s", len(directory), b"SEFT")
    for data in (album, album + bytes(99), album[:first], filmed, filmed + video, JPEG + notes, album + notes):
        assert read_header(data, check=check).format == "JPEG"
    for data in (
        *(album + JPEG, album[:-5], filmed + video + JPEG, filmed + video[:-5], JPEG + video),
        *(filmed + JPEG, JPEG + JPEG + notes, JPEG + notes[:-5], JPEG + notes + JPEG),
    ):
        with pytest.raises(RejectedError, match=r"^more than one picture: after the JPEG comes "):
            read_header(data, check=check)


def test_binary_pnm_files_may_have_several_pictures() -> None:
    data = PICTURES["PNM"]
    assert read_header(data + b"P5 # grey\n2 1 65535\n1234" + data).format == "PNM"
    for rest in (b"P5 2 1 65535\n123", b"P9"):
        with pytest.raises(RejectedError):
            read_header(data + rest)


@pytest.mark.parametrize(("check", "finds"), [("header", False), ("full", True)])
def test_a_full_check_compares_the_checksums_of_png(check: Check, finds: bool) -> None:
    data = PICTURES["PNG"]
    for at in (data.index(b"IDAT") + 300, len(data) - 17):  # coded pixels, the checksum of the last of them
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        if finds:
            with pytest.raises(RejectedError, match=r"^damaged: the checksum of the part IDAT at byte"):
                read_header(damaged, check=check)
        else:
            read_header(damaged, check=check)
