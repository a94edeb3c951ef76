"""How many images of each class go to each split: exact integers from counts, weights and ratios. Pure arithmetic.

The matrix is a controlled rounding (Bacharach 1966; Cox 1987) of the ideal ``N_c * r_s / sum(r)``: every cell is the
floor or the ceiling of its ideal, every class total is exact, every split total is the floor or the ceiling of its
ideal. Such a matrix always exists, because the ideal is a fractional flow and flows have integral solutions. Rounding
class by class instead lets the split totals drift: 1,000 classes of 13 images at 8:2 make 10,000 and 3,000.
"""

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import lcm

import numpy as np
from numpy.typing import NDArray

from formats.hashing import xxhash64


def class_totals(counts: Sequence[int], weights: Sequence[Fraction]) -> list[int]:
    """How many images of each class are used: ``floor(w_c * min over w > 0 of n / w)``, the largest set so balanced.

    A class of weight 0 is left out. Raises ValueError unless there is one weight a class, none negative, one positive.
    """
    if len(weights) != len(counts):
        raise ValueError(f"Wanted a weight for each of {len(counts)} classes. Found: {len(weights)}")
    if any(weight < 0 for weight in weights) or not any(weights):
        raise ValueError(f"Wanted weights of 0 or more, at least one above 0. Found: {[str(w) for w in weights]}")
    scale = min(count / weight for count, weight in zip(counts, weights, strict=True) if weight)
    return [int(weight * scale) for weight in weights]


def random_weights(labels: Sequence[int], seed: int) -> list[Fraction]:
    """A weight from 0.01 to 1.00 for each class number, drawn from the seed and the number alone."""
    column = np.asarray(labels, dtype=np.int32)
    draws = xxhash64([np.full(len(column), seed, dtype=np.int64), column]).view(np.uint64) % np.uint64(100)
    return [Fraction(int(draw) + 1, 100) for draw in draws]


def quota_matrix(totals: Sequence[int], ratios: Sequence[Fraction], *, seed: int) -> NDArray[np.int64]:
    """The class x split matrix of image counts, int64 ``(classes, splits)``; ties are broken in a seeded order.

    ``totals`` are images by class, ``ratios`` positive numbers by split. Time and memory grow with the matrix.
    """
    scale = lcm(*(ratio.denominator for ratio in ratios))
    parts = [int(ratio * scale) for ratio in ratios]
    whole = sum(parts)
    ideal = [[total * part for part in parts] for total in totals]  # in units of 1 / whole
    floors = np.array([[cell // whole for cell in row] for row in ideal], dtype=np.int64).reshape(-1, len(parts))
    rests = [[cell % whole for cell in row] for row in ideal]
    columns = [sum(totals) * part for part in parts]
    below = np.array([column // whole for column in columns], dtype=np.int64) - floors.sum(axis=0)
    above = np.array([-(-column // whole) for column in columns], dtype=np.int64) - floors.sum(axis=0)
    raised = _diffuse(rests, whole, np.random.default_rng(seed))
    _repair(raised, np.array(rests).reshape(raised.shape) > 0, below, above)
    quotas: NDArray[np.int64] = floors + raised
    return quotas


def _diffuse(rests: list[list[int]], whole: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """Which cells to raise, class by class in a seeded order, each time where the splits lag most behind their ideals.

    Every class total comes out exact; split totals come out close.
    """
    raised = np.zeros((len(rests), len(rests[0]) if rests else 0), dtype=np.bool_)
    credit = [0] * raised.shape[1]
    tie_break = random.permutation(raised.shape[1])
    for label in random.permutation(len(rests)):
        row = rests[label]
        credit = [have + rest for have, rest in zip(credit, row, strict=True)]
        candidates = sorted((split for split, rest in enumerate(row) if rest), key=lambda s: (-credit[s], tie_break[s]))
        for split in candidates[: sum(row) // whole]:
            raised[label, split] = True
            credit[split] -= whole
    return raised


def _repair(
    raised: NDArray[np.bool_], may_rise: NDArray[np.bool_], below: NDArray[np.int64], above: NDArray[np.int64]
) -> None:
    """Move raises along augmenting paths, in place, until every split total lies in ``below..above``."""
    while True:
        loads = raised.sum(axis=0)
        if (over := np.flatnonzero(loads > above)).size:
            path = _path(raised, may_rise, sources=over[:1], targets=np.flatnonzero(loads < above))
        elif (under := np.flatnonzero(loads < below)).size:
            path = _path(raised, may_rise, sources=np.flatnonzero(loads > below), targets=under[:1])
        else:
            return
        for source, target in pairwise(path):
            label = np.flatnonzero(raised[:, source] & may_rise[:, target] & ~raised[:, target])[0]
            raised[label, source], raised[label, target] = False, True


def _path(
    raised: NDArray[np.bool_], may_rise: NDArray[np.bool_], *, sources: NDArray[np.intp], targets: NDArray[np.intp]
) -> list[int]:
    """The shortest way from a source split to a target split, each step a class that can move its raise along it.

    No class is used twice on a shortest path: two steps of one class could be joined into one.
    """
    steps = raised.T.astype(np.float32) @ (may_rise & ~raised).astype(np.float32) > 0
    came_from: dict[int, int | None] = {int(source): None for source in sources}
    queue = deque(came_from)
    while queue:
        split = queue.popleft()
        if split in targets:
            path = [split]
            while (before := came_from[path[-1]]) is not None:
                path.append(before)
            return path[::-1]
        for following in np.flatnonzero(steps[split]).tolist():
            if following not in came_from:
                came_from[following] = split
                queue.append(following)
    raise AssertionError("a controlled rounding always exists")
