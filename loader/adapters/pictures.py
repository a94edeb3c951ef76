"""Pictures of PIL from the bytes of their files."""

import io
from typing import Any

from loader.errors import require

FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "JPEG2000", "PPM", "GIF")
"""What is opened, by Pillow's names: for others, as PostScript, it may start a program."""


def decoded_picture(image: bytes) -> Any:
    """An RGB picture of PIL, or the error that says why it is none."""
    pictures = require("PIL.Image", extra="train", purpose="decoding images")
    try:
        return pictures.open(io.BytesIO(image), formats=FORMATS).convert("RGB")
    except (OSError, SyntaxError, ValueError, pictures.DecompressionBombError) as error:
        return error
