"""Conversion of images to one format, upright, in RGB and of a given size.

With the same version of Pillow and its libraries, the same bytes and options always give the same bytes.
"""

import io
from typing import Any

from PIL import Image

from etl.pictures.images import (
    MAX_PIXELS,
    Header,
    RejectedError,
    decode_as,
    open_picture,
    read_header,
    room,
    stable_line,
)
from etl.pictures.plan import LOSSY, MAX_SIDES, Recode
from formats.pictures.decoding import DAMAGE

_OPTIONS: dict[str, dict[str, Any]] = {"JPEG": {}, "PNG": {}, "TIFF": {"compression": "tiff_lzw"}, "WEBP": {}}
_GAP = 2.0  # how much larger than the target an image is decoded, or averaged, before the filter runs


def convert(data: bytes, recode: Recode) -> tuple[bytes, Header]:
    """Convert an image file, upright and in RGB. Raises `RejectedError` if it cannot be decoded or written."""
    header = read_header(data, check="none")
    if not recode.changes:
        return data, header
    with open_picture(data) as image:
        scaled, box = _frame(recode, image.size if header.orientation < 5 else (image.height, image.width))
        if scaled is not None:
            least = tuple(int(_GAP * side) for side in scaled)
            image.draft(None, (least[0], least[1]) if header.orientation < 5 else (least[1], least[0]))
        with room(image):
            # A color profile is kept if the image was RGB already; the pixels are those that training sees.
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


def framed(picture: Image.Image, recode: Recode, filter: Image.Resampling) -> Image.Image:
    """Scale and crop an upright image with all its pixels, as `convert` does."""
    scaled, box = _frame(recode, picture.size)
    if scaled is not None and picture.size != scaled:
        picture = picture.resize(scaled, filter)
    return picture if box is None else picture.crop(box)


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
    file = io.BytesIO()
    try:
        picture.save(file, recode.format, icc_profile=profile, **options)
    except DAMAGE as error:
        raise RejectedError(f"cannot be written as {recode.format}", stable_line(error)) from None
    return file.getvalue()
