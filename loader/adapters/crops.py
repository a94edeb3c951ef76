"""Random crops as of torchvision's RandomResizedCrop, whose random numbers are computed by key (`Draws`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.errors import OptionError
from loader.options import check_numbers
from loader.order.draws import Draws

CROP_AREA = (0.08, 1.0)
_RATIOS = (3 / 4, 4 / 3)
# Windows that are tried. Of a picture twice as wide as high, three of five do not fit; then the largest one is taken.
_TRIES = 16
_LARGEST = 1 << 24  # pixels of a side: a damaged header can say more, and DALI does not decode it


def check_crop_area(area: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest share. Raises `OptionError`."""
    smallest, largest = check_numbers("crop_area", area, 2)
    if not 0 < smallest <= largest <= 1:
        raise OptionError(f"Wanted crop_area as two shares of an image, in ascending order. Found: {area!r}")
    return smallest, largest


def crop_numbers(draws: Draws, *, area: tuple[float, float] = CROP_AREA) -> NDArray[np.int32]:
    """Draw a window for each picture: the first of 16 that fits, or the largest one.

    Args:
        draws: The random numbers of the batch, with the sizes of its pictures, as ``numbers`` of a graph gets them.
        area: The smallest and largest share of a picture that a window has.

    Returns:
        int32 ``(b, 2, 2)``: where the windows start (y and x), and their shapes (height and width), in pixels.

    Raises:
        OptionError: ``area`` is not two shares of a picture in ascending order, or the sizes are not known.
    """
    smallest, largest = check_crop_area(area)
    if draws.sizes is None:
        raise OptionError("Wanted Draws with the sizes of the pictures. Found: none. Crop in a DALI graph.")
    areas = draws.uniform(_TRIES, low=smallest, high=largest)
    ratios = np.exp(draws.uniform(_TRIES, low=np.log(_RATIOS[0]), high=np.log(_RATIOS[1])))
    sides = draws.sizes.clip(max=_LARGEST).astype(np.float32)
    shorter = sides.min(axis=1, keepdims=True)
    # The sides of a window are those of a window of the square times the side of a square as large as the picture.
    scale = np.sqrt(sides.max(axis=1, keepdims=True) * shorter)
    windows = np.stack([np.sqrt(areas / ratios) * scale, np.sqrt(areas * ratios) * scale], axis=2)
    fits = np.all(windows <= sides[:, None], axis=2)
    first = windows[np.arange(len(windows)), fits.argmax(axis=1)]
    most = np.minimum(sides, shorter * _RATIOS[1])
    first = np.where(np.any(fits, axis=1, keepdims=True), np.minimum(first, most), most)
    shape = np.maximum(np.floor(first + 0.5), 1)
    start = np.floor(draws.uniform(2) * (sides - shape + 1))
    return np.stack([start, shape], axis=1).astype(np.int32)


def crop_window(numbers: Any) -> dict[str, Any]:
    """The window of each picture in a DALI graph, from `crop_numbers`.

    ``fn.decoders.image_slice(files, **crop_window(numbers))`` decodes it alone.

    Args:
        numbers: The output of the source that has the values of `crop_numbers`.

    Returns:
        Arguments of ``fn.decoders.image_slice`` and ``fn.slice``: ``start`` (y and x) and ``shape`` (height and width)
        in pixels, and ``axes``.
    """
    return {"start": numbers[0], "shape": numbers[1], "axes": [0, 1]}
