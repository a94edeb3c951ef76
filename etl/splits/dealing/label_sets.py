"""Which split each image goes to when an image has several labels, so that every label is shared out. Pure arithmetic.

Dealing is iterative stratification as published (Sechidis, Tsoumakas, Vlahavas 2011, "On the Stratification of
Multi-Label Data"): the label with the fewest images left is dealt out first, each of its images to the split that lacks
most images of it. What rare labels put out of balance, frequent ones can make good later::

    wanted of the label    split 0   7    split 1   2.1    split 2   0.9
    its next image goes to       ^ and takes one from 0's desire for each label that it has

It lets the totals of the splits drift. The repair is ours: the total counts as one more label, which every image has,
and images move, one at a time, each time one that lessens the sum of squared deviations as much as any candidate does::

    split a has 1.4 too many of the image's label, b 0.3 too few; a has 5 images too many, b 4 too few
    a move from a to b lessens half the sum by      (1.4 + 0.3 - 1) + (5 + 4 - 1) = 8.7

Images move against the surplus, too: where two leave a split with a label each, one with both labels can come back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import NDArray

_CANDIDATES = 1024  # by split, the kinds of image among which moves are chosen until none helps; then all are looked at


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

    ``sizes`` are the images wanted by split; they sum to n, and each split gets exactly its size. Labels come near
    their shares, mostly within one image; no bound is proved. Ties are broken in seeded orders. The order in which
    images are given does not matter, that of ``sets.order`` does. Raises ValueError for sizes that do not sum to n, two
    images of one order, a label twice in an image.
    """
    images = len(sets.order)
    if sum(sizes) != images or min(sizes, default=0) < 0:
        raise ValueError(f"Wanted sizes of 0 or more that sum to the {images} images. Found: {list(sizes)}")
    taking = np.flatnonzero(sizes)  # a split that wants no images is not dealt any, and gets none later
    wanted = np.array(sizes, dtype=np.int64)[taking]
    random = np.random.default_rng(seed % (1 << 64))
    known, numbers = np.unique(sets.labels, return_inverse=True)
    numbers = random.permutation(len(known))[numbers]  # in the order of ties, so that the first of equals is served
    assigned = _dealt(sets, numbers, wanted, random)
    if len(taking) > 1:
        _repair(sets, numbers, assigned, wanted, random)
    return taking[assigned]


def label_deviations(sets: LabelSets, assigned: NDArray[np.int64], sizes: Sequence[int]) -> dict[int, list[float]]:
    """By label, ascending, and by split: the images of the label that the split has, less its share of them.

    ``assigned`` is the split of each image, int64 ``(n,)``; a split's share is ``sizes / n``. A label's sum to 0.
    """
    known, numbers = np.unique(sets.labels, return_inverse=True)
    off = _deviations(sets, numbers, assigned, np.array(sizes, dtype=np.int64)) / max(1, len(sets.order))
    return dict(zip(known.tolist(), off.T.tolist(), strict=True))


