"""Random windows of pictures in a DALI graph: inside the picture, and as often of each size as torchvision's."""

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from loader.adapters.crops import crop_numbers, crop_window
from loader.order.draws import Draws
from tests.support.encoding import encoded
from tests.support.pictures import exif

COUNT = 4000


def windows(width: int, height: int, *, area: tuple[float, float] = (0.08, 1.0), tag: int = 1) -> NDArray[np.int32]:
    """The windows of so many samples with one picture: y, x, height and width."""
    from nvidia.dali import Pipeline, fn, types

    image = encoded(Image.new("RGB", (width, height)), "JPEG", exif=exif(tag))
    file = np.frombuffer(image, dtype=np.uint8)
    draws = Draws(seed=1, epoch=0, places=np.arange(COUNT, dtype=np.int64))
    numbers = crop_numbers(draws, area=area)
    pipeline = Pipeline(batch_size=COUNT, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        files = fn.external_source([[file] * COUNT], dtype=types.UINT8, ndim=1)
        window = crop_window(files, fn.external_source([numbers], dtype=types.FLOAT, ndim=2))
        pipeline.set_outputs(window["start"], window["shape"])
    return np.concatenate([np.array(one.as_tensor()) for one in pipeline.run()], axis=1)


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


def test_the_window_of_a_turned_picture_is_one_of_the_upright_picture() -> None:
    y, x, h, w = windows(300, 100, tag=6).T  # 100 wide, 300 high
    assert (x + w).max() == 100
    assert (y + h).max() == 300
    assert (h <= w * 4 / 3 + 1).all()


@pytest.mark.parametrize("size", [(1, 1), (1, 90), (40, 3)])
def test_tiny_pictures_can_be_cropped(size: tuple[int, int]) -> None:
    found = windows(*size, area=(0.01, 0.02))
    assert found[:, 2:].min() == 1
