"""The check whether training can read an image, from its header and end. It is decoded in doubt or on request."""

import io
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import simplejpeg
from PIL import Image

from etl.errors import one_line
from etl.pictures import foreign
from etl.pictures.endings import end_of, png_chunks, what_follows
from etl.pictures.headers import MAGIC, Look, look
from etl.pictures.plan import Check
from formats.errors import PictureError
from formats.image_names import EXTENSIONS
from formats.pictures.decoding import DAMAGE, Mode, check_range, decode_opened
from formats.pictures.orientation import exif_orientation

# The formats that DALI decodes, by their names in the metadata table.
FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "JPEG2000", "PNM")
MAX_PIXELS = 2 * 89_478_485  # an image with more counts as a decompression bomb (Pillow's limit)

_OUR_NAMES = {"MPO": "JPEG", "PPM": "PNM"}  # MPO: a JPEG of a camera that appends a second image
_OTHERS = ("GIF", "ICO", "PSD", "AVIF", "SGI", "PCX")  # formats that messages name when they are refused
_PILLOW_NAMES = ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "JPEG2000", "PPM", *_OTHERS)
_ORIENTATION = 274  # a tag of TIFF
_STRIPS = ((273, 279), (324, 325))  # TIFF: offsets and lengths of strips, of tiles
_ROOM = 16_000_000  # pixels: 64 MB at 4 bytes per pixel, and as much again for each copy
_HOLE = bytes(64)  # so many zeros are rare in coded pixels, and frequent where a part of a file was never written
_BLOCKS = 4

# Pillow keeps this many blocks of 16 MB for all threads. If they were freed, the heap of each thread would keep some.
Image.core.set_blocks_max(_BLOCKS)  # type: ignore[attr-defined]  # documented, not exported


class RejectedError(Exception):
    """A file is not a readable image. The message is ``kind`` or ``kind: detail``."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)


@dataclass(frozen=True, slots=True)
class Header:
    """The header of an image: its format (one of `FORMATS`), and its size in pixels as stored."""

    format: str  # empty, without a size, for a file that was not checked and that cannot be read
    width: int | None
    height: int | None
    orientation: int = 1  # of EXIF, 1 to 8
    applied: int = 1  # what the size and the decoded pixels include already, as Pillow turns TIFF itself

    @property
    def stored_orientation(self) -> int:
        """The orientation that turns the pixels of the file upright, whoever applies it."""
        return self.orientation if self.applied == 1 else self.applied


def read_header(data: bytes, *, check: Check = "header", is_mask: bool = False) -> Header:
    """Check a whole file. Raises `RejectedError` if it is not a whole image in one of `FORMATS`; with ``none``, only if
    it is empty; with ``full``, also for damage that a decoder of all its pixels notices.
    """
    if not data:
        raise RejectedError("empty")
    found = look(data)
    if check == "none":
        return _seen(found) if found else _whatever(data)
    # The header must be readable, and the file must end as its format ends. Images in doubt are decoded: those with an
    # unusual header, or with a hole of zeros.
    if found and check == "header" and data.find(_HOLE, found.start, found.end) < 0:
        if found.width * found.height > MAX_PIXELS:
            raise RejectedError("too many pixels", f"{found.width} x {found.height}")
        _check_rest(found.format, data, found.end)
        return _seen(found)
    with open_picture(data) as image:
        header = _seen(found) if found else _header(image)
        if header.format not in FORMATS:
            raise RejectedError(f"unsupported format {header.format}")
        if header.format == "PNM" and not MAGIC.match(data):
            raise RejectedError("unsupported format PFM")
        if not is_mask:  # training refuses pixels whose range is not known; a mask may have them
            with _rejected():
                check_range(image, format=image.format)
        end = found.end if found else end_of(header.format, data)
        if end is None:
            raise RejectedError("truncated", f"the file ends before its {header.format} ends")
        _check_rest(header.format, data, end)
        if check == "full" or found or not _is_whole(header.format, data, image):
            with room(image):
                _decode_strictly(header.format, data, image)
    return header


def disagrees(path: bytes, format: str) -> bool:
    """Whether a file's extension contradicts the format of its contents. Unknown extensions never do."""
    told = EXTENSIONS.get(path.rpartition(b".")[2].lower()) if b"." in path else None
    return bool(format) and told is not None and told != format


@contextmanager
def open_picture(data: bytes) -> Iterator[Image.Image]:
    """A picture of any format that we know by name, not decoded yet. Raises `RejectedError`."""
    if name := foreign.raw_name_of(data):
        raise RejectedError(f"unsupported format {name}")
    try:
        image = Image.open(io.BytesIO(data), formats=_PILLOW_NAMES)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise RejectedError("too many pixels", stable_line(error)) from None
    except DAMAGE:
        if name := foreign.name_of(data):
            raise RejectedError(f"unsupported format {name}") from None
        if MAGIC.match(data):
            raise RejectedError("damaged", "it starts like an image, but its header cannot be read") from None
        raise RejectedError("not an image") from None
    with image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise RejectedError("too many pixels", f"{width} x {height}")
        yield image