def _deviations(
    sets: LabelSets, numbers: NDArray[np.int64], assigned: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """What each split has of each label less its share, ``(splits, labels)``, in 1 / n images: whole numbers."""
    labels = int(numbers.max(initial=-1)) + 1
    cells = np.repeat(assigned, np.diff(sets.starts)) * labels + numbers
    got = np.bincount(cells, minlength=len(sizes) * labels).reshape(len(sizes), labels)
    off: NDArray[np.int64] = got * len(assigned) - np.multiply.outer(sizes, got.sum(axis=0))
    return off


def _dealt(
    sets: LabelSets, numbers: NDArray[np.int64], sizes: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    """The split of each image by the published algorithm; sizes are above 0, and totals come near them or not.

    The split that lacks most of a label comes first, then the one that lacks most images; images without labels last.
    """
    images, splits = len(sets.order), len(sizes)
    tie_break = random.permutation(splits).tolist()
    by_label = _image_by_label(sets, numbers)
    counts = np.bincount(numbers)
    ends = np.cumsum(counts)
    begins = ends - counts
    # All desires are counted in 1 / n images: whole numbers, so that equals are equal.
    desired = np.multiply.outer(counts, sizes)
    room = sizes.copy()
    assigned = np.full(images, -1, dtype=np.int64)
    left, waiting = counts.copy(), np.count_nonzero(np.diff(sets.starts))
    while waiting:
        label = int(left.argmin())
        of_label = by_label[begins[label] : ends[label]]
        of_label = of_label[assigned[of_label] < 0]
        # While a label is served, nothing but its own desires and the totals is looked at: the others may follow after.
        found = _deal(len(of_label), desired[label], room, tie_break, unit=images)
        assigned[of_label] = found
        room -= np.bincount(found, minlength=splits)
        indices, lengths = _indices(sets.starts, of_label)
        labels = numbers[indices]
        np.subtract.at(left, labels, 1)
        left[labels[left[labels] == 0]] = images + 1  # is not the fewest while any other is left
        waiting -= len(found)
        np.subtract.at(desired.reshape(-1), labels * splits + np.repeat(found, lengths), images)
    bare = np.flatnonzero(assigned < 0)
    bare = bare[np.argsort(sets.order[bare])]
    assigned[bare] = _deal(len(bare), np.zeros(splits, dtype=np.int64), room, tie_break, unit=0)
    return assigned


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
        index = by_label[np.flatnonzero(twice)[0]]
        raise ValueError(f"Wanted each label once an image. Found: {sets.labels[index]} twice in image {images[index]}")
    return found


def _deal(
    images: int, desired: NDArray[np.int64], room: NDArray[np.int64], tie_break: Sequence[int], *, unit: int
) -> NDArray[np.int64]:
    """The splits of so many images of one label, one by one: each lessens the desire by a unit, and the room by one."""
    waiting = [
        (-wanted, -free, tie_break[split], split)
        for split, (wanted, free) in enumerate(zip(desired.tolist(), room.tolist(), strict=True))
    ]
    heapify(waiting)
    found = []
    for _ in range(images):
        wanted, free, tie, split = waiting[0]
        found.append(split)
        heapreplace(waiting, (wanted + unit, free + 1, tie, split))
    return np.array(found, dtype=np.int64)


def _indices(starts: NDArray[np.int64], images: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the labels of these images stand, image after image, and how many each has."""
    lengths = starts[images + 1] - starts[images]
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts[images] - before, lengths) + np.arange(lengths.sum()), lengths


def _repair(
    sets: LabelSets,
    numbers: NDArray[np.int64],
    assigned: NDArray[np.int64],
    sizes: NDArray[np.int64],
    random: np.random.Generator,
) -> None:
    """Move images, in place, until totals are exact and no move of a single image helps.

    Where no move helps and totals are not exact yet, they count for twice as much as before.
    """
    kind, starts, labels = _kinds(sets, numbers, random)
    kinds, splits, unit = len(starts) - 1, len(sizes), len(assigned)
    held = np.bincount(assigned * kinds + kind, minlength=splits * kinds).reshape(splits, kinds)
    by_kind, begins = np.lexsort((sets.order, kind)), np.append(0, np.cumsum(held.sum(axis=0)))
    off = _deviations(sets, numbers, assigned, sizes)
    surplus, weight = (held.sum(axis=1) - sizes) * unit, 1
    while True:
        # How much each split has too much of all that a kind counts for, labels and total.
        excess = np.stack([np.diff(np.append(0, np.cumsum(row[labels]))[starts]) for row in off])
        excess += weight * surplus[:, np.newaxis]
        cost = (np.diff(starts) + weight) * unit
        gain = _gains(excess, cost, held)
        if gain.max() <= 0:
            if not surplus.any():
                return
            weight *= 2
            continue
        # The best to leave each split, whether it has too many or too few: both directions are needed to go on.
        few = np.unique(np.concatenate([_highest(row, min(kinds, _CANDIDATES)) for row in gain]))
        indices, lengths = _indices(starts, few)
        few_labels, of_few = labels[indices], np.repeat(np.arange(len(few)), lengths)
        excess, cost, few_held = excess[:, few], cost[few], held[:, few]
        while True:
            gain = _gains(excess, cost, few_held)
            source, index = divmod(int(gain.argmax()), len(few))
            if gain[source, index] <= 0:
                break
            target, moved = int(excess[:, index].argmin()), few[index]
            of_moved = labels[starts[moved] : starts[moved + 1]]
            shared = np.bincount(of_few[np.isin(few_labels, of_moved)], minlength=len(few))
            for split, change in ((source, -unit), (target, unit)):
                off[split, of_moved] += change
                surplus[split] += change
                excess[split] += (shared + weight) * change
                few_held[split, index] += change // unit
            alike = by_kind[begins[moved] : begins[moved + 1]]
            assigned[alike[assigned[alike] == source][0]] = target
        held[:, few] = few_held


def _kinds(
    sets: LabelSets, numbers: NDArray[np.int64], random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The kind of each image, and the labels of each kind (CSR): images of one kind have the same labels.

    Kinds are told apart by sums of random numbers. Two of a million fall together once in 10**7 runs, and are then
    moved as one: a label may be further off, totals stay exact.
    """
    keys = random.integers(1 << 64, size=int(numbers.max(initial=-1)) + 1, dtype=np.uint64)
    sums = np.append(np.zeros(1, dtype=np.uint64), np.cumsum(keys[numbers], dtype=np.uint64))[sets.starts]
    _, first, kind = np.unique(np.diff(sums), return_index=True, return_inverse=True)
    indices, lengths = _indices(sets.starts, first)
    return kind, np.append(0, np.cumsum(lengths)), numbers[indices]


def _gains(excess: NDArray[np.int64], cost: NDArray[np.int64], held: NDArray[np.int64]) -> NDArray[np.int64]:
    """What it gains to move an image of a kind out of a split to the best one; never above 0 if that is the best."""
    return np.where(held > 0, excess - excess.min(axis=0) - cost, np.iinfo(np.int64).min)


def _highest(gain: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The kinds of the highest gains, so many of them, and the first of equals."""
    least = np.partition(gain, -size)[-size]  # not argpartition: which of equals it finds differs between machines
    above = np.flatnonzero(gain > least)
    return np.append(above, np.flatnonzero(gain == least)[: size - len(above)])
