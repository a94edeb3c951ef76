"""Is this a picture that training can read? Answered from its header and its end, decoded only in doubt."""

import io
import re
import struct
import threading
import warnings
from dataclasses import dataclass
from typing import Any

from PIL import Image

FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "JPEG2000", "PNM")
"""The formats that DALI's decoder takes, as the metadata table names them."""

MAX_PIXELS = 2 * 89_478_485
"""More pixels than this are taken for a decompression bomb (Pillow's own limit)."""

_OUR_NAMES = {"MPO": "JPEG", "PPM": "PNM"}  # MPO: the JPEG of cameras that append a second picture
_OTHERS = ("GIF", "ICO", "PSD", "AVIF", "SGI", "PCX")  # told by name when they are refused
_PILLOW_NAMES = ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "JPEG2000", "PPM", *_OTHERS)
_MAGIC = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|II\*\0|MM\0\*|BM|RIFF....WEBP|\0\0\0\x0cjP  |\xff\x4f\xff\x51|P[1-6][\s#]|GIF8",
    re.DOTALL,
)
_STRIPS = ((273, 279), (324, 325))  # TIFF: offsets and lengths of strips, of tiles

# What Pillow's readers raise for files that are damaged, by its own tests and by experience with random bytes.
_DAMAGE: tuple[type[Exception], ...] = (
    *(OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, struct.error),
    *(ArithmeticError, MemoryError, AttributeError, RuntimeError),
)

_decoding = threading.Lock()  # a decoded picture is large: one at a time in a process

# Between half the limit and the limit Pillow warns; such pictures are large, not bombs.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class RejectedError(Exception):
    """A file is no picture that can be read; the message is ``kind`` or ``kind: detail``."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)


@dataclass(frozen=True, slots=True)
class Header:
    """What a picture says of itself: its format (one of `FORMATS`), and its size in pixels as stored."""

    format: str
    width: int
    height: int


def read_header(data: bytes) -> Header:
    """Look at a whole file. Raises `RejectedError` if it is empty, no image, of another format, huge or cut off."""
    if not data:
        raise RejectedError("empty")
    try:
        image = Image.open(io.BytesIO(data), formats=_PILLOW_NAMES)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise RejectedError("too many pixels", _line(error)) from None
    except _DAMAGE:
        if _MAGIC.match(data):
            raise RejectedError("damaged", "it begins as an image, but its header cannot be read") from None
        raise RejectedError("not an image") from None
    with image:
        name = _OUR_NAMES.get(image.format or "", image.format or "")
        if name not in FORMATS:
            raise RejectedError(f"unsupported format {name}")
        if name == "PNM" and not _MAGIC.match(data):
            raise RejectedError("unsupported format PFM")
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise RejectedError("too many pixels", f"{width} x {height}")
        try:
            whole = _has_end(name, data, image)
        except _DAMAGE:
            whole = False
        if not whole:
            _decode(image)
    return Header(name, width, height)


def _has_end(name: str, data: bytes, image: Any) -> bool:
    """Whether the file ends as its format ends; False is only a doubt."""
    match name:
        case "JPEG" | "JPEG2000":
            return data[-64:].rstrip(b"\0\r\n ").endswith(b"\xff\xd9")
        case "PNG":
            return data[-64:].rstrip(b"\0\r\n ").endswith(b"IEND\xaeB`\x82")
        case "WEBP":
            return 8 + int.from_bytes(data[4:8], "little") <= len(data)
        case "BMP":
            return 54 < int.from_bytes(data[2:6], "little") <= len(data)
        case "TIFF":
            tags = image.tag_v2
            ends = [a + n for at, size in _STRIPS if at in tags for a, n in zip(tags[at], tags[size], strict=True)]
            return bool(ends) and max(ends) <= len(data)
    return False


def _decode(image: Image.Image) -> None:
    with _decoding:
        try:
            image.load()
        except Image.DecompressionBombError as error:
            raise RejectedError("too many pixels", _line(error)) from None
        except _DAMAGE as error:
            raise RejectedError("truncated", _line(error)) from None


def _line(error: BaseException) -> str:
    return re.sub(r"<_io\.BytesIO[^>]*>", "it", " ".join(str(error).split())) or type(error).__name__
