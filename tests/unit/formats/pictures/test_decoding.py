"""The one decoder: the pixels of every kind of file, which the test makes and therefore knows."""

import io

import numpy as np
import pytest
from PIL import Image

from formats.errors import PictureError
from formats.pictures.decoding import decode
from tests.support.picture_kinds import Kind, kinds, png, tiff
from tests.support.pictures import exif

KINDS = {f"{kind.group}: {kind.name}": kind for kind in kinds()}
EIGHT_BITS = np.arange(65_536, dtype=np.uint16).reshape(256, 256)
THREE = np.dstack([EIGHT_BITS, EIGHT_BITS[::-1], EIGHT_BITS.T])


def difference(found: Image.Image, wanted: np.ndarray) -> float:
    """The mean difference of two images of the same size."""
    assert found.mode == "RGB"
    assert (found.height, found.width, 3) == wanted.shape
    return float(np.abs(np.asarray(found).astype(int) - wanted).mean())


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_file_of_each_kind_has_its_pixels_or_is_refused(kind: Kind) -> None:
    if kind.upright is None:
        with pytest.raises(PictureError, match=r"unsupported pixels: .*, whose range is not known|no picture"):
            decode(kind.data)
        return
    assert difference(decode(kind.data), kind.upright) <= kind.most
    if kind.stored is not None:
        # ImageFolder's pixels: Pillow itself turns TIFF.
        stored = kind.upright if kind.group == "TIFF" else kind.stored
        found = decode(kind.data, orientation="stored")
        assert difference(found, stored) <= kind.most
        if "16 bits" not in kind.name:
            assert difference(Image.open(io.BytesIO(kind.data)).convert("RGB"), np.asarray(found)) == 0


@pytest.mark.parametrize(
    "data",
    [
        png(THREE, bits=16, colour=2),
        png(np.dstack([THREE, EIGHT_BITS]), bits=16, colour=6),
        png(EIGHT_BITS, bits=16, colour=0),
        png(np.dstack([EIGHT_BITS, THREE[..., 1]]), bits=16, colour=4),
        tiff(THREE, bits=16),
        tiff(np.dstack([THREE, EIGHT_BITS]), bits=16, order=">", extra=True),
        tiff(65_535 - EIGHT_BITS, bits=16, photometric=0),
        b"P6 256 256 65535\n" + THREE.astype(">u2").tobytes(),
        b"P5 256 256 65535\n" + EIGHT_BITS.astype(">u2").tobytes(),
    ],
    ids=[
        "PNG RGB",
        "PNG RGBA",
        "PNG gray",
        "PNG gray and alpha",
        "TIFF",
        "TIFF, big endian",
        "white is 0",
        "PPM",
        "PGM",
    ],
)
def test_each_of_the_values_of_16_bits_is_rounded_to_the_nearest_of_8(data: bytes) -> None:
    found = np.asarray(decode(data))
    wanted = np.rint(THREE / 257) if np.ptp(found, axis=-1).any() else np.rint(THREE[..., :1] / 257).repeat(3, axis=-1)
    assert np.array_equal(found, wanted)


def test_a_tiff_of_12_bits_is_scaled_by_its_own_range() -> None:
    rows = np.array([[0xFF, 0xF7, 0xFF], [0x00, 0x08, 0x00]], np.uint8)  # 4095 and 2047; 0 and 2048
    data = tiff(rows).replace(b"\0\1\4\0\1\0\0\0\3\0\0\0", b"\0\1\4\0\1\0\0\0\2\0\0\0", 1)  # two pixels wide
    data = data.replace(b"\2\1\3\0\1\0\0\0\x08", b"\2\1\3\0\1\0\0\0\x0c", 1)
    assert np.asarray(decode(data, mode="L")).tolist() == [[255, 127], [0, 128]]


def test_gray_and_transparency_are_there_for_those_who_ask() -> None:
    pixels = np.dstack([np.full((2, 3, 3), 7, np.uint8), np.arange(6, dtype=np.uint8).reshape(2, 3)])
    data = png(pixels, colour=6, chunks=((b"eXIf", exif(3).removeprefix(b"Exif\0\0")),))
    assert np.array_equal(np.asarray(decode(data, mode="RGBA")), pixels[::-1, ::-1])
    assert np.asarray(decode(data, mode="L")).tolist() == [[7] * 3] * 2


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "no picture of these formats: JPEG, PNG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no picture of these formats"),
        (KINDS["JPEG: RGB"].data[:-200], "truncated"),
        (KINDS["PNG: RGB"].data[:200], "truncated"),
        (b"P6 100000 100000 255\n", "exceeds limit"),
    ],
    ids=["nothing", "PostScript", "half a JPEG", "half a PNG", "a bomb"],
)
def test_what_is_no_picture_is_refused_with_the_reason(data: bytes, found: str) -> None:
    with pytest.raises(PictureError, match=found):
        decode(data)
