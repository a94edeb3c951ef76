"""The assignment of images with several labels to splits, so that each label is stratified. Pure arithmetic.

The first part is iterative stratification as published (Sechidis, Tsoumakas, Vlahavas 2011, "On the Stratification of
Multi-Label Data"): the label with the fewest remaining images is assigned first, each of its images to the split that
lacks most images of it. Frequent labels can later correct an imbalance that rare labels cause::

    wanted of the label    split 0   7    split 1   2.1    split 2   0.9
    its next image goes to       ^ and reduces what split 0 wants of each of its labels by one

    This lets the totals of the splits drift. The second part, the repair, is not from the paper: the total counts as
    one more label that every image has, and images move one at a time, always one of those that reduce the sum of
    squared deviations most::

    split a has 1.4 too many of the image's label, b 0.3 too few; a has 5 images too many, b 4 too few
    a move from a to b reduces half the sum by      (1.4 + 0.3 - 1) + (5 + 4 - 1) = 8.7

    Images also move against the surplus: if two images with one label each leave a split, one with both labels can
    return.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import NDArray

_CANDIDATES = 1024  # kinds of image per split among which moves are chosen until none helps; then all are examined


@dataclass(frozen=True, slots=True, eq=False)
class LabelSets:
    """The labels of each image in CSR form. Image ``i`` has ``labels[starts[i]:starts[i + 1]]``."""

    starts: NDArray[np.int64]  # ``(n + 1,)``, ascending from 0 to the number of labels
    # ``(k,)`` label numbers from 0, possibly with gaps, each at most once per image, in any order within an image.
    labels: NDArray[np.int64]
    # ``(n,)`` distinct numbers that give the images a seeded order, such as hashes of their ids.
    order: NDArray[np.int64]


def stratify(sets: LabelSets, sizes: Sequence[int], *, seed: int) -> NDArray[np.int64]:
    """Assign a split to each image, int64 ``(n,)``, so that each split is near its share of each label. ``sizes`` has
    the number of images of each split. They sum to n, and each split gets exactly its size. Labels are near their
    shares, mostly within one image; there is no proven bound. Ties are broken in seeded orders. The result depends on
    ``sets.order``, not on the order of the images in the arrays.
    """
    taking = np.flatnonzero(sizes)  # a split that wants no images gets none
    wanted = np.array(sizes, dtype=np.int64)[taking]
    random = np.random.default_rng(seed % (1 << 64))
    known, numbers = np.unique(sets.labels, return_inverse=True)
    numbers = random.permutation(len(known))[numbers]  # in the order of ties: the first of equals wins
    assigned = _dealt(sets, numbers, wanted, random)
    if len(taking) > 1:
        _repair(sets, numbers, assigned, wanted, random)
    return taking[assigned]


def _deviations(
    sets: LabelSets, numbers: NDArray[np.int64], assigned: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The images of each label in each split minus its share, ``(splits, labels)``, in 1 / n images: integers."""
    labels = int(numbers.max(initial=-1)) + 1
    cells = np.repeat(assigned, np.diff(sets.starts)) * labels + numbers
    got = np.bincount(cells, minlength=len(sizes) * labels).reshape(len(sizes), labels)
    off: NDArray[np.int64] = got * len(assigned) - np.multiply.outer(sizes, got.sum(axis=0))
    return off


