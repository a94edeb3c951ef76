"""What counts as a picture, and the reasons why other files do not."""

import contextlib
import io
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from etl.images import RejectedError, read_header


def _picture(kind: str, *, size: tuple[int, int] = (40, 30), mode: str = "RGB", **options: object) -> bytes:
    noise = random.Random(7).randbytes(size[0] * size[1] * len(mode))
    buffer = io.BytesIO()
    Image.frombytes(mode, size, noise).save(buffer, kind, **options)
    return buffer.getvalue()


PICTURES = {
    "JPEG": _picture("JPEG"),
    "PNG": _picture("PNG"),
    "TIFF": _picture("TIFF"),
    "BMP": _picture("BMP"),
    "WEBP": _picture("WEBP", lossless=True),
    "JPEG2000": _picture("JPEG2000"),
    "PNM": _picture("PPM"),
}


def _reason(data: bytes) -> str:
    with pytest.raises(RejectedError) as caught:
        read_header(data)
    return str(caught.value)


@pytest.mark.parametrize("name", PICTURES)
def test_whole_pictures_are_taken_with_format_and_size(name: str) -> None:
    header = read_header(PICTURES[name])
    assert (header.format, header.width, header.height) == (name, 40, 30)


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_cut_off_pictures_are_truncated(name: str, share: float) -> None:
    data = PICTURES[name]
    reason = _reason(data[: int(share * len(data))])
    assert reason.startswith(("truncated: ", "damaged: ")), reason


@pytest.mark.parametrize("name", PICTURES)
def test_what_follows_a_picture_does_no_harm(name: str) -> None:
    assert read_header(PICTURES[name] + b"\0" * 500).format == name


def test_a_jpeg_of_two_pictures_is_a_jpeg() -> None:
    buffer = io.BytesIO()
    first, second = Image.new("RGB", (8, 8)), Image.new("RGB", (8, 8), "red")
    first.save(buffer, "MPO", save_all=True, append_images=[second])
    assert read_header(buffer.getvalue()).format == "JPEG"


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK"])
def test_other_colours_are_taken(mode: str) -> None:
    kind = "PNG" if mode == "RGBA" else "JPEG"
    assert read_header(_picture(kind, mode=mode)).format == kind


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"hello\n", "not an image"),
        (b"\0" * 4096, "not an image"),
        (b"\xff\xd8\xff\xe0", "damaged: it begins as an image, but its header cannot be read"),
        (_picture("GIF", mode="L"), "unsupported format GIF"),
        (_picture("ICO"), "unsupported format ICO"),
    ],
)
def test_reasons_name_what_is_wrong(data: bytes, reason: str) -> None:
    assert _reason(data) == reason


def test_forty_megapixels_are_a_photo_and_a_bomb_is_not() -> None:
    buffer = io.BytesIO()
    Image.new("L", (8000, 5000)).save(buffer, "PNG")
    assert read_header(buffer.getvalue()).width == 8000
    bomb = bytearray(PICTURES["BMP"])
    bomb[18:26] = (100_000).to_bytes(4, "little") * 2
    assert _reason(bytes(bomb)).startswith("too many pixels")


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(PICTURES)), changes=st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=8))))
def test_damage_is_rejected_or_taken_never_anything_else(name: str, changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(PICTURES[name])
    for at, new in changes:
        data[at : at + len(new)] = new
    with contextlib.suppress(RejectedError):
        assert read_header(bytes(data)).format in PICTURES
