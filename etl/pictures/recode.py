"""Conversion of images to one format, upright, in RGB and of a given size. Masks are cropped and scaled alike.

With the same version of Pillow and its libraries, the same bytes and options always give the same bytes.
"""

import io
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops

from etl.pictures.images import (
    DAMAGE,
    MAX_PIXELS,
    Header,
    RejectedError,
    decode,
    of_mask,
    open_picture,
    read_header,
    room,
    stable_line,
    turned,
)

Target = Literal["UNCHANGED", "JPEG", "PNG", "TIFF", "WEBP"]
TARGETS: tuple[Target, ...] = get_args(Target)
MAX_SIDE = 65_500
"""The largest width and height of a JPEG."""

_MAX_SIDE = {"JPEG": MAX_SIDE, "WEBP": 16_383}
_LOSSY = ("JPEG", "WEBP")
_DEFAULT_QUALITY = 90
_EXTENSIONS = {"JPEG": ".jpg", "PNG": ".png", "TIFF": ".tif", "WEBP": ".webp"}
_OPTIONS: dict[str, dict[str, Any]] = {"JPEG": {}, "PNG": {}, "TIFF": {"compression": "tiff_lzw"}, "WEBP": {}}
_MASK_MODES = ("1", "L", "P", "I;16", "I;16B", "I", "RGB", "RGBA", "LA")
_GAP = 2.0
"""How much larger than the target an image is decoded, or averaged, before the filter runs."""


