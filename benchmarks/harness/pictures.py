"""What the benchmark of ingest reads: trees of small or usual pictures, all different, and trees of empty files."""

import io
import os
import shutil
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = 10
PICTURE_BYTES = 110_000

_PAYLOAD = 65_533  # of one segment of a JPEG, whose length counts itself too
_SEGMENT = b"\xff\xe9"  # APP9: every decoder skips it


@dataclass(frozen=True)
class Planted:
    """A tree of pictures: its root, with ``files`` pictures of ``bytes`` together below class folders."""

    root: Path
    files: int
    bytes: int


@lru_cache(maxsize=1)
def _smallest() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 48), (90, 120, 60)).save(buffer, "JPEG", quality=50)
    return buffer.getvalue()


def picture(seed: int, size: int = PICTURE_BYTES) -> bytes:
    """A JPEG of exactly ``size`` bytes that decoders take, another one for each seed.

    A real picture of 64 x 48 pixels with random bytes in segments that applications may add. Raises ValueError for a
    size that has no room for it.
    """
    base = _smallest()
    at = 4 + int.from_bytes(base[4:6], "big")  # behind the first segment, which names the format
    left = size - len(base)
    if left < 16:
        raise ValueError(f"Wanted room for a picture. Found: {size} bytes, and the smallest has {len(base) + 16}.")
    segments = -(-left // (_PAYLOAD + 4))
    lengths = [left // segments + (number < left % segments) - 4 for number in range(segments)]
    noise = np.random.default_rng(seed)
    parts = [_SEGMENT + struct.pack(">H", length + 2) + noise.bytes(length) for length in lengths]
    return b"".join([base[:at], *parts, base[at:]])


def plant_pictures(root: Path, files: int, *, size: int = PICTURE_BYTES, first_seed: int = 0) -> Planted:
    """Write ``root/class_0/000000.jpg`` and so on, in turn into ten class folders."""
    for number in range(CLASSES):
        (root / f"class_{number}").mkdir(parents=True)
    for number in range(files):
        place = root / f"class_{number % CLASSES}" / f"{number:06}.jpg"
        place.write_bytes(picture(first_seed + number, size))
    return Planted(root, files, files * size)


def plant_empty(root: Path, files: int, *, folders: int) -> None:
    """Make empty files, as many in each of ``folders`` class folders."""
    for folder in range(folders):
        place = root / f"class_{folder:04}"
        place.mkdir(parents=True)
        here = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for number in range(files // folders):
                os.mknod(f"{number:07}.jpg", dir_fd=here)
        finally:
            os.close(here)


def require_room(folder: Path, *, bytes: int, files: int) -> None:
    """Raise OSError unless a file system has room for so many bytes and files."""
    free = shutil.disk_usage(folder).free
    nodes = os.statvfs(folder).f_favail or files  # some file systems do not count them
    if free < bytes or nodes < files:
        raise OSError(
            f"Wanted {bytes / 1e9:.0f} GB and {files:,} files free in {folder}. Found: {free / 1e9:.1f} GB and "
            f"{nodes:,} files. Set TMPDIR to a folder of a larger disk, or say --quick."
        )
