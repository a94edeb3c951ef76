"""Look-alikes: hashes of real pictures, and groups against brute force."""

import io
import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits, load_sample_image
from spark_rows import rows_of

from etl import look_alikes
from etl.errors import EtlError
from etl.look_alikes import HASHES, band_masks, components, group_look_alikes, picture_hash

MASK = (1 << 64) - 1


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def photo(name: str = "china", box: tuple[int, int, int, int] = (0, 0, 640, 420)) -> Image.Image:
    return Image.fromarray(load_sample_image(f"{name}.jpg")).crop(box)


def bits_between(one: int | None, other: int | None) -> int:
    assert one is not None
    assert other is not None
    return ((one ^ other) & MASK).bit_count()


def brighter(image: Image.Image) -> Image.Image:
    return image.point([min(255, int(value * 1.06 + 4)) for value in range(256)] * 3)


def turned(image: Image.Image) -> bytes:
    """Stored on its side, with the EXIF orientation that sets it upright again."""
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


def test_other_pictures_do_not() -> None:
    boxes = [(x, y, x + 200, y + 200) for x in (0, 210, 420) for y in (0, 210)]
    hashes = [picture_hash(encoded(photo(name, box))) for name in ("china", "flower") for box in boxes]
    known = [value for value in hashes if value is not None]
    assert len(known) > 8
    assert min(bits_between(*pair) for pair in itertools.combinations(known, 2)) > 3
    one = photo().transpose(Image.Transpose.ROTATE_90)
    assert bits_between(picture_hash(encoded(photo())), picture_hash(encoded(one))) > 3


def test_digits_that_look_alike_are_the_same_digit() -> None:
    digits = load_digits()
    images = (Image.fromarray((pixels * 255 / 16).astype(np.uint8)) for pixels in digits.images)
    hashes = np.array([picture_hash(encoded(image, "PNG")) for image in images], np.int64)
    distances = np.bitwise_count(hashes[:, None].view(np.uint64) ^ hashes[None, :].view(np.uint64))
    first, second = np.nonzero(np.triu(distances <= 3, 1))
    assert len(first) < 50
    assert (digits.target[first] == digits.target[second]).all()


def test_what_shows_nothing_has_no_hash() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 2, (64, 64, 3), np.uint8))
    clear = Image.new("RGBA", (64, 64), (0, 0, 0, 0))
    pictures = [Image.new("RGB", (300, 200), shade) for shade in ("black", "white", "red")]
    assert [picture_hash(encoded(picture, "PNG")) for picture in [*pictures, noise, clear]] == [None] * 5


def test_what_cannot_be_decoded_has_no_hash() -> None:
    whole = encoded(photo(), "PNG")
    assert [picture_hash(data) for data in (b"", b"text", whole[:1000], whole[:20])] == [None] * 4
    broken = encoded(photo(), exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01")
    assert bits_between(picture_hash(broken), picture_hash(encoded(photo()))) == 0


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_alikes, "find_spec", lambda name: None)
    with pytest.raises(EtlError, match="pip install imagehash"):
        picture_hash(b"")


@settings(deadline=None)
@given(
    rows=st.integers(0, 1 << 34),
    distance=st.integers(0, look_alikes.MAX_DISTANCE),
    value=st.integers(0, MASK),
    flipped=st.sets(st.integers(0, 63), max_size=look_alikes.MAX_DISTANCE),
)
def test_near_hashes_are_the_same_under_some_mask(rows: int, distance: int, value: int, flipped: set[int]) -> None:
    masks = band_masks(rows, distance)
    assert len(masks) <= 40
    near = value ^ sum(1 << bit for bit in itertools.islice(sorted(flipped), distance))
    assert any(value & mask == near & mask for mask in masks)


def test_masks_keep_more_bits_for_more_hashes() -> None:
    kept = [(len(masks), min(m.bit_count() for m in masks)) for masks in (band_masks(10**n, 3) for n in (3, 6, 9))]
    assert kept == [(4, 16), (10, 25), (20, 31)]


