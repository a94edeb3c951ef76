"""An image in the hands of feature functions: its bytes, and its pixels, which are decoded once for all functions."""

from functools import cached_property

import numpy as np
import numpy.typing as npt
from PIL import Image

from etl.pictures.images import RejectedError, decode, open_picture, read_header, room, turned


class Picture:
    """An image as functions see it. Properties raise `RejectedError` if the image cannot be decoded."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def rgb(self) -> Image.Image:
        """The first image of the file in RGB, 8 bits a channel, upright as its EXIF orientation says.

        Transparent pixels are white below, and 16 bits become 8.
        """
        return self._decoded("RGB")

    @cached_property
    def gray(self) -> Image.Image:
        """The same in gray, 8 bits: 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601). A JPEG stores these values."""
        return self._decoded("L")

    def _decoded(self, mode: str) -> Image.Image:
        orientation = read_header(self.data, check="none").orientation
        with open_picture(self.data) as image, room(image):
            image.draft(mode, image.size)  # of a JPEG, only the gray values are decoded then
            decode(image)
            if image.mode.startswith("I;16"):  # Pillow would clip
                image = Image.fromarray((np.asarray(image).astype(np.uint32) * 255 // 65_535).astype(np.uint8))
            elif image.mode in ("I", "F"):
                raise RejectedError("unsupported pixels", f"{image.mode}, of which the range is not known")
            if image.has_transparency_data:
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
            return turned(image if image.mode == mode else image.convert(mode), orientation)

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The pixels: uint8, (height, width, 3), RGB."""
        return np.array(self.rgb)
