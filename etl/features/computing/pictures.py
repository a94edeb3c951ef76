"""An image in the hands of feature functions: its bytes, and its pixels, which are decoded once for all functions."""

from functools import cached_property

import numpy as np
import numpy.typing as npt
from PIL import Image

from etl.pictures.images import decode_as, open_picture, room
from formats.pictures.decoding import VERSION, Mode

DECODER = f"\0pictures {VERSION}"
"""What the digest of a definition has besides its function, if that gets pixels."""


class Picture:
    """An image as functions see it. Properties raise `RejectedError` if the image cannot be decoded."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def rgb(self) -> Image.Image:
        """The picture as training sees it (`formats.pictures.decoding`)."""
        return self._decoded("RGB")

    @cached_property
    def gray(self) -> Image.Image:
        """The same in gray, 8 bits: 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601). A JPEG stores these values."""
        return self._decoded("L")

    def _decoded(self, mode: Mode) -> Image.Image:
        with open_picture(self.data) as image, room(image):
            image.draft(mode, image.size)  # of a JPEG, only the gray values are decoded then
            return decode_as(image, self.data, mode)

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The pixels: uint8, (height, width, 3), RGB."""
        return np.array(self.rgb)
