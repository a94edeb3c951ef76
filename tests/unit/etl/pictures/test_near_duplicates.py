"""Near-duplicates: hashes of real images, and how close ones are found and joined."""

import io
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from etl.errors import EtlError
from etl.pictures import near_duplicates
from etl.pictures.near_duplicates import band_masks, components, picture_hash
from tests.support.near_duplicates import brute_force

MASK = (1 << 64) - 1


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


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
    return encoded(image.transpose(Image.Transpose.ROTATE_90), quality=90, exif=exif)


COPIES: dict[str, Callable[[Image.Image], bytes]] = {
    "other quality": lambda image: encoded(image, quality=40),
    "half the size": lambda image: encoded(image.resize((image.width // 2, image.height // 2)), quality=85),
    "another format": lambda image: encoded(image, "PNG"),
    "with alpha": lambda image: encoded(image.convert("RGBA"), "PNG"),
    "palette": lambda image: encoded(image.quantize(256), "PNG"),
    "webp": lambda image: encoded(image, "WEBP", quality=80),
    "grey": lambda image: encoded(image.convert("L"), quality=90),
    "cmyk": lambda image: encoded(image.convert("CMYK"), quality=90),
    "16 bits": lambda image: encoded(Image.fromarray(np.asarray(image.convert("L"), np.uint16) * 200), "PNG"),
    "brighter": lambda image: encoded(brighter(image), quality=85),
    "upright by EXIF": turned,
}


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("name", ["china", "flower"])
def test_copies_of_a_photo_look_like_it(name: str, copy: str) -> None:
    original = photo(name)
    assert bits_between(picture_hash(encoded(original, quality=92)), picture_hash(COPIES[copy](original))) <= 3


def test_different_pictures_do_not_look_alike() -> None:
    boxes = [(x, y, x + 200, y + 200) for x in (0, 210, 420) for y in (0, 210)]
    hashes = [picture_hash(encoded(photo(name, box))) for name in ("china", "flower") for box in boxes]
    known = [value for value in hashes if value is not None]
    assert len(known) > 8
    assert min(bits_between(*pair) for pair in itertools.combinations(known, 2)) > 3
    one = photo().transpose(Image.Transpose.ROTATE_90)
    assert bits_between(picture_hash(encoded(photo())), picture_hash(encoded(one))) > 3


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


def test_damaged_pictures_have_no_hash() -> None:
    whole = encoded(photo(), "PNG")
    assert [picture_hash(data) for data in (b"", b"text", whole[:1000], whole[:20])] == [None] * 4
    broken = encoded(photo(), exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01")
    assert bits_between(picture_hash(broken), picture_hash(encoded(photo()))) == 0


def test_a_missing_package_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_duplicates, "find_spec", lambda name: None)
    with pytest.raises(EtlError, match="pip install imagehash"):
        picture_hash(b"")


@settings(deadline=None)
@given(
    rows=st.integers(0, 1 << 34),
    distance=st.integers(0, near_duplicates.MAX_DISTANCE),
    value=st.integers(0, MASK),
    flipped=st.sets(st.integers(0, 63), max_size=near_duplicates.MAX_DISTANCE),
)
def test_near_hashes_agree_under_some_mask(rows: int, distance: int, value: int, flipped: set[int]) -> None:
    masks = band_masks(rows, distance)
    assert len(masks) <= 40
    near = value ^ sum(1 << bit for bit in itertools.islice(sorted(flipped), distance))
    assert any(value & mask == near & mask for mask in masks)


def test_masks_keep_more_bits_for_more_hashes() -> None:
    kept = [(len(masks), min(m.bit_count() for m in masks)) for masks in (band_masks(10**n, 3) for n in (3, 6, 9))]
    assert kept == [(4, 16), (10, 25), (20, 31)]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60))
def test_components_agree_with_brute_force(numbers: list[tuple[int, int]]) -> None:
    pairs = [(one * (MASK // 40), other * (MASK // 40)) for one, other in numbers if one != other]
    first, second = (np.array([pair[i] for pair in pairs], np.uint64).view(np.int64) for i in (0, 1))
    nodes, roots = components(first, second)
    assert dict(zip(nodes.tolist(), roots.tolist(), strict=True)) == brute_force(pairs)


def test_long_chains_are_one_component() -> None:
    order = np.random.default_rng(0).permutation(20_000)
    nodes, roots = components(order[:-1], order[1:])
    assert len(nodes) == 20_000
    assert not roots.any()
