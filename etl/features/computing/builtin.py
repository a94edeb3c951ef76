"""The built-in feature views.

A change of what a view computes is a new version: raise its number in `VIEWS`, so that old values stay apart.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageStat

from etl.features.computing.pictures import Picture
from schemas.feature_sources import Builtin
from schemas.features import FeatureView

_CHANNELS = ("red", "green", "blue")
_SIDE = 32  # of the copy for a perceptual hash, as in imagehash
_LEAST_DETAIL = 2.0  # the least standard deviation of that copy, of 255


def size(picture: Picture) -> dict[str, int]:
    """The width and height in pixels, upright."""
    return dict(zip(("size_width", "size_height"), picture.rgb.size, strict=True))


def channels(picture: Picture) -> dict[str, float]:
    """The mean and the standard deviation of each channel, from 0 to 255."""
    found = ImageStat.Stat(picture.rgb)
    means = {f"channels_mean_{name}": value for name, value in zip(_CHANNELS, found.mean, strict=True)}
    deviations = {f"channels_deviation_{name}": value for name, value in zip(_CHANNELS, found.stddev, strict=True)}
    return means | deviations


def brightness(picture: Picture) -> float:
    """The mean gray value, from 0 to 255."""
    return ImageStat.Stat(picture.gray).mean[0]


def sharpness(picture: Picture) -> float | None:
    """The variance of the Laplacian of the gray values (Pech-Pacheco et al., 2000); None below 3 x 3 pixels. Blurred
    photographs have values below about 100. The value depends on the size of the image.
    """
    gray = np.asarray(picture.gray)
    height, width = gray.shape
    if min(height, width) < 3:
        return None
    # the Laplacian: the sum of the four neighbors less four times the pixel, without the border
    flat = gray.astype(np.int16).ravel()  # whole rows at a time: the sums across a line's end are left out below
    sums = flat[: -2 * width] + flat[2 * width :]
    sums[1:] += flat[width : -width - 1]
    sums[:-1] += flat[width + 1 : -width]
    sums -= flat[width:-width] << 2
    laplacian = sums.reshape(height - 2, width)[:, 1:-1]
    squares = int(np.square(laplacian, dtype=np.int32).sum(dtype=np.int64))
    return squares / laplacian.size - (int(laplacian.sum(dtype=np.int64)) / laplacian.size) ** 2


def entropy(picture: Picture) -> float:
    """The Shannon entropy of the gray values' histogram, in bits: 0 for one colour, at most 8."""
    counts = np.array(picture.gray.histogram(), np.float64)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum()) + 0.0


def phash(picture: Picture) -> int | None:
    """The perceptual hash, signed 64 bits (imagehash's ``phash``, most significant bit first), from the low frequencies
    of a small gray copy; None for images with almost no detail.
    """
    import imagehash

    small = picture.gray.resize((_SIDE, _SIDE), Image.Resampling.LANCZOS, reducing_gap=3.0)
    if np.asarray(small).std() < _LEAST_DETAIL:  # all empty pages look alike, which means nothing
        return None
    return int.from_bytes(np.packbits(imagehash.phash(small).hash).tobytes(), "big", signed=True)


@dataclass(frozen=True, slots=True)
class BuiltinView:
    """A built-in view: its version, its function, its fields, and the package that the function needs."""

    version: int
    compute: Callable[[Picture], Any]
    fields: Mapping[str, str]
    package: str | None = None


VIEWS = {
    "size": BuiltinView(1, size, {"size_width": "int", "size_height": "int"}),
    "channels": BuiltinView(
        2, channels, {f"channels_{kind}_{name}": "float" for kind in ("mean", "deviation") for name in _CHANNELS}
    ),
    "brightness": BuiltinView(2, brightness, {"brightness": "float"}),
    "sharpness": BuiltinView(2, sharpness, {"sharpness": "float"}),
    "entropy": BuiltinView(2, entropy, {"entropy": "float"}),
    "phash": BuiltinView(2, phash, {"phash": "bigint"}, package="imagehash"),
}


def view_of(name: str) -> FeatureView:
    """The definition of a built-in view."""
    found = VIEWS[name]
    source = Builtin(name)
    digest = hashlib.sha256(f"{source}@v{found.version}".encode()).hexdigest()
    return FeatureView(name=name, version=found.version, fields=found.fields, source=source, digest=digest)
