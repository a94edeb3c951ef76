"""Conversion of images to one format, upright, in RGB and of a given size. Masks are cropped and scaled alike.

With the same version of Pillow and its libraries, the same bytes and options always give the same bytes.
"""

import io
from typing import Any

from PIL import Image

from etl.pictures.images import (
    MAX_PIXELS,
    Header,
    RejectedError,
    decode,
    decode_as,
    of_mask,
    open_picture,
    read_header,
    room,
    stable_line,
)
from etl.pictures.plan import LOSSY, MAX_SIDES, Recode
from formats.pictures.decoding import DAMAGE
from formats.pictures.orientation import turned

_OPTIONS: dict[str, dict[str, Any]] = {"JPEG": {}, "PNG": {}, "TIFF": {"compression": "tiff_lzw"}, "WEBP": {}}
_MASK_MODES = ("1", "L", "P", "I;16", "I;16B", "I", "RGB", "RGBA", "LA")
_GAP = 2.0
"""How much larger than the target an image is decoded, or averaged, before the filter runs."""


def convert(data: bytes, recode: Recode) -> tuple[bytes, Header]:
    """Convert an image file, upright and in RGB. Raises `RejectedError` if it cannot be decoded or written.

    The pixels are those that training sees (`formats.pictures.decoding`): the first image of several, transparency
    dropped. A color profile is kept if the image was RGB already.
    """
    header = read_header(data, check="none")
    if not recode.changes:
        return data, header
    with open_picture(data) as image:
        scaled, box = _frame(recode, image.size if header.orientation < 5 else (image.height, image.width))
        if scaled is not None:
            least = tuple(int(_GAP * side) for side in scaled)
            image.draft(None, (least[0], least[1]) if header.orientation < 5 else (least[1], least[0]))
        with room(image):
            profile = image.info.get("icc_profile") if image.mode == "RGB" else None
            picture = decode_as(image, data, "RGB")
            try:
                if scaled is not None and picture.size != scaled:
                    picture = picture.resize(scaled, Image.Resampling.LANCZOS, reducing_gap=_GAP)
                if box is not None:
                    picture = picture.crop(box)
            except DAMAGE as error:
                raise RejectedError("cannot be scaled", stable_line(error)) from None
            return _encoded(picture, recode, profile), Header(recode.format, *picture.size)


def convert_mask(data: bytes, recode: Recode, image: Header) -> tuple[bytes, Header]:
    """Rotate, scale and crop a mask like its image. Values are kept: pixels are selected, never interpolated.

    Args:
        data: The mask file.
        recode: How the image was converted.
        image: The header of the image as stored.

    Returns:
        The mask as PNG.

    Raises:
        RejectedError: The mask cannot be decoded, has another size than the image, or a mode that PNG does not
            support.
    """
    looks = read_header(data, check="none")
    turn = image.turn_of(looks.width, looks.height) if looks.width and looks.height else 1
    if turn is None:
        raise RejectedError("mask of another size", f"{_size(looks)} instead of {_size(image)}")
    with of_mask(), open_picture(data) as mask, room(mask):
        decode(mask)
        if mask.mode not in _MASK_MODES:
            raise RejectedError(f"its pixels are {mask.mode}, which PNG cannot hold")
        picture = turned(mask, turn)
        scaled, box = _frame(recode, picture.size)
        if scaled is not None and picture.size != scaled:
            picture = picture.resize(scaled, Image.Resampling.NEAREST)
        if box is not None:
            picture = picture.crop(box)
        picture.info = {}
        return _saved(picture, "PNG"), Header("PNG", *picture.size)


def _size(image: Header) -> str:
    return f"{image.width}x{image.height}"


def _frame(recode: Recode, size: tuple[int, int]) -> tuple[tuple[int, int] | None, tuple[int, int, int, int] | None]:
    """The size to which an upright image of this size is scaled, and the crop of that; None for neither."""
    if recode.size is None:
        return None, None
    shorter, longer = sorted(size)
    width, height = size
    if recode.size < shorter or recode.enlarge:
        other = max(1, recode.size * longer // shorter)
        width, height = (recode.size, other) if width <= height else (other, recode.size)
        if width * height > MAX_PIXELS:
            raise RejectedError("too many pixels", f"{width} x {height} when enlarged")
    scaled = (width, height) if (width, height) != size else None
    if not recode.crop:
        return scaled, None
    across, down = min(recode.size, width), min(recode.size, height)
    left, top = round((width - across) / 2), round((height - down) / 2)
    return scaled, (left, top, left + across, top + down)


def _encoded(picture: Image.Image, recode: Recode, profile: bytes | None) -> bytes:
    limit = MAX_SIDES.get(recode.format)
    if limit is not None and max(picture.size) > limit:
        raise RejectedError(f"too large for {recode.format}", f"{picture.width} x {picture.height}")
    options = _OPTIONS[recode.format] | ({"quality": recode.saved_quality} if recode.format in LOSSY else {})
    picture.info = {}  # otherwise some metadata of the old file would be written
    return _saved(picture, recode.format, icc_profile=profile, **options)


def _saved(picture: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    try:
        picture.save(file, format, **options)
    except DAMAGE as error:
        raise RejectedError(f"cannot be written as {format}", stable_line(error)) from None
    return file.getvalue()
