"""The one decoder of pictures. Everything that shows an image file's pixels calls it, except DALI, which agrees.

**The contract.** A decoded picture is the first frame or page of a file, upright by its EXIF orientation, RGB, 8 bits:

- Values of up to 16 bits are scaled to 8 and rounded, ``v * 255 / 65535``, never clipped.
- Transparency is dropped: the colours are those in the file, whatever their alpha.
- 32-bit and floating-point pixels are refused, because their range is not known.
- Colour profiles and gamma are not applied. CMYK is converted by ``(255 - C) * (255 - K) / 255``.
- With ``orientation="stored"``, the EXIF orientation is not applied. TIFF is upright in any case, because Pillow turns
  it while it reads it. So these are the pixels of torchvision's ImageFolder, apart from deep gray images, which it
  clips, and CMYK without Adobe's marker, which it inverts.
"""

import io
import struct
import sys
import warnings
from typing import Any, Literal, TypeAlias

from PIL import Image, ImageChops, UnidentifiedImageError

from formats.errors import PictureError
from formats.pictures import Orientation
from formats.pictures.orientation import exif_orientation
from formats.pictures.turning import turned

Mode: TypeAlias = Literal["RGB", "L", "RGBA"]

# Raised with each change of the pixels of any file, so that what was computed from other pixels stays apart.
VERSION = 2

# The formats that are opened, by Pillow's names: for others, such as PostScript, it may start a program.
FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "JPEG2000", "PPM", "GIF")

# Exceptions that Pillow raises for damaged files, from its tests and from experience with random bytes.
DAMAGE: tuple[type[Exception], ...] = (
    *(OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, struct.error),
    *(ArithmeticError, MemoryError, AttributeError, RuntimeError),
)

_TOO_LARGE_OR_DAMAGED: tuple[type[Exception], ...] = (Image.DecompressionBombError, *DAMAGE)
_JPEGS = ("JPEG", "MPO")
_OTHER_BYTE = {"16B": "16L", "16L": "16B", "16N": "16B" if sys.byteorder == "little" else "16L"}
_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262  # tags of TIFF
_WHITE_IS_ZERO = 0
_HALF = 257 // 2

