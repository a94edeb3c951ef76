"""Images of PIL from encoded bytes."""

import io
from typing import Any

from loader.errors import require

FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "JPEG2000", "PPM", "GIF")
"""The formats that are opened, by Pillow's names: for others, such as PostScript, it may start a program."""


def decoded_picture(image: bytes) -> Any:
    """An RGB image of PIL, or the error that says why the bytes are not a picture."""
    pictures = require("PIL.Image", extra="train", purpose="decoding images")
    try:
        return pictures.open(io.BytesIO(image), formats=FORMATS).convert("RGB")
    except (OSError, SyntaxError, ValueError, pictures.DecompressionBombError) as error:
        return error
