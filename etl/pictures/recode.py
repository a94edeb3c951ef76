"""Pictures written anew: in one format, upright, in RGB, no larger than wanted; masks cut and scaled as their pictures.

The same bytes and options always give the same bytes, with one version of Pillow and its libraries.
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
"""A JPEG can be no wider and no higher."""

_MAX_SIDE = {"JPEG": MAX_SIDE, "WEBP": 16_383}
_LOSSY = ("JPEG", "WEBP")
_DEFAULT_QUALITY = 90
_EXTENSIONS = {"JPEG": ".jpg", "PNG": ".png", "TIFF": ".tif", "WEBP": ".webp"}
_OPTIONS: dict[str, dict[str, Any]] = {"JPEG": {}, "PNG": {}, "TIFF": {"compression": "tiff_lzw"}, "WEBP": {}}
_MASK_MODES = ("1", "L", "P", "I;16", "I;16B", "I", "RGB", "RGBA", "LA")
_GAP = 2.0
"""How much larger than wanted a picture may be decoded, or averaged, before the filter runs."""


@dataclass(frozen=True, slots=True)
class Recode:
    """How pictures are written anew; with the format ``UNCHANGED`` they are not.

    ``size`` N makes the shorter side N pixels and keeps the shape (torchvision's Resize(N)); with ``crop`` the N x N in
    the middle is kept. Pictures that are smaller stay as they are (of their longer side, ``crop`` still leaves N),
    unless ``enlarge``. ``quality`` (1 to 100, 90 if it is None) is for JPEG and WEBP. Raises ValueError.
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
                f"Wanted an image format, such as JPEG, for pictures of another size. Found: the size {self.size} with "
                "UNCHANGED, which keeps every byte."
            )
        for name in ("crop", "enlarge"):
            if getattr(self, name) and self.size is None:
                raise ValueError(f"Wanted an image size with {name}. Found: none.")

    def __str__(self) -> str:
        """The options as they stand behind a source's name, as ``img-format=JPEG&img-size=256&quality=90``."""
        if not self.changes:
            return ""
        parts = [f"img-format={self.format}", f"img-size={self.size}" if self.size else ""]
        parts += ["crop" if self.crop else "", "enlarge" if self.enlarge else ""]
        parts += [f"quality={self._quality}" if self.format in _LOSSY else ""]
        return "&".join(filter(None, parts))

    @property
    def changes(self) -> bool:
        """Whether pictures are written anew."""
        return self.format != "UNCHANGED"

    @property
    def _quality(self) -> int:
        return self.quality or _DEFAULT_QUALITY

    def apply(self, data: bytes) -> tuple[bytes, Header]:
        """A whole picture written anew, upright and in RGB. Raises `RejectedError` if it cannot be decoded or written.

        Of several pictures in one file (animations, pages) it is the first. What is transparent becomes white. A
        profile of colours is kept where the picture was RGB already.
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
        """A mask turned, scaled and cut as its picture, whose header as stored is ``image``; always a PNG.

        It keeps its values: pixels are taken, never mixed. Raises `RejectedError` if it cannot be decoded, has another
        size than the picture, or colours that PNG does not know.
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
        """The size that an upright picture of this size is scaled to, and what is cut out of that; None for neither."""
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
        picture.info = {}  # or some of the old file's notes would go along
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
    """The extension of files of a format, with its dot; empty for ``UNCHANGED``."""
    return _EXTENSIONS.get(format, "")


def to_rgb(image: Image.Image) -> Image.Image:
    """A decoded picture of any mode as RGB, on white where it is transparent. May raise ValueError for rare modes.

    Of 16 bits the upper 8 are kept; of larger integers the upper 8 of 31; real numbers are taken to go from 0 to 1 if
    all of them do, else to 255, else to their largest.
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
        image = ImageChops.invert(image)  # only Adobe's are stored inverted, and Pillow takes all for Adobe's
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
