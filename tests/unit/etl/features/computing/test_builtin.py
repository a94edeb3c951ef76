"""Perceptual hashes of real images: copies have nearly the same, different pictures do not."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from etl.errors import FunctionError
from etl.features.computing import functions
from etl.features.computing.builtin import phash
from etl.features.computing.pictures import Picture
from schemas.feature_sources import Builtin
from tests.support.encoding import encoded

MASK = (1 << 64) - 1


def picture_hash(data: bytes) -> int | None:
    return phash(Picture(data))


def photo(name: str = "china", box: tuple[int, int, int, int] = (0, 0, 640, 420)) -> Image.Image:
    from sklearn.datasets import load_sample_image

    return Image.fromarray(load_sample_image(f"{name}.jpg")).crop(box)


def bits_between(one: int | None, other: int | None) -> int:
    assert one is not None
    assert other is not None
    return ((one ^ other) & MASK).bit_count()


def brighter(image: Image.Image) -> Image.Image:
    return image.point([min(255, int(value * 1.06 + 4)) for value in range(256)] * 3)


def turned(image: Image.Image) -> bytes:
    """Stored rotated, with an EXIF orientation that turns it upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(image.transpose(Image.Transpose.ROTATE_90), "JPEG", quality=90, exif=exif)


COPIES: dict[str, Callable[[Image.Image], bytes]] = {
    "other quality": lambda image: encoded(image, "JPEG", quality=40),
    "half the size": lambda image: encoded(image.resize((image.width // 2, image.height // 2)), "JPEG", quality=85),
    "another format": lambda image: encoded(image, "PNG"),
    "with alpha": lambda image: encoded(image.convert("RGBA"), "PNG"),
    "palette": lambda image: encoded(image.quantize(256), "PNG"),
    "webp": lambda image: encoded(image, "WEBP", quality=80),
    "grey": lambda image: encoded(image.convert("L"), "JPEG", quality=90),
    "cmyk": lambda image: encoded(image.convert("CMYK"), "JPEG", quality=90),
    "16 bits": lambda image: encoded(Image.fromarray(np.asarray(image.convert("L"), np.uint16) * 200), "PNG"),
    "brighter": lambda image: encoded(brighter(image), "JPEG", quality=85),
    "upright by EXIF": turned,
}


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("name", ["china", "flower"])
def test_copies_of_a_photo_look_like_it(name: str, copy: str) -> None:
    original = photo(name)
    assert bits_between(picture_hash(encoded(original, "JPEG", quality=92)), picture_hash(COPIES[copy](original))) <= 3


def test_different_pictures_do_not_look_alike() -> None:
    boxes = [(x, y, x + 200, y + 200) for x in (0, 210, 420) for y in (0, 210)]
    hashes = [picture_hash(encoded(photo(name, box), "JPEG")) for name in ("china", "flower") for box in boxes]
    known = [value for value in hashes if value is not None]
    assert len(known) > 8
    assert min(bits_between(*pair) for pair in itertools.combinations(known, 2)) > 3
    one = photo().transpose(Image.Transpose.ROTATE_90)
    assert bits_between(picture_hash(encoded(photo(), "JPEG")), picture_hash(encoded(one, "JPEG"))) > 3


def test_digits_that_look_alike_are_the_same_digit() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (Image.fromarray((pixels * 255 / 16).astype(np.uint8)) for pixels in digits.images)
    hashes = np.array([picture_hash(encoded(image, "PNG")) for image in images], np.int64)
    distances = np.bitwise_count(hashes[:, None].view(np.uint64) ^ hashes[None, :].view(np.uint64))
    first, second = np.nonzero(np.triu(distances <= 3, 1))
    assert len(first) < 50
    assert (digits.target[first] == digits.target[second]).all()


def test_pictures_without_detail_have_no_hash() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 2, (64, 64, 3), np.uint8))
    clear = Image.new("RGBA", (64, 64), (0, 0, 0, 0))
    pictures = [Image.new("RGB", (300, 200), shade) for shade in ("black", "white", "red")]
    assert [picture_hash(encoded(picture, "PNG")) for picture in [*pictures, noise, clear]] == [None] * 5


def test_a_missing_package_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "find_spec", lambda name: None)
    with pytest.raises(FunctionError, match=r"Wanted the package imagehash, .* Run: pip install imagehash"):
        functions.load(Builtin("phash"))