def _dealt(
    sets: LabelSets, numbers: NDArray[np.int64], sizes: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    """The split of each image by the published algorithm. Sizes are above 0; totals may differ from them."""
    images, splits = len(sets.order), len(sizes)
    tie_break = random.permutation(splits).tolist()
    by_label = _image_by_label(sets, numbers)
    counts = np.bincount(numbers)
    ends = np.cumsum(counts)
    begins = ends - counts
    # All targets are counted in 1 / n images: integers, so that equal targets compare equal.
    desired = np.multiply.outer(counts, sizes)
    room = sizes.copy()
    assigned = np.full(images, -1, dtype=np.int64)
    left, waiting = counts.copy(), np.count_nonzero(np.diff(sets.starts))
    while waiting:
        label = int(left.argmin())
        of_label = by_label[begins[label] : ends[label]]
        of_label = of_label[assigned[of_label] < 0]
        # The split that lacks most of the label comes first, then the one that lacks most images. While a label is
        # assigned, only its targets and the totals are used: the others can be updated afterwards.
        found = _deal(len(of_label), desired[label], room, tie_break, unit=images)
        assigned[of_label] = found
        room -= np.bincount(found, minlength=splits)
        indices, lengths = _indices(sets.starts, of_label)
        labels = numbers[indices]
        np.subtract.at(left, labels, 1)
        left[labels[left[labels] == 0]] = images + 1  # never the smallest while any other label remains
        waiting -= len(found)
        np.subtract.at(desired.reshape(-1), labels * splits + np.repeat(found, lengths), images)
    bare = np.flatnonzero(assigned < 0)  # images without labels come last
    bare = bare[np.argsort(sets.order[bare])]
    assigned[bare] = _deal(len(bare), np.zeros(splits, dtype=np.int64), room, tie_break, unit=0)
    return assigned


def _image_by_label(sets: LabelSets, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The images of the first label, then those of the second and so on, each in the seeded order."""
    images = np.repeat(np.arange(len(sets.order)), np.diff(sets.starts))
    return images[np.lexsort((sets.order[images], numbers))]


def _deal(
    images: int, desired: NDArray[np.int64], room: NDArray[np.int64], tie_break: Sequence[int], *, unit: int
) -> NDArray[np.int64]:
    """The splits of ``images`` images of one label. Each image reduces the target by a unit and the room by one."""
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
    """The indices of the labels of these images, image by image, and how many each has."""
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
    """Move images, in place, until totals are exact and no move of a single image helps. If no move helps and totals
    are not exact yet, their weight is doubled.
    """
    kind, starts, labels = _kinds(sets, numbers, random)
    kinds, splits, unit = len(starts) - 1, len(sizes), len(assigned)
    held = np.bincount(assigned * kinds + kind, minlength=splits * kinds).reshape(splits, kinds)
    by_kind, begins = np.lexsort((sets.order, kind)), np.append(0, np.cumsum(held.sum(axis=0)))
    off = _deviations(sets, numbers, assigned, sizes)
    surplus, weight = (held.sum(axis=1) - sizes) * unit, 1
    while True:
        # The surplus of each split over all that a kind counts for, labels and total.
        excess = np.stack([np.diff(np.append(0, np.cumsum(row[labels]))[starts]) for row in off])
        excess += weight * surplus[:, np.newaxis]
        cost = (np.diff(starts) + weight) * unit
        gain = _gains(excess, cost, held)
        if gain.max() <= 0:
            if not surplus.any():
                return
            weight *= 2
            continue
        # The best kinds to leave each split, whether it has too many or too few: both directions are needed.
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
    """The kind of each image, and the labels of each kind (CSR). Images of one kind have the same labels."""
    # Kinds are distinguished by sums of random numbers. Two of a million kinds collide once in 10**7 runs and are then
    # moved as one: a label may deviate more, but totals stay exact.
    keys = random.integers(1 << 64, size=int(numbers.max(initial=-1)) + 1, dtype=np.uint64)
    sums = np.append(np.zeros(1, dtype=np.uint64), np.cumsum(keys[numbers], dtype=np.uint64))[sets.starts]
    _, first, kind = np.unique(np.diff(sums), return_index=True, return_inverse=True)
    indices, lengths = _indices(sets.starts, first)
    return kind, np.append(0, np.cumsum(lengths)), numbers[indices]


def _gains(excess: NDArray[np.int64], cost: NDArray[np.int64], held: NDArray[np.int64]) -> NDArray[np.int64]:
    """The gain of moving an image of a kind from a split to the best one; never above 0 if it is in the best one."""
    return np.where(held > 0, excess - excess.min(axis=0) - cost, np.iinfo(np.int64).min)


def _highest(gain: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The ``size`` kinds with the highest gains; the first of equals."""
    least = np.partition(gain, -size)[-size]  # not argpartition: which of equals it finds depends on the machine
    above = np.flatnonzero(gain > least)
    return np.append(above, np.flatnonzero(gain == least)[: size - len(above)])
