"""Images and arrays as the bytes of files."""

import io
from typing import Any

import numpy as np
from PIL import Image


def encoded(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    """An image, or an array of pixels, as Pillow writes it."""
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, kind, **options)
    return file.getvalue()


def npy(array: Any, **options: Any) -> bytes:
    """An array as an NPY file."""
    file = io.BytesIO()
    np.save(file, np.asarray(array), **options)
    return file.getvalue()
