"""How many images of each stratum go to each split: exact integers from counts, weights and ratios. Pure arithmetic.

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


def quota_matrix(
    totals: Sequence[int],
    ratios: Sequence[Fraction],
    *,
    seed: int,
    fixed: Sequence[Sequence[int]] | None = None,
    families: Sequence[int] | None = None,
) -> NDArray[np.int64]:
    """The stratum x split matrix of image counts, int64 ``(strata, splits)``; ties are broken in a seeded order.

    ``totals`` are images by stratum, ``ratios`` positive numbers by split. ``fixed`` images of a stratum are in a split
    already, of the shape of the matrix: a cell that holds more than its ideal keeps them, and the other splits share
    what is left in proportion. Strata of one family (a class) are kept near the family's ideal together, too. Time and
    memory grow with the matrix.
    """
    scale = lcm(*(ratio.denominator for ratio in ratios))
    parts = [int(ratio * scale) for ratio in ratios]
    fixed = fixed if fixed is not None else [[0] * len(parts)] * len(totals)
    shares = [_shares(total, parts, held) for total, held in zip(totals, fixed, strict=True)]
    whole = lcm(*(below for _, below in shares)) if shares else 1
    ideal = [[cell * (whole // below) for cell in row] for row, below in shares]  # of the free images, in 1 / whole
    floors = np.array([[cell // whole for cell in row] for row in ideal], dtype=np.int64).reshape(-1, len(parts))
    rests = [[cell % whole for cell in row] for row in ideal]
    columns = [sum(column) for column in zip(*ideal, strict=True)] or [0] * len(parts)
    below = np.array([column // whole for column in columns], dtype=np.int64) - floors.sum(axis=0)
    above = np.array([-(-column // whole) for column in columns], dtype=np.int64) - floors.sum(axis=0)
    random = np.random.default_rng(seed % (1 << 64))
    order = random.permutation(len(totals))
    if families is not None:
        place = random.permutation(max(families, default=0) + 1)
        order = order[np.argsort(place[np.asarray(families, dtype=np.int64)[order]], kind="stable")]
    raised = _diffuse(rests, whole, order, random.permutation(len(parts)))
    may_rise = np.array([[rest > 0 for rest in row] for row in rests], dtype=np.bool_).reshape(raised.shape)
    _repair(raised, may_rise, below, above)
    quotas: NDArray[np.int64] = floors + raised + np.array(fixed, dtype=np.int64).reshape(raised.shape)
    return quotas


def _shares(total: int, parts: Sequence[int], held: Sequence[int]) -> tuple[list[int], int]:
    """The ideal numbers of further images by split as numerators over a denominator: water that fills to one level."""
    filling = set(range(len(parts)))
    while True:
        rest = total - sum(held[split] for split in range(len(parts)) if split not in filling)
        whole = sum(parts[split] for split in filling)
        over = [split for split in filling if held[split] * whole > rest * parts[split]]
        if not over:
            free = [rest * parts[split] - held[split] * whole if split in filling else 0 for split in range(len(parts))]
            return free, whole
        filling.difference_update(over)


def apportion(total: int, shares: Sequence[int], *, seed: int) -> list[int]:
    """Share out ``total`` in proportion to ``shares``, each its ideal rounded down or up; at most the shares' sum.

    The largest remainders are rounded up (Hamilton's method), ties in a seeded order.
    """
    whole = sum(shares)
    if not whole:
        return [0] * len(shares)
    tie_break = np.random.default_rng(seed % (1 << 64)).permutation(len(shares))
    floors, rests = zip(*(divmod(total * share, whole) for share in shares), strict=True)
    up = sorted(range(len(shares)), key=lambda place: (-rests[place], tie_break[place]))[: total - sum(floors)]
    found = list(floors)
    for place in up:
        found[place] += 1
    return found


def _diffuse(
    rests: list[list[int]], whole: int, order: NDArray[np.int64], tie_break: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which cells to raise, stratum by stratum in an order, each time where the splits lag most behind their ideals.

    Every stratum's total comes out exact; split totals come out close.
    """
    raised = np.zeros((len(rests), len(tie_break)), dtype=np.bool_)
    credit = [0] * len(tie_break)
    for stratum in order.tolist():
        row = rests[stratum]
        credit = [have + rest for have, rest in zip(credit, row, strict=True)]
        candidates = sorted((split for split, rest in enumerate(row) if rest), key=lambda s: (-credit[s], tie_break[s]))
        for split in candidates[: sum(row) // whole]:
            raised[stratum, split] = True
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
