"""Epochs whose global batches each have images of one bucket, such as a shape, as orders that are computed, not stored.

A bucket has as many full batches of an epoch as its images fill; the batches of all buckets come in a random order. The
images that are left of a bucket, fewer than a batch, are left out of the epoch. As in `loader.order.strata`, the images
of an epoch are a window of one order of the bucket, which moves on from epoch to epoch: over any number of epochs, the
numbers of times that two images of a bucket come differ by at most one.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats.permutation import Permutations
from loader.errors import OptionError
from loader.options import check_numbers
from loader.order.strata import Classes, Integers, Sampling, classes_of

RATIOS = (3 / 4, 1.0, 4 / 3)


def aspect_buckets(
    widths: Sequence[int], heights: Sequence[int], *, ratios: Sequence[float] = RATIOS
) -> NDArray[np.int32]:
    """Assign each image to the nearest of some aspect ratios, for the option ``buckets`` of sources.

    Args:
        widths: The widths of the images in pixels, ``(n,)``, by position in the split.
        heights: Their heights.
        ratios: Widths over heights, the shapes of the buckets.

    Returns:
        The number of the nearest ratio for each image, int32 ``(n,)``. The distance is that of the logarithms.

    Raises:
        OptionError: The sides are not as many positive numbers each, or a ratio is not above 0.
    """
    try:
        wide, high = (np.asarray(one, dtype=np.float64) for one in (widths, heights))
    except (TypeError, ValueError) as error:
        raise OptionError(f"Wanted widths and heights as numbers. Found: {error}") from None
    if wide.ndim != 1 or wide.shape != high.shape:
        raise OptionError(f"Wanted a width and a height of each image. Found: shapes {wide.shape} and {high.shape}")
    if not (np.isfinite(wide) & np.isfinite(high) & (wide > 0) & (high > 0)).all():
        raise OptionError("Wanted widths and heights above 0. Found: others")
    if not hasattr(ratios, "__len__"):
        raise OptionError(f"Wanted ratios as a list of numbers. Found: {ratios!r}")
    shapes = np.array(check_numbers("ratios", ratios, max(1, len(ratios))))
    if shapes.min() <= 0:
        raise OptionError(f"Wanted ratios above 0. Found: {ratios!r}")
    distances = np.abs(np.log(wide / high)[:, None] - np.log(shapes)[None, :])
    return np.asarray(np.argmin(distances, axis=1), dtype=np.int32)


def buckets_of(given: Any, *, rows: int, batch: int) -> tuple[Sampling, Classes]:
    """The order of an epoch in global batches of ``batch`` images of one bucket each, and the buckets. Raises
    `OptionError`.
    """
    numbers = np.asarray(given)
    if numbers.ndim != 1 or len(numbers) != rows or not np.issubdtype(numbers.dtype, np.integer):
        raise OptionError(
            f"Wanted buckets as one whole number for each of {rows:,} images. Found: {numbers.dtype} {numbers.shape}"
        )
    buckets = classes_of(numbers.astype("<i4"))
    if (buckets.labels != numbers).any():
        raise OptionError("Wanted buckets of 32 bits. Found: larger ones")
    for number, size in zip(buckets.numbers.tolist(), buckets.sizes.tolist(), strict=True):
        if size < batch:
            raise OptionError(
                f"Wanted at least {batch} images, a batch of all ranks, in each bucket. Found: {size} in bucket "
                f"{number}, which would never come. Join it with another one, or use smaller batches."
            )
    return Sampling("bucketed", batch, buckets=hashlib.sha256(buckets.labels.tobytes()).hexdigest()), buckets


class BucketedOrder:
    """The order of one epoch: the positions of the split at its places."""

    def __init__(self, buckets: Classes, batch: int, *, fingerprint: str, seed: int, epoch: int) -> None:
        self._buckets, self._batch = buckets, batch
        key = f"bucketed order 1\0{fingerprint}\0{seed}\0"
        self._cycles = Permutations(f"{key}cycles".encode())  # of the images of a bucket, for all epochs
        self._batches, self._turns = (Permutations(f"{key}{epoch}\0{what}".encode()) for what in ("batches", "turns"))
        full = buckets.sizes // batch
        self._dues = full * batch
        self._ends = np.concatenate([[0], np.cumsum(full)]).astype(np.int64)  # of the batches of each bucket
        begun = [epoch * due % size for due, size in zip(self._dues.tolist(), buckets.sizes.tolist(), strict=True)]
        self._begun = np.array(begun, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._dues.sum())

    def __call__(self, places: Integers, /) -> Integers:
        """The positions at these places: int64 in, int64 of the same shape out."""
        batches, slots = np.divmod(places, self._batch)
        batches = self._batches(batches, int(self._ends[-1]))
        at = np.searchsorted(self._ends, batches, side="right") - 1
        turns = self._turns((batches - self._ends[at]) * self._batch + slots, self._dues[at], at)
        sizes = self._buckets.sizes[at]
        found = self._cycles((self._begun[at] + turns) % sizes, sizes, at)
        positions: Integers = self._buckets.positions[self._buckets.starts[at] + found].astype(np.int64)
        return positions

    def places_of(self, position: int, /) -> list[int]:
        """The place at which a position comes in this epoch; none if it is left out."""
        buckets = self._buckets
        at = int(np.searchsorted(buckets.numbers, buckets.labels[position]))
        start, end = buckets.starts[at : at + 2].tolist()
        index = int(np.searchsorted(buckets.positions[start:end], position))
        turn = (int(self._cycles.inverse(np.array([index]), end - start, at)[0]) - int(self._begun[at])) % (end - start)
        if turn >= self._dues[at]:
            return []
        batch, slot = divmod(int(self._turns.inverse(np.array([turn]), int(self._dues[at]), at)[0]), self._batch)
        batch = int(self._batches.inverse(np.array([int(self._ends[at]) + batch]), int(self._ends[-1]))[0])
        return [batch * self._batch + slot]
