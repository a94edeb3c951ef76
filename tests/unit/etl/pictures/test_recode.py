"""Re-encoded images: upright, in RGB, of the requested size, with their masks."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from etl.pictures.images import Header, RejectedError, read_header
from etl.pictures.masks import upright_mask
from etl.pictures.plan import Recode, Target
from etl.pictures.recode import convert
from tests.support.encoding import encoded
from tests.support.pictures import exif

FORMATS: tuple[Target, ...] = ("JPEG", "PNG", "TIFF", "WEBP")
# The colours of four quarters show an image's orientation.
QUARTERS = {"red": (0, 0), "lime": (1, 0), "blue": (0, 1), "white": (1, 1)}
UPRIGHT = ["red", "lime", "blue", "white"]


def quarters(width: int = 80, height: int = 48) -> Image.Image:
    """An image whose quarters are red, lime, blue and white, row by row."""
    image = Image.new("RGB", (width, height))
    for colour, (x, y) in QUARTERS.items():
        image.paste(colour, (x * width // 2, y * height // 2, (x + 1) * width // 2, (y + 1) * height // 2))
    return image


def opened(data: bytes) -> Image.Image:
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        return image


def pixels(data: bytes) -> NDArray[Any]:
    return np.asarray(opened(data))


def colours(image: Image.Image) -> list[str]:
    """The colours at the centres of the quarters, row by row."""
    known = {"red": (255, 0, 0), "lime": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}
    image, (width, height) = image.convert("RGB"), image.size
    found = []
    for x, y in QUARTERS.values():
        pixel: Any = image.getpixel((width * (1 + 2 * x) // 4, height * (1 + 2 * y) // 4))
        found.append(min(known, key=lambda name: sum(abs(a - b) for a, b in zip(known[name], pixel, strict=True))))
    return found


def turned(orientation: int, size: tuple[int, int] = (80, 48)) -> Image.Image:
    """The image as a camera stores it; EXIF's orientation turns it upright."""
    back = {6: 8, 8: 6}.get(orientation, orientation)
    upright = quarters(*size)
    way = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}.get(back)
    return upright if way is None else upright.transpose(Image.Transpose(way))


def reason(recode: Recode, data: bytes) -> str:
    with pytest.raises(RejectedError) as caught:
        convert(data, recode)
    return str(caught.value)


@pytest.mark.parametrize("format", FORMATS)
def test_pictures_are_encoded_in_the_requested_format(format: Target) -> None:
    data, header = convert(encoded(quarters()), Recode(format))
    assert header == read_header(data, check="full") == Header(format, 80, 48)
    assert (opened(data).mode, colours(opened(data))) == ("RGB", UPRIGHT)


def test_unchanged_keeps_every_byte() -> None:
    data = encoded(turned(6), "JPEG", exif=exif(6))
    assert convert(data, Recode()) == (data, Header("JPEG", 48, 80, 6))
    assert not Recode().changes


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_picture_gives_the_same_bytes(format: Target) -> None:
    data = encoded(quarters(), "JPEG", dpi=(300, 300), comment=b"mine")
    again = convert(data, Recode(format, 24))
    assert convert(data, Recode(format, 24)) == again
    if format != "JPEG":
        assert convert(encoded(quarters(), "JPEG"), Recode(format, 24)) == again  # metadata of the old file is gone


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [None, 16])
def test_exif_turns_pictures_upright(kind: str, orientation: int, size: int | None) -> None:
    notes: Any = {"tiffinfo": {274: orientation}} if kind == "TIFF" else {"exif": exif(orientation)}
    stored = encoded(turned(orientation), kind, **notes)
    data, header = convert(stored, Recode("PNG", size))
    assert colours(opened(data)) == UPRIGHT
    assert (header.width, header.height) == ((80, 48) if size is None else (26, 16))
    assert 274 not in opened(data).getexif()


def test_exif_metadata_and_orientation_are_dropped() -> None:
    data, header = convert(encoded(turned(8), "JPEG", exif=exif(8)), Recode("JPEG"))
    assert header.orientation == read_header(data).orientation == 1
    assert "exif" not in opened(data).info


@pytest.mark.parametrize("broken", [b"Exif\0\0junk", b"Exif\0\0II*\0\xff\xff\xff\xff", exif(99)])
def test_broken_exif_leaves_pictures_as_stored(broken: bytes) -> None:
    data, _ = convert(encoded(quarters(), "JPEG", exif=broken), Recode("PNG"))
    assert colours(opened(data)) == UPRIGHT


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_the_first_of_several_frames_is_used(kind: str) -> None:
    frames = [quarters(), Image.new("RGB", (80, 48), "black")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data, _ = convert(encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options), Recode("PNG"))
    assert colours(opened(data)) == UPRIGHT


