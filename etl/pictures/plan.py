"""How images are checked and converted. Options alone: parsing a command line imports no Pillow."""

from dataclasses import dataclass
from typing import Literal, get_args

Check = Literal["header", "full", "none"]  # how images are checked: header and end, all pixels, or not at all

MaskFrame = Literal["stored", "upright"]
"""What masks were drawn on: the pixels as the image's file stores them, or as its EXIF orientation turns them."""

MASK_FRAME = "mask-frame="  # the option of it in the name of a source

Target = Literal["UNCHANGED", "JPEG", "PNG", "TIFF", "WEBP"]
TARGETS: tuple[Target, ...] = get_args(Target)
MAX_SIDES = {"JPEG": 65_500, "WEBP": 16_383}  # the largest width and height of formats that have one, in pixels

LOSSY = ("JPEG", "WEBP")  # formats that have a quality

EXTENSIONS = {
    "JPEG": "jpg",
    "PNG": "png",
    "TIFF": "tif",
    "BMP": "bmp",
    "WEBP": "webp",
    "JPEG2000": "jp2",
    "PNM": "ppm",
    "GIF": "gif",
    "": "bin",
}
"""The extension for each image format, whatever the file was called."""


@dataclass(frozen=True, slots=True)
class Recode:
    """How images are converted, and where their masks belong. With the format ``UNCHANGED`` images are not converted.

    ``size`` N makes the shorter side N pixels and keeps the aspect ratio (torchvision's Resize(N)); ``crop`` also crops
    the center to N x N. Smaller images are not resized unless ``enlarge`` is set (``crop`` still crops a longer side to
    N). ``quality`` (1 to 100, default 90) is for JPEG and WEBP. ``mask_frame`` is the frame of masks whose size does
    not show it. Raises ValueError.
    """

    format: Target = "UNCHANGED"
    size: int | None = None
    crop: bool = False
    quality: int | None = None
    enlarge: bool = False
    mask_frame: MaskFrame | None = None

    def __post_init__(self) -> None:
        if self.format not in TARGETS:
            raise ValueError(f"Wanted an image format of {', '.join(TARGETS)}. Found: {self.format!r}")
        largest = MAX_SIDES.get(self.format, MAX_SIDES["JPEG"])
        if self.size is not None and not 1 <= self.size <= largest:
            raise ValueError(f"Wanted an image size from 1 to {largest} pixels. Found: {self.size}")
        if self.quality is not None and not 1 <= self.quality <= 100:
            raise ValueError(f"Wanted a quality from 1 to 100. Found: {self.quality}")
        if self.quality is not None and self.format not in LOSSY:
            raise ValueError(f"Wanted a quality with JPEG or WEBP. Found: the image format {self.format}.")
        if self.size is not None and self.format == "UNCHANGED":
            raise ValueError(
                f"Wanted an image format, such as JPEG, to change the size of images. Found: the size {self.size} with "
                "UNCHANGED, which keeps every byte."
            )
        if self.mask_frame not in (None, *get_args(MaskFrame)):
            raise ValueError(f"Wanted a frame of masks, stored or upright. Found: {self.mask_frame!r}")
        for name in ("crop", "enlarge"):
            if getattr(self, name) and self.size is None:
                raise ValueError(f"Wanted an image size with {name}. Found: none.")

    def __str__(self) -> str:
        """The options as a suffix of a source's name, such as ``img-format=JPEG&img-size=256&quality=90``."""
        parts = [f"img-format={self.format}" if self.changes else "", f"img-size={self.size}" if self.size else ""]
        parts += ["crop" if self.crop else "", "enlarge" if self.enlarge else ""]
        parts += [f"quality={self.saved_quality}" if self.format in LOSSY else ""]
        parts += [f"{MASK_FRAME}{self.mask_frame}" if self.mask_frame else ""]
        return "&".join(filter(None, parts))

    def check_labels(self, label_type: str) -> None:
        """Raise ValueError for a frame of masks if images of a source have no masks."""
        if self.mask_frame is not None and label_type != "blob":
            raise ValueError(f"Wanted --mask-frame with masks. Found: labels of type {label_type}.")

    @property
    def changes(self) -> bool:
        """Whether images are converted."""
        return self.format != "UNCHANGED"

    @property
    def saved_quality(self) -> int:
        """The quality with which images are written if their format has one."""
        return self.quality or 90


def extension(format: Target) -> str:
    """The file extension of a format, with its dot; empty for ``UNCHANGED``."""
    return f".{EXTENSIONS[format]}" if format in EXTENSIONS else ""
