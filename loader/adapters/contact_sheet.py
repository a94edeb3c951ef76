"""Contact sheets: pictures on one PIL image, as training sees them."""

import colorsys
import io
import math
import unicodedata
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from formats.pictures.decoding import FORMATS
from loader.adapters.pictures import decoded_picture
from loader.errors import OptionError
from loader.options import MOST_SHOWN as MOST
from loader.options import check_int

_CELL, _GAP, _LINE, _MOST_COLUMNS = 128, 8, 15, 8  # pixels, and pictures in a row
_PAPER, _FRAME, _INK, _FAINT, _ALARM = (255, 255, 255), (232, 232, 232), (20, 20, 20), (110, 110, 110), (190, 30, 30)
_ARRAY = b"\x93NUMPY"
_HUE_STEP = 0.618034  # of the golden ratio, so that neighbouring numbers have different colours
_COLOURS = np.array([(0, 0, 0), *(colorsys.hsv_to_rgb(number * _HUE_STEP % 1, 0.7, 1) for number in range(1, 256))])


class Samples(Protocol):
    """What is drawn of a `loader.Batch`, whose module imports this one."""

    @property
    def images(self) -> list[bytes]:
        """The encoded images."""
        ...

    @property
    def labels(self) -> NDArray[np.int32]:
        """Class numbers, or none."""
        ...

    @property
    def label_blobs(self) -> list[bytes]:
        """Encoded masks or label arrays, or none."""
        ...

    @property
    def positions(self) -> NDArray[np.int64]:
        """Positions in the split."""
        ...


def sheet_of_batch(batch: Samples, class_names: Mapping[int, str], count: int = MOST) -> Image.Image:
    """What `Batch.show` returns."""
    if not isinstance(class_names, Mapping):
        raise OptionError(f"Wanted class_names as a mapping, such as split.class_names. Found: {class_names!r}")
    tiles = [_tile(batch, place, class_names) for place in range(min(checked_count(count), len(batch.images)))]
    if not tiles:
        raise nothing_to_show()
    columns = min(_MOST_COLUMNS, math.ceil(math.sqrt(2 * len(tiles))))
    width, height = tiles[0].width + _GAP, max(tile.height for tile in tiles) + _GAP
    rows = -(-len(tiles) // columns)
    sheet = Image.new("RGB", (min(columns, len(tiles)) * width + _GAP, rows * height + _GAP), _PAPER)
    for number, tile in enumerate(tiles):
        sheet.paste(tile, (_GAP + number % columns * width, _GAP + number // columns * height))
    return sheet


def checked_count(count: int) -> int:
    """The number of pictures of a sheet. Raises `OptionError` for too many."""
    return check_int("the number of pictures", count, 1, MOST)


def nothing_to_show() -> OptionError:
    """The error for a sheet without pictures."""
    return OptionError("Wanted a picture to show. Found: none")


def _tile(batch: Samples, place: int, class_names: Mapping[int, str]) -> Image.Image:
    """A picture, its mask below it if it has one, the name of its class and its position."""
    cells, caption = [_cell(batch.images[place])], ""
    if len(batch.labels):
        label = int(batch.labels[place])
        caption = _printable(class_names.get(label, ""), instead=f"class {label}")
    elif batch.label_blobs:
        blob = batch.label_blobs[place]
        if blob.startswith(_ARRAY):
            caption = _array_text(blob)
        else:
            cells.append(_mask_cell(blob))
    height = len(cells) * (_CELL + 2) + 2 * _LINE
    tile = Image.new("RGB", (_CELL, height), _PAPER)
    for number, cell in enumerate(cells):
        tile.paste(cell, (0, number * (_CELL + 2)))
    draw, top = ImageDraw.Draw(tile), len(cells) * (_CELL + 2)
    _write(draw, (0, top), caption, _INK)
    _write(draw, (0, top + _LINE * bool(caption)), f"#{batch.positions[place]}", _FAINT)
    return tile


def _cell(data: bytes) -> Image.Image:
    """A whole picture on a square; a note if the bytes are not a picture."""
    picture = decoded_picture(data)
    if isinstance(picture, Exception):
        return _no_picture(f"{len(data):,} bytes")
    return _square(picture, Image.Resampling.LANCZOS)


def _mask_cell(data: bytes) -> Image.Image:
    """A mask with a colour for each of its numbers, 0 black; a mask with colours as it is."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as mask:
            numbers = np.asarray(mask)
            if numbers.ndim == 3:
                return _square(mask.convert("RGB"), Image.Resampling.NEAREST)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return _no_picture(f"label of {len(data):,} bytes")
    colours = (255 * _COLOURS[numbers.astype(np.int64) % len(_COLOURS)]).astype(np.uint8)
    return _square(Image.fromarray(colours), Image.Resampling.NEAREST)


def _square(picture: Image.Image, how: Image.Resampling) -> Image.Image:
    if max(picture.size) < _CELL // 2:
        how = Image.Resampling.NEAREST  # the pixels of a small picture can be seen
    return ImageOps.pad(picture, (_CELL, _CELL), how, color=_FRAME)


def _no_picture(what: str) -> Image.Image:
    cell = Image.new("RGB", (_CELL, _CELL), _FRAME)
    draw = ImageDraw.Draw(cell)
    draw.rectangle((0, 0, _CELL - 1, _CELL - 1), outline=_ALARM, width=2)
    for line, text in enumerate(("cannot be", "decoded", what)):
        _write(draw, (8, 40 + line * _LINE), text, _ALARM)
    return cell


def _array_text(data: bytes) -> str:
    try:
        values = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except (OSError, ValueError):
        return "cannot be decoded"
    return " ".join(f"{value:g}" for value in values.ravel()[:MOST].tolist())


def _printable(name: str, *, instead: str) -> str:
    """A name without accents if that is ASCII, which Pillow's own font is limited to; otherwise ``instead``."""
    text = "".join(one for one in unicodedata.normalize("NFKD", name) if not unicodedata.combining(one))
    return text if text and text.isascii() else instead


def _write(draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, colour: tuple[int, int, int]) -> None:
    """One line of text, cut where it does not fit."""
    font = ImageFont.load_default(12)
    room = _CELL - place[0]
    if font.getlength(text) > room:
        while text and font.getlength(f"{text}…") > room:
            text = text[:-1]
        text = f"{text}…"
    draw.text(place, text, colour, font=font)
