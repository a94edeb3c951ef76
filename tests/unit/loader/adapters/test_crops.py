"""Random windows of pictures: inside the picture, and as often of each size as torchvision's."""

import numpy as np
import pytest
from numpy.typing import NDArray

from loader.adapters.crops import crop_numbers
from loader.errors import OptionError
from loader.order.draws import Draws

COUNT = 4000


def windows(width: int, height: int, *, area: tuple[float, float] = (0.08, 1.0)) -> NDArray[np.int32]:
    """The windows of so many samples with one picture: y, x, height and width."""
    sizes = np.full((COUNT, 2), (height, width), dtype=np.int64)
    draws = Draws(seed=1, epoch=0, places=np.arange(COUNT, dtype=np.int64), sizes=sizes)
    return crop_numbers(draws, area=area).reshape(COUNT, 4)


def plain(width: int, height: int, area: tuple[float, float]) -> NDArray[np.float64]:
    """Heights and widths of windows that fit, by trial and error."""
    numbers = np.random.default_rng(0)
    areas = numbers.uniform(*area, 50_000) * width * height
    ratios = np.exp(numbers.uniform(np.log(3 / 4), np.log(4 / 3), 50_000))
    sides = np.stack([np.sqrt(areas / ratios), np.sqrt(areas * ratios)], axis=1)
    return sides[(sides[:, 0] <= height) & (sides[:, 1] <= width)]


@pytest.mark.parametrize("sides", [(64, 64), (300, 200), (200, 300), (3, 2), (1, 1), (1, 50), (500, 20)])
def test_windows_are_inside_the_picture_and_have_at_least_a_pixel(sides: tuple[int, int]) -> None:
    width, height = sides
    found = windows(width, height)
    y, x, h, w = found.T
    assert min(y.min(), x.min()) == 0
    assert min(h.min(), w.min()) >= 1
    assert (y + h).max() == height
    assert (x + w).max() == width
    assert (np.maximum(h / (w + 1), w / (h + 1)) <= 4 / 3).all()


@pytest.mark.parametrize("area", [(0.08, 1.0), (0.5, 0.6)])
@pytest.mark.parametrize("sides", [(400, 400), (500, 375), (600, 200)])
def test_windows_are_as_large_as_those_of_trial_and_error(sides: tuple[int, int], area: tuple[float, float]) -> None:
    width, height = sides
    found, expected = windows(width, height, area=area)[:, 2:], plain(width, height, area)
    if not len(expected):  # none fits: the largest one
        assert (found == (height, round(height * 4 / 3))).all()
        return
    is_largest = (found == (height, round(height * 4 / 3))).all(axis=1)
    assert is_largest.mean() < 0.05
    found = found[~is_largest]
    ratios, shares = found[:, 1] / found[:, 0], found.prod(axis=1) / (width * height)
    assert 0.73 < ratios.min() < 0.77
    assert area[0] - 0.01 < shares.min()
    assert shares.max() < area[1] + 0.01
    for values, others in zip(found.T, expected.T, strict=True):
        for share in (0.1, 0.25, 0.5, 0.75, 0.9):
            assert abs((values < np.quantile(others, share) + 0.5).mean() - share) < 0.04


def test_all_places_of_a_window_are_equally_likely() -> None:
    y, x, h, w = windows(100, 100, area=(0.25, 0.25)).T
    for start, side in ((y, h), (x, w)):
        counts = np.histogram((start + 0.5) / (101 - side), bins=10, range=(0, 1))[0]
        assert abs(counts - COUNT / 10).max() < 100


@pytest.mark.parametrize("size", [(1, 1), (1, 90), (40, 3)])
def test_tiny_pictures_can_be_cropped(size: tuple[int, int]) -> None:
    found = windows(*size, area=(0.01, 0.02))
    assert found[:, 2:].min() == 1


def test_the_windows_of_a_key_never_change() -> None:
    sizes = np.array([(375, 500), (500, 375), (64, 64), (1, 50), (97, 1021)])
    wanted = [
        *([[0, 58], [356, 426]], [[247, 30], [218, 253]], [[11, 2], [43, 51]]),
        *([[0, 44], [1, 1]], [[0, 264], [97, 129]]),
    ]
    found = crop_numbers(Draws(seed=7, epoch=3, places=np.arange(5), sizes=sizes))
    assert (found.dtype, found.tolist()) == (np.int32, wanted)


def test_windows_of_pictures_without_a_size_are_refused() -> None:
    with pytest.raises(OptionError, match=r"Draws with the sizes of the pictures\. Found: none"):
        crop_numbers(Draws(seed=0, epoch=0, places=np.arange(2)))


@pytest.mark.parametrize("side", [0, (1 << 32) - 1])
def test_sides_of_a_damaged_header_are_left_to_the_decoder(side: int) -> None:
    crop_numbers(Draws(seed=0, epoch=0, places=np.arange(2), sizes=np.array([(side, 1), (side, side)])))