def brute_force(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Each unsigned hash of the pairs, with the smallest that it is joined with."""
    groups: dict[int, set[int]] = {}
    for one, other in pairs:
        together = groups.get(one, {one}) | groups.get(other, {other})
        groups.update(dict.fromkeys(together, together))
    return {value: min(group) for value, group in groups.items()}


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60))
def test_components_are_those_of_brute_force(numbers: list[tuple[int, int]]) -> None:
    pairs = [(one * (MASK // 40), other * (MASK // 40)) for one, other in numbers if one != other]
    first, second = (np.array([pair[i] for pair in pairs], np.uint64).view(np.int64) for i in (0, 1))
    nodes, roots = components(first, second)
    assert dict(zip(nodes.tolist(), roots.tolist(), strict=True)) == brute_force(pairs)


def test_long_chains_are_one_component() -> None:
    order = np.random.default_rng(0).permutation(20_000)
    nodes, roots = components(order[:-1], order[1:])
    assert len(nodes) == 20_000
    assert not roots.any()


def families(seed: int) -> list[int]:
    """Random hashes with relatives of theirs at a few bits, chains and twins among them."""
    rng = random.Random(seed)
    found = []
    for _ in range(150):
        value = rng.getrandbits(64)
        for _ in range(rng.randrange(1, 5)):
            found.append(value)
            value ^= sum(1 << bit for bit in rng.sample(range(64), rng.randrange(0, 6)))
    return found


def expected(values: list[int], distance: int) -> dict[int, str]:
    """Groups by the place of the value, compared each with each."""
    twins = [value for value, other in itertools.pairwise(sorted(values)) if value == other]
    near = [(a, b) for a, b in itertools.combinations(sorted(set(values)), 2) if (a ^ b).bit_count() <= distance]
    roots = {**dict(zip(twins, twins, strict=True)), **brute_force(near)}
    return {i: f"look-{roots[value]:016x}" for i, value in enumerate(values) if value in roots}


@pytest.mark.parametrize(("distance", "partitions", "driver_pairs"), [(3, 1, 10**6), (3, 5, 200), (0, 3, 10**6)])
def test_groups_are_those_of_brute_force(
    spark: SparkSession, distance: int, partitions: int, driver_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_alikes, "_DRIVER_PAIRS", driver_pairs)
    values = families(distance)
    signed = [value - (1 << 64) if value >> 63 else value for value in values]
    rows = [(bytearray(i.to_bytes(16, "big")), value) for i, value in enumerate(signed)]
    blank: list[tuple[bytearray, int | None]] = [(bytearray((10**6 + i).to_bytes(16, "big")), None) for i in range(3)]
    hashes = rows_of(spark, [*rows, *blank], HASHES).repartition(partitions)
    found = {
        int.from_bytes(row.id, "big"): row.group_id for row in group_look_alikes(hashes, distance=distance).collect()
    }
    assert found == expected(values, distance)


def test_many_pairs_are_thinned_out_and_too_many_are_told(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = [sum(1 << bit for bit in bits) for bits in itertools.combinations(range(12), 2)]  # each near all others
    hashes = rows_of(spark, [(bytearray(i.to_bytes(16, "big")), value) for i, value in enumerate(crowd)], HASHES)
    monkeypatch.setattr(look_alikes, "_DRIVER_PAIRS", 100)
    found = group_look_alikes(hashes, distance=4).collect()
    assert len(found) == len(crowd)
    assert {row.group_id for row in found} == {"look-0000000000000003"}
    monkeypatch.setattr(look_alikes, "_DRIVER_PAIRS", 10)
    monkeypatch.setattr(look_alikes, "_ROUNDS", 2)
    with pytest.raises(EtlError, match=r"at most 10 pairs.*Found: 65, within a distance of 4"):
        group_look_alikes(hashes, distance=4)


def test_a_distance_that_cannot_be_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match=r"0 to 8 bits\. Found: 9"):
        group_look_alikes(rows_of(spark, [], HASHES), distance=9)
