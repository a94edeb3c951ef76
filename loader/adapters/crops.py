"""Random crops as of torchvision's RandomResizedCrop, whose random numbers are computed by key (`Draws`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.dali import dali
from loader.errors import OptionError
from loader.options import check_numbers
from loader.order.draws import Draws

CROP_AREA = (0.08, 1.0)
_RATIOS = (3 / 4, 4 / 3)
# Windows that are tried. Of a picture twice as wide as high, three of five do not fit; then the largest one is taken.
_TRIES = 16
# Ranks of the tries, the first one best; the last column always fits.
_RANKS = np.arange(_TRIES + 1, 0, -1, dtype=np.float32)
_MOST = np.array([1.0] * _TRIES + [np.inf], dtype=np.float32)


def check_crop_area(area: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest share. Raises `OptionError`."""
    smallest, largest = check_numbers("crop_area", area, 2)
    if not 0 < smallest <= largest <= 1:
        raise OptionError(f"Wanted crop_area as two shares of an image, in ascending order. Found: {area!r}")
    return smallest, largest


def crop_numbers(draws: Draws, *, area: tuple[float, float] = CROP_AREA) -> NDArray[np.float32]:
    """Draw what `crop_window` needs for each sample.

    Args:
        draws: The random numbers of the batch.
        area: The smallest and largest share of a picture that a window has.

    Returns:
        float32 ``(b, 2, 18)``: heights and widths of windows for a square picture of area 1, and where a window is
        between its uppermost and lowest, and between its leftmost and rightmost place.

    Raises:
        OptionError: ``area`` is not two shares of a picture in ascending order.
    """
    smallest, largest = check_crop_area(area)
    areas = draws.uniform(_TRIES, low=smallest, high=largest)
    ratios = np.exp(draws.uniform(_TRIES, low=np.log(_RATIOS[0]), high=np.log(_RATIOS[1])))
    sides = np.stack([np.sqrt(areas / ratios), np.sqrt(areas * ratios)], axis=1)
    whole = np.full((len(draws), 2, 1), np.inf, dtype=np.float32)  # it is cut to what fits
    return np.concatenate([sides, whole, draws.uniform(2)[:, :, None]], axis=2).astype(np.float32)


def crop_window(files: Any, numbers: Any) -> dict[str, Any]:
    """The window of each picture in a DALI graph: the first one of `crop_numbers` that fits, or the largest one.

    ``fn.decoders.image_slice(files, **crop_window(files, numbers))`` decodes it alone.

    Args:
        files: The encoded pictures.
        numbers: The output of the source that has the values of `crop_numbers`.

    Returns:
        Arguments of ``fn.decoders.image_slice`` and ``fn.slice``: ``start`` (y and x) and ``shape`` (height and width)
        in pixels, and ``axes``.
    """
    fn, types, math = dali("fn"), dali("types"), dali("math")
    sides = fn.peek_image_shape(files, dtype=types.FLOAT)[:2]
    # The sides of a window are those of a window of the square times the side of a square as large as the picture.
    shorter = fn.reductions.min(sides)
    scale = math.sqrt(fn.reductions.max(sides) * shorter)
    windows = numbers[:, : _TRIES + 1] * scale
    overhang = fn.reductions.max(windows / fn.expand_dims(sides, axes=[1]), axes=[0])
    ranks = (overhang <= types.Constant(_MOST)) * types.Constant(_RANKS)
    first = _TRIES + 1 - fn.cast(fn.reductions.max(ranks), dtype=types.INT32)
    largest = math.min(sides, shorter * _RATIOS[1])
    shape = math.max(math.floor(math.min(windows[:, first], largest) + 0.5), 1.0)
    start = math.floor(numbers[:, _TRIES + 1] * (sides - shape + 1.0))
    return {"start": fn.cast(start, dtype=types.INT32), "shape": fn.cast(shape, dtype=types.INT32), "axes": [0, 1]}
