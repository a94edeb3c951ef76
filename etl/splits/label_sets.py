"""Which split each image goes to when an image has several labels, so that every label is shared out. Pure arithmetic.

Iterative stratification (Sechidis, Tsoumakas, Vlahavas 2011, "On the Stratification of Multi-Label Data"): the label
with the fewest images left is dealt out first, each of its images to the split that lacks most images of it. What rare
labels put out of balance, frequent ones can make good later; a rare one that came last could make good nothing::

    wanted of the label    split 0   7    split 1   2.1    split 2   0.9
    its next image goes to       ^ and takes one from 0's desire for each label that it has
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class LabelSets:
    """The labels of each image, image after image (CSR).

    Image ``i`` has ``labels[starts[i]:starts[i + 1]]``. Raises ValueError for arrays that do not fit together.
    """

    starts: NDArray[np.int64]
    """``(n + 1,)``, ascending from 0 to the number of labels."""
    labels: NDArray[np.int64]
    """``(k,)`` label numbers from 0, with gaps or without, each at most once an image, in any order within it."""
    order: NDArray[np.int64]
    """``(n,)`` numbers that put the images into a seeded order, such as hashes of their ids; no two are the same."""

    def __post_init__(self) -> None:
        fit = len(self.starts) == len(self.order) + 1 and self.starts[0] == 0 and self.starts[-1] == len(self.labels)
        if not fit or np.any(np.diff(self.starts) < 0):
            raise ValueError(
                f"Wanted {len(self.order) + 1} starts that ascend from 0 to {len(self.labels)}. "
                f"Found: {len(self.starts)} of {self.starts[:3]}..{self.starts[-1:]}"
            )


def stratify(sets: LabelSets, sizes: Sequence[int], *, seed: int) -> NDArray[np.int64]:
    """The split of each image, int64 ``(n,)``, such that each split comes near its share of every label.

    ``sizes`` are the images wanted by split; they sum to n. The split that lacks most of a label comes first, then the
    one that lacks most images; further ties, and those between labels, are broken in a seeded order. Images without
    labels come last. The order in which images are given does not matter, that of ``sets.order`` does.

    In one thing this is not the published algorithm, which lets totals drift: a split that has its size takes no more.
    Totals are exact, and the drift falls on the labels served last, mostly frequent ones, unless images without labels
    take it. Raises ValueError for sizes that do not sum to n, two images in one place of the order, a label twice in an
    image.
    """
    images, splits = len(sets.order), len(sizes)
    if sum(sizes) != images or min(sizes, default=0) < 0:
        raise ValueError(f"Wanted sizes of 0 or more that sum to the {images} images. Found: {list(sizes)}")
    random = np.random.default_rng(seed % (1 << 64))
    tie_break = random.permutation(splits).tolist()
    known, numbers = np.unique(sets.labels, return_inverse=True)
    numbers = random.permutation(len(known))[numbers]  # in the order of ties, so that the first of equals is served
    by_label = _image_by_label(sets, numbers)
    left = np.bincount(numbers, minlength=len(known))
    ends = np.cumsum(left)
    begins = ends - left
    # All desires are counted in 1 / n images: whole numbers, so that equals are equal.
    desired = np.multiply.outer(left, np.array(sizes, dtype=np.int64))
    room = np.array(sizes, dtype=np.int64)
    assigned = np.full(images, -1, dtype=np.int64)
    while left.any():
        label = int(np.where(left, left, images + 1).argmin())
        of_label = by_label[begins[label] : ends[label]]
        of_label = of_label[assigned[of_label] < 0]
        # While a label is served, nothing but its own desires and the totals is looked at: the others may follow after.
        found = _deal(len(of_label), desired[label], room, tie_break, unit=images)
        assigned[of_label] = found
        room -= np.bincount(found, minlength=splits)
        places, lengths = _places(sets.starts, of_label)
        np.subtract.at(left, numbers[places], 1)
        np.subtract.at(desired.reshape(-1), numbers[places] * splits + np.repeat(found, lengths), images)
    bare = np.flatnonzero(assigned < 0)
    bare = bare[np.argsort(sets.order[bare])]
    assigned[bare] = _deal(len(bare), np.zeros(splits, dtype=np.int64), room, tie_break, unit=0)
    return assigned


def label_deviations(sets: LabelSets, assigned: NDArray[np.int64], sizes: Sequence[int]) -> dict[int, list[float]]:
    """By label, ascending, and by split: the images of the label that the split has, less its share of them.

    ``assigned`` is the split of each image, int64 ``(n,)``; the share of a split is ``sizes / n``. The deviations of a
    label sum to 0.
    """
    images, splits = len(sets.order), len(sizes)
    known, numbers = np.unique(sets.labels, return_inverse=True)
    cells = numbers * splits + np.repeat(assigned, np.diff(sets.starts))
    got = np.bincount(cells, minlength=len(known) * splits).reshape(len(known), splits)
    shares = np.multiply.outer(got.sum(axis=1), np.array(sizes, dtype=np.int64))
    off = (got * images - shares) / max(1, images)
    return dict(zip(known.tolist(), off.tolist(), strict=True))


def _image_by_label(sets: LabelSets, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The images of the first label, then those of the second and so on, each label's in the seeded order."""
    by_order = np.argsort(sets.order)
    if np.any(np.diff(sets.order[by_order]) == 0):
        raise ValueError("Wanted an order without ties. Found: two images in one place (rank them by hash and id).")
    rank = np.empty_like(by_order)
    rank[by_order] = np.arange(len(by_order))
    images = np.repeat(np.arange(len(rank)), np.diff(sets.starts))
    by_label = np.lexsort((rank[images], numbers))
    found = images[by_label]
    twice = (np.diff(found) == 0) & (np.diff(numbers[by_label]) == 0)
    if np.any(twice):
        place = by_label[np.flatnonzero(twice)[0]]
        raise ValueError(f"Wanted each label once an image. Found: {sets.labels[place]} twice in image {images[place]}")
    return found


def _deal(
    images: int, desired: NDArray[np.int64], room: NDArray[np.int64], tie_break: Sequence[int], *, unit: int
) -> NDArray[np.int64]:
    """The splits of so many images of one label, one by one: each lessens the desire by a unit, and the room by one."""
    waiting = [
        (-wanted, -free, tie_break[split], split)
        for split, (wanted, free) in enumerate(zip(desired.tolist(), room.tolist(), strict=True))
        if free
    ]
    heapify(waiting)
    found = []
    for _ in range(images):
        wanted, free, tie, split = waiting[0]
        found.append(split)
        if free < -1:
            heapreplace(waiting, (wanted + unit, free + 1, tie, split))
        else:
            heappop(waiting)
    return np.array(found, dtype=np.int64)


def _places(starts: NDArray[np.int64], images: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the labels of these images stand, image after image, and how many each has."""
    lengths = starts[images + 1] - starts[images]
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts[images] - before, lengths) + np.arange(lengths.sum()), lengths
