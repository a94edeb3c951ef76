"""Data for benchmarks: trees of distinct images, and tables of images whose last bytes are their ids."""

import io
import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from formats.hashing import mix64
from schemas.splits import ID_BYTES

CLASSES = 10
"""Of an image in a tree."""
TABLE_CLASSES = 10_000
PICTURE_BYTES = 110_000
BLOB_BYTES = 109_500
"""Of the smallest blob. Others are up to a thousand bytes longer, so that sums of lengths differ."""
PHOTOGRAPHS = 64
"""The number of distinct images; copies differ only in the id at their end."""

END_OF_JPEG = b"\xff\xd9"
COMMENT = b"\xff\xfe\x00\x12"  # of an id
_PAYLOAD = 65_533  # of one JPEG segment; its length includes the length field
_SEGMENT = b"\xff\xe9"  # APP9: every decoder skips it


@dataclass(frozen=True)
class Planted:
    """A tree of images: its root, and the number and total bytes of the files in its class folders."""

    root: Path
    files: int
    bytes: int


@lru_cache(maxsize=1)
def _smallest() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 48), (90, 120, 60)).save(buffer, "JPEG", quality=50)
    return buffer.getvalue()


def picture(seed: int, size: int = PICTURE_BYTES) -> bytes:
    """A valid JPEG of exactly ``size`` bytes, different for each seed.

    It is an image of 64 x 48 pixels, padded with random bytes in application segments. Raises ValueError if ``size`` is
    too small.
    """
    base = _smallest()
    at = 4 + int.from_bytes(base[4:6], "big")  # after the first segment, which names the format
    left = size - len(base)
    if left < 16:
        raise ValueError(f"Wanted room for a picture. Found: {size} bytes, and the smallest has {len(base) + 16}.")
    segments = -(-left // (_PAYLOAD + 4))
    lengths = [left // segments + (number < left % segments) - 4 for number in range(segments)]
    noise = np.random.default_rng(seed)
    parts = [_SEGMENT + struct.pack(">H", length + 2) + noise.bytes(length) for length in lengths]
    return b"".join([base[:at], *parts, base[at:]])


def plant_pictures(root: Path, files: int, *, size: int = PICTURE_BYTES, first_seed: int = 0) -> Planted:
    """Write ``root/class_0/000000.jpg`` and so on, distributed evenly over ten class folders."""
    for number in range(CLASSES):
        (root / f"class_{number}").mkdir(parents=True)
    for number in range(files):
        place = root / f"class_{number % CLASSES}" / f"{number:06}.jpg"
        place.write_bytes(picture(first_seed + number, size))
    return Planted(root, files, files * size)


def plant_empty(root: Path, files: int, *, folders: int) -> None:
    """Create empty files, the same number in each of ``folders`` class folders."""
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
    """Raise OSError unless the file system has room for this many bytes and files."""
    free = shutil.disk_usage(folder).free
    nodes = os.statvfs(folder).f_favail or files  # some file systems report no inodes
    if free < bytes or nodes < files:
        raise OSError(
            f"Wanted {bytes / 1e9:.0f} GB and {files:,} files free in {folder}. Found: {free / 1e9:.1f} GB and "
            f"{nodes:,} files. Set TMPDIR to a folder of a larger disk, or say --quick."
        )


@dataclass(frozen=True)
class Images:
    """The images of a table, numbered from 0: blobs, or photographs. ``kind`` makes ids of tables distinct."""

    table: str
    kind: int
    is_decodable: bool = False

    def ids(self, numbers: NDArray[np.int64], /) -> NDArray[np.uint8]:
        """The ids of images by number: uint8 ``(n, 16)``, pseudo-random and unique."""
        keys = (numbers.astype(np.uint64) << np.uint64(1)) + (np.uint64(self.kind) << np.uint64(56))
        halves = np.stack([mix64(keys), mix64(keys + np.uint64(1))], axis=1)
        return halves.astype(">u8").view(np.uint8).reshape(-1, ID_BYTES)

    def labels(self, numbers: NDArray[np.int64], /) -> NDArray[np.int32]:
        """The class numbers of images by number: int32 ``(n,)``, unique within the images in Cassandra."""
        return (numbers % TABLE_CLASSES).astype(np.int32)

    def image(self, number: int, id: bytes, /) -> bytes:
        """The bytes of one image. The last 16, after the end of the JPEG, are its id; decoders ignore them."""
        if self.is_decodable:
            return _photograph(number % PHOTOGRAPHS) + id
        return picture(number, BLOB_BYTES + number % 997) + id

    def file(self, number: int, id: bytes, /) -> bytes:
        """As `image`, with the id in a comment before the end mark: jobs take no file with other bytes after it."""
        return self.image(number, id)[: -ID_BYTES - len(END_OF_JPEG)] + COMMENT + id + END_OF_JPEG

    def length(self, number: int, /) -> int:
        """The length of one image in bytes."""
        body = len(_photograph(number % PHOTOGRAPHS)) if self.is_decodable else BLOB_BYTES + number % 997
        return body + ID_BYTES

    def rows(self, numbers: NDArray[np.int64], /) -> Iterator[tuple[bytes, int, bytes]]:
        """Yield ids, labels and images by number."""
        for number, label, id in zip(numbers.tolist(), self.labels(numbers).tolist(), self.ids(numbers), strict=True):
            yield id.tobytes(), label, self.image(number, id.tobytes())


@dataclass(frozen=True)
class Sums:
    """The expected sums over some images; ``ids`` is the sum of both halves of all ids, modulo 2**64."""

    images: int
    bytes: int
    labels: int
    ids: int


def id_sum(ids: NDArray[np.uint8]) -> int:
    """The sum of both halves of uint8 ``(n, 16)`` ids, modulo 2**64."""
    return int(np.ascontiguousarray(ids).view(">u8").astype(np.uint64).sum(dtype=np.uint64))


def sums_of(images: Images, numbers: NDArray[np.int64]) -> Sums:
    """The sums over images by number; an image that occurs twice counts twice."""
    distinct, times = np.unique(numbers, return_counts=True)
    lengths = np.array([images.length(number) for number in distinct.tolist()], dtype=np.int64)
    labels = int(images.labels(numbers).sum(dtype=np.int64))
    return Sums(len(numbers), int((lengths * times).sum()), labels, id_sum(images.ids(numbers)))


@lru_cache(maxsize=PHOTOGRAPHS)
def _photograph(number: int) -> bytes:
    """A JPEG of 500 x 375 pixels and about 110 kB: a smooth gradient with noise, different for each number."""
    noise = np.random.default_rng(number)
    shades = Image.fromarray(noise.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    smooth = np.asarray(shades.resize((500, 375), Image.Resampling.BICUBIC), dtype=np.float32)
    pixels = smooth + noise.normal(0, 17, (375, 500, 1)).astype(np.float32)
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=92)
    return file.getvalue()