# Pillow warns above half the limit of pixels; such images are large, but accepted.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def decode(data: bytes, *, mode: Mode = "RGB", orientation: Orientation = "upright") -> Image.Image:
    """Decode an image file, as the module's contract says. The mode "L" gives gray (ITU-R BT.601), "RGBA" keeps
    transparency. "stored" does not apply the EXIF orientation. Raises `PictureError` if the bytes are no picture of
    `FORMATS`, damaged, too large, or their pixels have no known range.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            return decode_opened(image, data, mode=mode, orientation=orientation)
    except UnidentifiedImageError:
        raise PictureError(f"no picture of these formats: {', '.join(FORMATS)}") from None
    except _TOO_LARGE_OR_DAMAGED as error:
        raise PictureError(" ".join(str(error).split()) or type(error).__name__) from error


def decode_opened(
    image: Image.Image, data: bytes, *, mode: Mode = "RGB", orientation: Orientation = "upright"
) -> Image.Image:
    """Decode an image that Pillow has opened from ``data``, as `decode` does; it may be drafted, to be read at a
    fraction of its size. Raises `PictureError` if the pixels have no known range; damaged files raise one of `DAMAGE`.
    """
    image.load()
    picture = eight_bits(image, mode=mode, low=_low_bytes(image, data))
    return picture if orientation == "stored" else turned(picture, orientation_of(image))


def orientation_of(image: Image.Image) -> int:
    """The EXIF orientation that a loaded image still has to be turned by, 1 to 8."""
    is_turned = image.format == "TIFF"  # by Pillow, while it was loaded
    return 1 if is_turned else exif_orientation(image.info.get("exif", b""))


def check_range(image: Image.Image, *, format: str | None) -> None:
    """Raise `PictureError` unless the range of the pixels of an image is known. They need not be decoded yet.
    ``format`` is Pillow's name of its file's format.
    """
    is_deep = image.mode.startswith("I;16") or (image.mode == "I" and format == "PPM")
    if image.mode.startswith(("I", "F")) and not is_deep:
        kind = "floating-point" if image.mode.startswith("F") else "signed or 32-bit"
        raise PictureError(f"unsupported pixels: {kind} ({image.mode}), whose range is not known")


def eight_bits(
    image: Image.Image, *, mode: Mode = "RGB", file: Image.Image | None = None, low: Image.Image | None = None
) -> Image.Image:
    """Convert a loaded image to 8 bits, not turned. ``file`` is the image that Pillow has opened, if ``image`` is a
    scaled copy of it; ``low`` has the lower bytes of channels of 16 bits, of which ``image`` has the upper ones. Raises
    `PictureError` if the pixels have no known range.
    """
    file = file or image
    check_range(image, format=file.format)
    if low is not None:
        image = _rounded(image, low)
    elif image.mode.startswith("I;16"):
        tags: Any = getattr(file, "tag_v2", {})
        most = (1 << tags.get(_BITS_PER_SAMPLE, (16,))[0]) - 1
        # A TIFF may have fewer bits, or 0 for white; Pillow gives both as they are.
        image = _scaled(image, most, is_inverted=tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO)
    elif image.mode == "I" and file.format == "PPM":  # Pillow scales these to 16 bits
        image = _scaled(image, 65_535)
    elif image.mode == "CMYK" and file.format in _JPEGS and "adobe" not in file.info:
        image = ImageChops.invert(image)  # only Adobe's CMYK is stored inverted, and Pillow assumes Adobe for all
    if image.mode == mode:
        return image
    if mode != "RGBA" and "transparency" in image.info:  # Pillow would warn that it is lost
        image = image.copy()
        del image.info["transparency"]
    return image.convert(mode)


def _scaled(image: Image.Image, most: int, *, is_inverted: bool = False) -> Image.Image:
    """Gray values from 0 to ``most`` as 8 bits."""
    scale, start = (-255 / most, 255.5) if is_inverted else (255 / most, 0.5)
    return image.convert("I").point(lambda value: value * scale + start).convert("L")


def _rounded(high: Image.Image, low: Image.Image) -> Image.Image:
    """The upper bytes, rounded by the lower ones: ``(256 high + low) / 257 = high + (low - high) / 257``."""
    is_far = [int(difference > _HALF) for difference in range(256)] * len(high.getbands())
    up, down = (ImageChops.subtract(*pair).point(is_far) for pair in ((low, high), (high, low)))
    rounded = ImageChops.subtract(ImageChops.add(high, up), down)
    rounded.info = high.info
    return rounded


def _low_bytes(image: Image.Image, data: bytes) -> Image.Image | None:
    """The lower bytes of an image with several channels of 16 bits, of which Pillow reads only the upper ones. It reads
    the lower ones if it takes the bytes of each value in the other order. None if there are none.
    """
    if image.mode not in ("RGB", "RGBA", "CMYK") or not _is_deep(image, data):
        return None
    with Image.open(io.BytesIO(data), formats=(image.format or "",)) as again:
        file: Any = again
        is_gray = any(_rawmode(tile.args).startswith("LA;16") for tile in file.tile)
        file.tile = [tile._replace(args="RGBA" if is_gray else _swapped(tile.args)) for tile in file.tile]
        try:
            again.load()
        except ValueError:  # a rare layout, for which Pillow has no such reader
            return None
        if not is_gray:
            return again.copy()
        _, gray, _, alpha = again.split()  # two bytes of each channel
        return Image.merge("RGBA", (gray, gray, gray, alpha))


def _is_deep(image: Image.Image, data: bytes) -> bool:
    if image.format == "PNG":
        return data[24] == 16  # the depth in the header
    bits: tuple[int, ...] = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, ())
    return image.format == "TIFF" and bits[:1] == (16,)


def _rawmode(args: Any) -> str:
    return args if isinstance(args, str) else str(args[0])


def _swapped(args: Any) -> Any:
    rawmode = _rawmode(args)
    name, _, kind = rawmode.partition(";")
    other = f"{name};{_OTHER_BYTE.get(kind, kind)}"
    return other if isinstance(args, str) else (other, *args[1:])
