"""Pictures of PIL from the bytes of their files."""

import io
from typing import Any

from loader._extras import require


def decoded_picture(image: bytes) -> Any:
    """An RGB picture of PIL, or the error that says why it is none."""
    pictures = require("PIL.Image", extra="train", purpose="decoding images")
    try:
        return pictures.open(io.BytesIO(image)).convert("RGB")
    except (OSError, SyntaxError, ValueError, pictures.DecompressionBombError) as error:
        return error