@dataclass(frozen=True, slots=True)
class Recode:
    """How images are converted. With the format ``UNCHANGED`` they are not.

    ``size`` N makes the shorter side N pixels and keeps the aspect ratio (torchvision's Resize(N)); ``crop`` also crops
    the center to N x N. Smaller images are not resized unless ``enlarge`` is set (``crop`` still crops a longer side to
    N). ``quality`` (1 to 100, default 90) is for JPEG and WEBP. Raises ValueError.
    """

    format: Target = "UNCHANGED"
    size: int | None = None
    crop: bool = False
    quality: int | None = None
    enlarge: bool = False

    def __post_init__(self) -> None:
        if self.format not in TARGETS:
            raise ValueError(f"Wanted an image format of {', '.join(TARGETS)}. Found: {self.format!r}")
        largest = _MAX_SIDE.get(self.format, MAX_SIDE)
        if self.size is not None and not 1 <= self.size <= largest:
            raise ValueError(f"Wanted an image size from 1 to {largest} pixels. Found: {self.size}")
        if self.quality is not None and not 1 <= self.quality <= 100:
            raise ValueError(f"Wanted a quality from 1 to 100. Found: {self.quality}")
        if self.quality is not None and self.format not in _LOSSY:
            raise ValueError(f"Wanted a quality with JPEG or WEBP. Found: the image format {self.format}.")
        if self.size is not None and self.format == "UNCHANGED":
            raise ValueError(
                f"Wanted an image format, such as JPEG, to change the size of images. Found: the size {self.size} with "
                "UNCHANGED, which keeps every byte."
            )
        for name in ("crop", "enlarge"):
            if getattr(self, name) and self.size is None:
                raise ValueError(f"Wanted an image size with {name}. Found: none.")

    def __str__(self) -> str:
        """The options as a suffix of a source's name, such as ``img-format=JPEG&img-size=256&quality=90``."""
        if not self.changes:
            return ""
        parts = [f"img-format={self.format}", f"img-size={self.size}" if self.size else ""]
        parts += ["crop" if self.crop else "", "enlarge" if self.enlarge else ""]
        parts += [f"quality={self._quality}" if self.format in _LOSSY else ""]
        return "&".join(filter(None, parts))

    @property
    def changes(self) -> bool:
        """Whether images are converted."""
        return self.format != "UNCHANGED"

    @property
    def _quality(self) -> int:
        return self.quality or _DEFAULT_QUALITY

    def apply(self, data: bytes) -> tuple[bytes, Header]:
        """Convert an image file, upright and in RGB. Raises `RejectedError` if it cannot be decoded or written.

        If a file has several images (animations, pages), the first is used. Transparency becomes white. A color profile
        is kept if the image was RGB already.
        """
        header = read_header(data, check="none")
        if not self.changes:
            return data, header
        with open_picture(data) as image:
            scaled, box = self._frame(image.size if header.orientation < 5 else (image.height, image.width))
            if scaled is not None:
                least = tuple(int(_GAP * side) for side in scaled)
                image.draft(None, (least[0], least[1]) if header.orientation < 5 else (least[1], least[0]))
            with room(image):
                decode(image)
                profile = image.info.get("icc_profile") if image.mode == "RGB" else None
                try:
                    picture = turned(to_rgb(image), header.orientation)
                    if scaled is not None and picture.size != scaled:
                        picture = picture.resize(scaled, Image.Resampling.LANCZOS, reducing_gap=_GAP)
                    if box is not None:
                        picture = picture.crop(box)
                except DAMAGE as error:
                    raise RejectedError("cannot be made RGB", stable_line(error)) from None
                return self._encoded(picture, profile), Header(self.format, *picture.size)

    def apply_mask(self, data: bytes, image: Header) -> tuple[bytes, Header]:
        """Rotate, scale and crop a mask like its image. Values are kept: pixels are selected, never interpolated.

        Args:
            data: The mask file.
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
            scaled, box = self._frame(picture.size)
            if scaled is not None and picture.size != scaled:
                picture = picture.resize(scaled, Image.Resampling.NEAREST)
            if box is not None:
                picture = picture.crop(box)
            picture.info = {}
            return self._saved(picture, "PNG"), Header("PNG", *picture.size)

    def _frame(self, size: tuple[int, int]) -> tuple[tuple[int, int] | None, tuple[int, int, int, int] | None]:
        """The size to which an upright image of this size is scaled, and the crop of that; None for neither."""
        if self.size is None:
            return None, None
        shorter, longer = sorted(size)
        width, height = size
        if self.size < shorter or self.enlarge:
            other = max(1, self.size * longer // shorter)
            width, height = (self.size, other) if width <= height else (other, self.size)
            if width * height > MAX_PIXELS:
                raise RejectedError("too many pixels", f"{width} x {height} when enlarged")
        scaled = (width, height) if (width, height) != size else None
        if not self.crop:
            return scaled, None
        across, down = min(self.size, width), min(self.size, height)
        left, top = round((width - across) / 2), round((height - down) / 2)
        return scaled, (left, top, left + across, top + down)

    def _encoded(self, picture: Image.Image, profile: bytes | None) -> bytes:
        limit = _MAX_SIDE.get(self.format)
        if limit is not None and max(picture.size) > limit:
            raise RejectedError(f"too large for {self.format}", f"{picture.width} x {picture.height}")
        options = _OPTIONS[self.format] | ({"quality": self._quality} if self.format in _LOSSY else {})
        picture.info = {}  # otherwise some metadata of the old file would be written
        return self._saved(picture, self.format, icc_profile=profile, **options)

    @staticmethod
    def _saved(picture: Image.Image, format: str, **options: Any) -> bytes:
        file = io.BytesIO()
        try:
            picture.save(file, format, **options)
        except DAMAGE as error:
            raise RejectedError(f"cannot be written as {format}", stable_line(error)) from None
        return file.getvalue()


def extension(format: Target) -> str:
    """The file extension of a format, with its dot; empty for ``UNCHANGED``."""
    return _EXTENSIONS.get(format, "")


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert a decoded image of any mode to RGB; transparency becomes white. May raise ValueError for rare modes.

    The upper 8 bits of 16 are kept, and the upper 8 bits of 31 for larger integers. Floating-point values are scaled
    from the range 0 to 1 if all of them are inside, else from 0 to 255, else from 0 to their maximum.
    """
    if image.mode.startswith("I;16"):
        image = _grey(np.asarray(image) >> 8)
    elif image.mode == "I":
        values = np.asarray(image)
        image = _grey(values >> (8 if values.max() < 1 << 16 else 23))
    elif image.mode == "F":
        numbers = np.nan_to_num(np.asarray(image), nan=0, posinf=0, neginf=0)
        largest = float(numbers.max())
        image = _grey(np.rint(numbers * (255 if largest <= 1 else 1 if largest <= 255 else 255 / largest)))
    elif image.mode == "CMYK" and image.format in ("JPEG", "MPO") and "adobe" not in image.info:
        image = ImageChops.invert(image)  # only Adobe's CMYK is stored inverted, and Pillow assumes Adobe for all
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        white.alpha_composite(picture)
        image = white
    return image if image.mode == "RGB" else image.convert("RGB")


def _grey(values: NDArray[Any]) -> Image.Image:
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))


def _size(image: Header) -> str:
    return f"{image.width}x{image.height}"
