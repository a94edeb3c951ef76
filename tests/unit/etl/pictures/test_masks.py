"""Masks are stored in the frame of the picture as it is decoded, with their values."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from etl.pictures.images import Header, RejectedError, read_header
from etl.pictures.masks import upright_mask
from etl.pictures.plan import MaskFrame, Recode
from tests.support.encoding import encoded
from tests.support.pictures import exif

PLAIN = Recode()


def _pixels(data: bytes) -> Any:
    with Image.open(io.BytesIO(data)) as image:
        assert not image.getexif()
        return np.asarray(image)


def _photo(orientation: int, *, size: tuple[int, int], format: str = "JPEG") -> tuple[bytes, Image.Image]:
    """A photo, and a mask that was drawn on its stored pixels: numbers that are all different."""
    data = encoded(Image.new("RGB", size), format, exif=exif(orientation))
    return data, Image.fromarray(np.arange(size[0] * size[1], dtype=np.uint8).reshape(size[::-1]))


def _upright(mask: Image.Image, orientation: int) -> Any:
    """The mask as Pillow turns it by an EXIF block."""
    with Image.open(io.BytesIO(encoded(mask, exif=exif(orientation)))) as image:
        return np.asarray(ImageOps.exif_transpose(image))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(16, 12), (12, 12)])
def test_masks_are_turned_like_their_image_or_the_frame_is_asked_for(
    size: tuple[int, int], orientation: int, format: str
) -> None:
    photo, drawn = _photo(orientation, size=size, format=format)
    image, stored = read_header(photo), encoded(drawn)
    wanted = _upright(drawn, orientation)
    upright = encoded(Image.fromarray(wanted))
    assert upright_mask(upright, image, Recode(mask_frame="upright")) == (upright, read_header(upright), False)
    if orientation == 1:
        assert upright_mask(stored, image, PLAIN).data == stored
        return
    turned = upright_mask(stored, image, Recode(mask_frame="stored"))
    assert (turned.is_turned, turned.header) == (True, read_header(turned.data))
    assert (_pixels(turned.data) == wanted).all()
    assert f"by the EXIF orientation of its image, {orientation}".encode() in turned.data
    if orientation > 4 and size == (16, 12):
        assert upright_mask(stored, image, PLAIN) == turned
        assert upright_mask(upright, image, PLAIN).data == upright
        frames: dict[MaskFrame, bytes] = {"stored": upright, "upright": stored}
        for frame, other in frames.items():
            with pytest.raises(RejectedError, match=r"^mask of another size: "):
                upright_mask(other, image, Recode(mask_frame=frame))
    else:
        for recode in (PLAIN, Recode("JPEG", 8)):
            with pytest.raises(RejectedError, match=rf"^mask of unknown frame: .* EXIF orientation {orientation}$"):
                upright_mask(stored, image, recode)


def _deep() -> Image.Image:
    return Image.fromarray(np.arange(192, dtype=np.uint16).reshape(12, 16) * 300)


def _palette() -> Image.Image:
    mask = Image.fromarray(np.arange(192, dtype=np.uint8).reshape(12, 16)).convert("P")
    mask.putdata([number % 21 for number in range(192)])
    mask.putpalette([value % 256 for value in range(63)])
    return mask


MASKS: dict[str, Callable[[], Image.Image]] = {
    "1": lambda: Image.fromarray(np.arange(192).reshape(12, 16) % 3 == 0),
    "L": lambda: Image.fromarray(np.arange(192, dtype=np.uint8).reshape(12, 16)),
    "P": _palette,
    "I;16": _deep,
    "RGB": lambda: Image.fromarray(np.arange(576, dtype=np.uint16).astype(np.uint8).reshape(12, 16, 3)),
    "RGBA": lambda: Image.fromarray(np.arange(768, dtype=np.uint16).astype(np.uint8).reshape(12, 16, 4)),
}


def test_a_mask_of_16_bits_is_kept_whatever_its_format() -> None:
    data = upright_mask(encoded(_deep(), "PPM"), Header("JPEG", 16, 12, 6), PLAIN).data
    assert (_pixels(data) == np.rot90(np.asarray(_deep()), 3)).all()


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
@pytest.mark.parametrize("mode", MASKS)
def test_masks_keep_mode_values_and_palette(mode: str, format: str) -> None:
    drawn = MASKS[mode]()
    assert drawn.mode == mode
    data = upright_mask(encoded(drawn, format), Header("JPEG", 16, 12, 6), PLAIN).data
    with Image.open(io.BytesIO(data)) as mask:
        assert mask.mode == mode
        assert (np.asarray(mask) == np.rot90(np.asarray(drawn), 3)).all()
        if format == "PNG":
            assert mask.getpalette() == drawn.getpalette()
    scaled = upright_mask(encoded(drawn, format), Header("JPEG", 16, 12, 6), Recode("JPEG", 6)).data
    assert _pixels(scaled).shape[:2] == (8, 6)
    assert set(np.unique(_pixels(scaled)).tolist()) <= set(np.unique(np.asarray(drawn)).tolist())


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_a_mask_with_an_orientation_of_its_own_is_stored_as_it_is_decoded(format: str) -> None:
    photo, drawn = _photo(6, size=(16, 12))
    mask = upright_mask(encoded(drawn, format, exif=exif(6)), read_header(photo), PLAIN)
    assert not mask.is_turned  # by the image's
    assert (_pixels(mask.data) == _upright(drawn, 6)).all()


def test_a_mask_that_png_cannot_hold_is_rejected_rather_than_cut() -> None:
    image = Header("JPEG", 16, 12, 6)
    large = Image.fromarray(np.full((12, 16), 70_000, np.int32))
    for mask, words in (
        (encoded(large, "TIFF"), "its pixels are I"),
        (encoded(Image.new("F", (16, 12)), "TIFF"), "its pixels are F"),
    ):
        with pytest.raises(RejectedError, match=f"^bad mask: {words}, which PNG cannot hold$"):
            upright_mask(mask, image, PLAIN)


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        (encoded(Image.new("L", (8, 9))), "mask of another size: 8x9 instead of 40x30"),
        (encoded(Image.new("L", (30, 40))), "mask of another size: 30x40 instead of 40x30"),
        (b"", "bad mask: empty"),
        (b"junk", "bad mask: not an image"),
        (encoded(Image.new("RGB", (40, 30)))[:-30], "bad mask: truncated: "),
    ],
)
def test_masks_that_do_not_fit_are_rejected(mask: bytes, wanted: str) -> None:
    for recode in (PLAIN, Recode("PNG")):
        with pytest.raises(RejectedError, match=f"^{wanted}"):
            upright_mask(mask, Header("JPEG", 40, 30), recode)


def test_without_a_check_masks_of_another_size_are_taken_but_frames_are_not_guessed() -> None:
    mask = encoded(Image.new("L", (9, 5)))
    for image in (Header("JPEG", 40, 30), Header("", None, None)):
        assert upright_mask(mask, image, PLAIN, check="none").data == mask
    with pytest.raises(RejectedError, match=r"^mask of unknown frame: "):
        upright_mask(mask, Header("JPEG", 9, 5, 3), PLAIN, check="none")