def decode(image: Image.Image) -> None:
    """Decode an opened image as it is. Raises `RejectedError` if it is damaged or truncated."""
    with _rejected():
        image.load()


def decode_as(image: Image.Image, data: bytes, mode: Mode) -> Image.Image:
    """Decode an opened image as training sees it (`formats.pictures.decoding`). Raises `RejectedError`."""
    with _rejected():
        return decode_opened(image, data, mode=mode)


@contextmanager
def _rejected() -> Iterator[None]:
    try:
        yield
    except PictureError as error:
        kind, _, detail = str(error).partition(": ")
        raise RejectedError(kind, detail) from None
    except Image.DecompressionBombError as error:
        raise RejectedError("too many pixels", stable_line(error)) from None
    except DAMAGE as error:
        line = stable_line(error)
        cut = "truncated" in line or "broken data stream" in line or isinstance(error, EOFError)
        raise RejectedError("truncated" if cut else "damaged", line) from None


@contextmanager
def of_mask() -> Iterator[None]:
    """Change a `RejectedError` so that it says that the mask of an image is bad."""
    try:
        yield
    except RejectedError as error:
        raise RejectedError("bad mask", str(error)) from None


def stable_line(error: BaseException) -> str:
    """A Pillow error as one line that is the same in every run."""
    return re.sub(r"<_io\.BytesIO[^>]*>", "it", one_line(error))


class Room:
    """Limits the number of pixels that are decoded at once. An image above the limit is decoded alone."""

    def __init__(self, pixels: int) -> None:
        self._free = self._all = pixels
        self._turn = threading.Lock()
        self._changed = threading.Condition()

    @contextmanager
    def __call__(self, image: Image.Image) -> Iterator[None]:
        """Wait for room in first-come, first-served order, and hold it."""
        pixels = min(image.width * image.height, self._all)
        with self._turn, self._changed:  # the waiter keeps its turn, or small images would overtake a large one forever
            self._changed.wait_for(lambda: pixels <= self._free)
            self._free -= pixels
        try:
            yield
        finally:
            with self._changed:
                self._free += pixels
                self._changed.notify()


room = Room(_ROOM)  # of this process, for all decoding


def _header(image: Image.Image) -> Header:
    name = _OUR_NAMES.get(image.format or "", image.format or "")
    exif = image.info.get("exif", b"") if name in ("JPEG", "PNG", "WEBP") else b""  # Pillow turns TIFFs itself
    applied = _tiff_orientation(image) if name == "TIFF" else 1
    return Header(name, image.width, image.height, exif_orientation(exif), applied)


def _tiff_orientation(image: Any) -> int:
    try:
        value = int(image.tag_v2.get(_ORIENTATION, 1))
    except DAMAGE:
        return 1
    return value if 1 <= value <= 8 else 1


def _whatever(data: bytes) -> Header:
    try:
        with open_picture(data) as image:
            return _header(image)
    except RejectedError:
        return Header("", None, None)


def _seen(found: Look) -> Header:
    return Header(found.format, found.width, found.height, found.orientation)


def _check_rest(format: str, data: bytes, end: int) -> None:
    rest = what_follows(format, data, end)
    if rest is not None:
        raise RejectedError("more than one picture", f"after the {format} comes {rest}")


def _is_whole(format: str, data: bytes, image: Any) -> bool:
    """Whether all pixels must be there, as their end is known. False means only that there is doubt."""
    if format == "TIFF":
        try:
            tags = image.tag_v2
            ends = [a + n for at, size in _STRIPS if at in tags for a, n in zip(tags[at], tags[size], strict=True)]
        except DAMAGE:
            return False
        return bool(ends) and max(ends) <= len(data)
    return format in ("BMP", "JPEG2000")


def _decode_strictly(format: str, data: bytes, image: Image.Image) -> None:
    """Decode all pixels of an opened image; what its decoder only warns of is an error too. Raises `RejectedError`."""
    if format == "PNG":
        _check_sums(data)
    if format == "JPEG":
        image.draft(None, (1, 1))  # all of the file is read, but only every eighth pixel in each direction computed
        colours = "CMYK" if image.mode == "CMYK" else "GRAY"
        try:
            simplejpeg.decode_jpeg(data, colours, fastdct=True, fastupsample=True, min_height=1, min_width=1)
            return
        except DAMAGE as error:
            line = stable_line(error)
            if "subsampling" not in line:
                raise RejectedError("truncated" if "remature end" in line else "damaged", line) from None
    decode(image)  # also a JPEG of a rare subsampling, which only Pillow reads


def _check_sums(data: bytes) -> None:
    for kind, start, end in png_chunks(data):
        if zlib.crc32(memoryview(data)[start + 4 : end - 4]) != int.from_bytes(data[end - 4 : end]):
            raise RejectedError("damaged", f"the checksum of the part {kind.decode()} at byte {start:,} is wrong")
        if kind == b"IEND":
            return
