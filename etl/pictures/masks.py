"""Masks of images. They belong to the picture as it is decoded, which is upright by the EXIF orientation of its file.

A mask may have been drawn on the pixels as the file stores them instead. Sizes show this if the image is turned by 90
degrees and not square; otherwise ``Recode.mask_frame`` must say it. Such a mask is turned like its image, without loss.
"""

import io
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from etl.pictures.images import (
    Header,
    RejectedError,
    decode,
    of_mask,
    open_picture,
    read_header,
    room,
    stable_line,
)
from etl.pictures.plan import Check, MaskFrame, Recode
from etl.pictures.recode import framed
from formats.pictures.decoding import DAMAGE
from formats.pictures.turning import turned

UNKNOWN_FRAME = "mask of unknown frame"  # it fits its image both as stored and upright

_MODES = ("1", "L", "P", "I;16", "I;16B", "I", "RGB", "RGBA", "LA")
_DEEP = ";16"
Size = tuple[int, int]


class Mask(NamedTuple):
    """A mask as it is stored: a file, its header, and whether it was turned."""

    data: bytes
    header: Header
    is_turned: bool


def upright_mask(data: bytes, image: Header, recode: Recode, *, check: Check = "header") -> Mask:
    """Check the mask of an image, and turn, scale and crop it like its image if necessary. Raises `RejectedError` if it
    cannot be read, has another size than the image, may be in either frame, or has pixels that PNG does not support.
    """
    with of_mask():
        header = read_header(data, check=check, is_mask=True)
    turn = _turn(header, image, frame=recode.mask_frame, is_lenient=check == "none" and not recode.changes)
    if turn == header.stored_orientation == 1 and not recode.changes:  # it keeps its bytes; any other becomes a PNG
        return Mask(data, header, is_turned=False)
    with of_mask(), open_picture(data) as mask, room(mask):
        decode(mask)
        if mask.mode not in _MODES or _loses_bits(mask):
            raise RejectedError(f"its pixels are {mask.mode}, which PNG cannot hold")
        # Values are kept: pixels are selected, never interpolated.
        picture = framed(turned(turned(mask, header.orientation), turn), recode, Image.Resampling.NEAREST)
        kept = {name: mask.info[name] for name in ("transparency",) if name in mask.info}
        picture.info = {}
        text = PngInfo()
        if turn != 1:
            text.add_text("Comment", f"turned upright by the EXIF orientation of its image, {turn}")
        return Mask(_png(picture, pnginfo=text, **kept), Header("PNG", *picture.size), is_turned=turn != 1)


def frame_of(mask: Header, image: Header) -> MaskFrame | None:
    """The frame of a mask by its size, ``upright`` if the image is not turned. Raises `RejectedError`."""
    sizes = _sizes(image)
    fits: list[MaskFrame] = [frame for frame, size in sizes.items() if size == _shown(mask)]
    if image.stored_orientation == 1 or len(fits) == 1:
        return fits[-1] if fits else None
    if fits:
        raise RejectedError(UNKNOWN_FRAME, f"the image has the EXIF orientation {image.stored_orientation}")
    return None


def _turn(mask: Header, image: Header, *, frame: MaskFrame | None, is_lenient: bool) -> int:
    """The orientation that turns a mask to the upright frame of its image."""
    if None in (mask.width, image.width):
        return 1
    sizes = _sizes(image)
    if frame is None:
        frame = frame_of(mask, image) or "upright"
    if sizes[frame] != _shown(mask) and not is_lenient:
        wanted = "{}x{}".format(*sizes[frame])
        raise RejectedError("mask of another size", f"{'{}x{}'.format(*_shown(mask))} instead of {wanted}")
    return image.stored_orientation if frame == "stored" else 1


def _sizes(image: Header) -> dict[MaskFrame, Any]:
    """The size of an image in both frames."""
    upright = (image.width, image.height) if image.orientation < 5 else (image.height, image.width)
    return {"stored": upright if image.stored_orientation < 5 else upright[::-1], "upright": upright}


def _shown(mask: Header) -> Any:
    """The size of a mask as it is decoded."""
    return (mask.width, mask.height) if mask.orientation < 5 else (mask.height, mask.width)


def _loses_bits(mask: Any) -> bool:
    """Whether Pillow has read only the upper 8 of 16 bits, as it does for several channels."""
    return not mask.mode.startswith("I") and any(_DEEP in str(tile.args) for tile in mask.tile)


def _png(picture: Image.Image, **options: Any) -> bytes:
    """The PNG of a mask. It is read again, because not all values that Pillow can read have a place in a PNG."""
    file, values = io.BytesIO(), np.asarray(picture)
    try:
        kept = Image.fromarray(values.astype(np.uint16)) if picture.mode == "I" else picture
        kept.save(file, "PNG", **options)
        with Image.open(file, formats=("PNG",)) as saved:
            if np.array_equal(np.asarray(saved), values) and saved.getpalette() == picture.getpalette():
                return file.getvalue()
    except DAMAGE as error:
        raise RejectedError("cannot be written as PNG", stable_line(error)) from None
    raise RejectedError(f"its pixels are {picture.mode}, which PNG cannot hold")
