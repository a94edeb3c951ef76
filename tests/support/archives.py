"""Archives, label arrays and masks, as bytes."""

import io
import tarfile
from collections.abc import Mapping

import numpy as np
from PIL import Image


def tar(files: Mapping[str, bytes], *, mode: str = "w") -> bytes:
    """A tar of these files, in this order; ``mode`` as tarfile has it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def npy(values: list[int]) -> bytes:
    """A label array as a file of NumPy's."""
    buffer = io.BytesIO()
    np.save(buffer, np.array(values, np.uint8))
    return buffer.getvalue()


def mask(value: int, *, size: tuple[int, int] = (16, 12)) -> bytes:
    """A mask of one value."""
    buffer = io.BytesIO()
    Image.new("L", size, value).save(buffer, "PNG")
    return buffer.getvalue()