@pytest.mark.parametrize("format", FORMATS)
def test_colour_profiles_are_kept_for_rgb_only(format: Target) -> None:
    profile = b"\0" * 128 + b"profile"
    data, _ = convert(encoded(quarters(), "PNG", icc_profile=profile), Recode(format))
    assert opened(data).info["icc_profile"] == profile
    data, _ = convert(encoded(quarters().convert("RGBA"), "PNG", icc_profile=profile), Recode(format))
    assert "icc_profile" not in opened(data).info


@pytest.mark.parametrize(
    ("recode", "size", "wanted"),
    [
        (Recode("PNG", 24), (80, 48), (40, 24)),
        (Recode("PNG", 24), (48, 80), (24, 40)),
        (Recode("PNG", 24, crop=True), (80, 48), (24, 24)),
        (Recode("PNG", 7), (100, 30), (23, 7)),  # 23.33
        (Recode("PNG", 48), (80, 48), (80, 48)),
        (Recode("PNG", 100), (80, 48), (80, 48)),
        (Recode("PNG", 100, crop=True), (80, 48), (80, 48)),
        (Recode("PNG", 60, crop=True), (80, 48), (60, 48)),
        (Recode("PNG", 96, enlarge=True), (80, 48), (160, 96)),
        (Recode("PNG", 96, enlarge=True, crop=True), (80, 48), (96, 96)),
        (Recode("PNG", 1), (300, 3), (100, 1)),
    ],
)
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_sizes_are_those_of_the_shorter_side(
    recode: Recode, size: tuple[int, int], wanted: tuple[int, int], kind: str
) -> None:
    data, header = convert(encoded(quarters(*size), kind), recode)
    assert (header.width, header.height) == opened(data).size == wanted


@settings(max_examples=50, deadline=None)
@given(
    size=st.integers(1, 40),
    crop=st.booleans(),
    enlarge=st.booleans(),
    width=st.integers(1, 60),
    height=st.integers(1, 60),
    orientation=st.integers(1, 8),
)
def test_pictures_and_masks_keep_the_same_size(
    size: int, crop: bool, enlarge: bool, width: int, height: int, orientation: int
) -> None:
    recode = Recode("PNG", size, crop=crop, enlarge=enlarge, mask_frame="stored")
    stored = encoded(Image.new("RGB", (width, height)), exif=exif(orientation))
    data, header = convert(stored, recode)
    mask, mask_header, _ = upright_mask(encoded(Image.new("L", (width, height))), read_header(stored), recode)
    assert header == mask_header == read_header(data) == read_header(mask)
    assert header.width is not None
    assert header.height is not None
    upright = (height, width) if orientation > 4 else (width, height)
    shorter = min(upright) if not enlarge else size
    assert min(header.width, header.height) == min(size, shorter)
    if not crop and min(upright) > size:
        assert max(header.width, header.height) == int(size * max(upright) / min(upright))  # torchvision's formula


def test_a_crop_keeps_the_middle() -> None:
    image = Image.new("L", (9, 4))
    image.putdata(list(range(36)))
    data, _ = convert(encoded(image), Recode("PNG", 4, crop=True))
    assert pixels(data)[0, :, 0].tolist() == [2, 3, 4, 5]  # from 2.5, rounded to the even number


def test_large_jpegs_are_shrunk_while_they_are_read() -> None:
    image = Image.effect_noise((1600, 1200), 60).convert("RGB")
    data = encoded(image, "JPEG", quality=95)
    ours = pixels(convert(data, Recode("PNG", 150))[0]).astype(float)
    plain = np.asarray(opened(data).resize((200, 150), Image.Resampling.LANCZOS)).astype(float)
    assert np.abs(ours - plain).mean() < 2.5


def test_higher_quality_gives_larger_files() -> None:
    data = encoded(Image.effect_noise((64, 64), 60).convert("RGB"))
    for format in ("JPEG", "WEBP"):
        small, usual, large = (len(convert(data, Recode(format, quality=q))[0]) for q in (20, None, 100))
        assert small < usual < large
        assert convert(data, Recode(format, quality=90)) == convert(data, Recode(format))


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"hello", "not an image"),
        (encoded(quarters(), "JPEG")[:-200], "truncated: "),
        (encoded(quarters(), "PNG")[:-100], "truncated: "),
    ],
)
def test_damaged_pictures_are_rejected(data: bytes, wanted: str) -> None:
    assert reason(Recode("JPEG"), data).startswith(wanted)


def test_pictures_that_a_format_cannot_hold_are_rejected() -> None:
    assert reason(Recode("WEBP"), encoded(Image.new("L", (20_000, 1)))) == "too large for WEBP: 20000 x 1"
    long = encoded(Image.new("L", (30_000, 1)))
    assert reason(Recode("PNG", 60_000, enlarge=True), long) == "too many pixels: 1800000000 x 60000 when enlarged"
