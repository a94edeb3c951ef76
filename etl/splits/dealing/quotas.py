"""The number of images of each stratum in each split: exact integers from counts and ratios. Pure arithmetic.

The matrix is a controlled rounding (Bacharach 1966; Cox 1987) of the ideal ``N_c * r_s / sum(r)``: every cell is the
floor or the ceiling of its ideal, every class total is exact, every split total is the floor or the ceiling of its
ideal. Such a matrix always exists, because the ideal is a fractional flow and flows have integral solutions. Rounding
class by class instead lets the split totals drift: 1,000 classes of 13 images at 8:2 give 10,000 and 3,000.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from etl.splits.dealing.rounding import Family, Rounding, is_finer

_OF_CHAIN = 4  # the weight of deviations of blocks that must be rounded: with it, few remain to be corrected


@dataclass(frozen=True, slots=True)
class GaveWay:
    """A margin with inexact totals: ``off`` of its ``totals`` are not rounded ideals, by at most ``most`` images."""

    margin: int
    off: int
    totals: int
    most: float


@dataclass(frozen=True, slots=True, eq=False)
class Quotas:
    """Image counts, int64 ``(strata, splits)``, and the margins whose totals do not all hold."""

    matrix: NDArray[np.int64]
    gave_way: tuple[GaveWay, ...] = ()


def quotas(
    totals: Sequence[int],
    ratios: Sequence[Fraction],
    *,
    seed: int,
    fixed: Sequence[Sequence[int]] | None = None,
    margins: Sequence[Sequence[int]] = (),
) -> Quotas:
    """Round the stratum x split matrix of image counts, breaking ties in the order of a seed. A cell whose ``fixed``
    images are more than its ideal keeps them, and the other splits share the rest in proportion. ``margins`` are
    columns, the most important first: the number of its value for each stratum. The totals of a value are rounded from
    their ideals too: always for the first column and for all columns that nest in each other, and as far as all totals
    can hold together for columns that cross them. With two splits and two columns they can.
    """
    scale = lcm(*(ratio.denominator for ratio in ratios))
    parts = [int(ratio * scale) for ratio in ratios]
    if not len(totals):
        return Quotas(np.zeros((0, len(parts)), dtype=np.int64))
    fixed = fixed if fixed is not None else [[0] * len(parts)] * len(totals)
    shares = [_shares(total, parts, held) for total, held in zip(totals, fixed, strict=True)]
    return _rounded(shares, fixed, seed=seed, margins=margins)


def thinned(
    parts: Sequence[Sequence[int]], totals: Sequence[int], *, least: Sequence[Sequence[int]], seed: int
) -> NDArray[np.int64]:
    """How many images to use of each part of each stratum, at least ``least``: all parts lose the same share."""
    # Each number is its ideal rounded down, because images of the last part may go wherever others are missing. Only if
    # that part has too few, others are rounded up.
    shares = []
    for counts, total, low in zip(parts, totals, least, strict=True):
        more, whole = _shares(total, counts, low)
        floors = [below + part // whole for part, below in zip(more, low, strict=True)]
        floors[-1] = total - sum(floors[:-1])
        is_enough = floors[-1] <= counts[-1]
        shares.append(([n - below for n, below in zip(floors, low, strict=True)], 1) if is_enough else (more, whole))
    return _rounded(shares, least, seed=seed).matrix


def _rounded(
    shares: Sequence[tuple[list[int], int]],
    fixed: Sequence[Sequence[int]],
    *,
    seed: int,
    margins: Sequence[Sequence[int]] = (),
) -> Quotas:
    """Round a matrix of ideals, each given as a numerator beyond ``fixed`` over the denominator of its row."""
    splits = len(fixed[0])
    whole = lcm(*(below for _, below in shares))
    ideal = [[cell * (whole // below) for cell in row] for row, below in shares]  # of free images, in 1 / whole
    floors = np.array([[cell // whole for cell in row] for row in ideal], dtype=np.int64).reshape(-1, splits)
    rests = [[cell % whole for cell in row] for row in ideal]
    random = np.random.default_rng(seed % (1 << 64))
    order, tie_break = random.permutation(len(shares)), random.permutation(splits)
    columns = [_dense(margin) for margin in margins]
    chain, others = _chain([_family(column, rests, whole) for column in (np.zeros_like(order), *columns)])
    weights = [(family.blocks, weight) for weight, of in ((_OF_CHAIN, chain[1:]), (1, others)) for family in of]
    raised = _diffuse(rests, whole, order, tie_break, weights)
    may_rise = np.array([[rest > 0 for rest in row] for row in rests], dtype=np.bool_).reshape(raised.shape)
    rounding = Rounding(raised, may_rise, chain=chain, others=others)
    rounding.settle()
    rounding.mend(random)
    matrix: NDArray[np.int64] = floors + raised + np.array(fixed, dtype=np.int64).reshape(raised.shape)
    return Quotas(matrix, tuple(filter(None, (_gave_way(n, c, raised, rests, whole) for n, c in enumerate(columns)))))


def _dense(numbers: Sequence[int]) -> NDArray[np.int64]:
    """The same partition with its blocks numbered from 0."""
    return np.unique(np.asarray(numbers, dtype=np.int64), return_inverse=True)[1].astype(np.int64)


def _sums(blocks: NDArray[np.int64], rests: list[list[int]]) -> list[list[int]]:
    """The sums of the remainders of each block in each split."""
    found = [[0] * len(rests[0]) for _ in range(int(blocks.max()) + 1)]
    for block, row in zip(blocks.tolist(), rests, strict=True):
        sums = found[block]
        for split, rest in enumerate(row):
            sums[split] += rest
    return found


def _family(blocks: NDArray[np.int64], rests: list[list[int]], whole: int) -> Family:
    sums = _sums(blocks, rests)
    below = np.array([[total // whole for total in row] for row in sums], dtype=np.int64)
    above = np.array([[-(-total // whole) for total in row] for row in sums], dtype=np.int64)
    return Family(blocks.astype(np.int64), below, above)


def _chain(families: Sequence[Family]) -> tuple[list[Family], list[Family]]:
    """The families that nest in each other, coarsest first, and those that cross them; earlier ones have priority.
    Families with one block, or with one stratum per block, are dropped: their totals hold anyway.
    """
    chain, others = [families[0]], []
    for family in families[1:]:
        if len(family.below) in (1, len(family.blocks)):
            continue
        finer = [is_finer(family.blocks, one.blocks) for one in chain]
        coarser = [is_finer(one.blocks, family.blocks) for one in chain]
        if any(up and down for up, down in zip(finer, coarser, strict=True)):
            continue
        if all(up or down for up, down in zip(finer, coarser, strict=True)):
            chain.insert(sum(finer), family)
        else:
            others.append(family)
    return chain, others


def _gave_way(
    number: int, blocks: NDArray[np.int64], raised: NDArray[np.bool_], rests: list[list[int]], whole: int
) -> GaveWay | None:
    loads = np.zeros((int(blocks.max()) + 1, raised.shape[1]), dtype=np.int64)
    np.add.at(loads, blocks, raised)
    off = [
        abs(load - Fraction(total, whole))
        for load_row, row in zip(loads.tolist(), _sums(blocks, rests), strict=True)
        for load, total in zip(load_row, row, strict=True)
    ]
    wrong = [one for one in off if one >= 1]
    return GaveWay(number, len(wrong), len(off), float(max(wrong))) if wrong else None


def _shares(total: int, parts: Sequence[int], held: Sequence[int]) -> tuple[list[int], int]:
    """The ideal numbers of images beyond those held, by split, as numerators over a common denominator."""
    filling = set(range(len(parts)))
    while True:
        rest = total - sum(held[split] for split in range(len(parts)) if split not in filling)
        whole = sum(parts[split] for split in filling)
        over = [split for split in filling if held[split] * whole > rest * parts[split]]
        if not over:
            free = [rest * parts[split] - held[split] * whole if split in filling else 0 for split in range(len(parts))]
            return free, max(whole, 1)
        filling.difference_update(over)


def apportion(total: int, shares: Sequence[int], *, seed: int, least: Sequence[int] | None = None) -> list[int]:
    """Divide ``total`` in proportion to ``shares``; each part is its ideal rounded down or up. ``total`` is at most the
    sum of the shares. The largest remainders are rounded up (Hamilton's method), ties in a seeded order. Parts are at
    least ``least``, which sum to at most the total; the other parts share the rest.
    """
    if not sum(shares):
        return [0] * len(shares)
    least = least if least is not None else [0] * len(shares)
    tie_break = np.random.default_rng(seed % (1 << 64)).permutation(len(shares))
    more, whole = _shares(total, shares, least)
    floors, rests = zip(*(divmod(part, whole) for part in more), strict=True)
    up = sorted(range(len(shares)), key=lambda index: (-rests[index], tie_break[index]))
    found = [floor + below for floor, below in zip(floors, least, strict=True)]
    up = up[: total - sum(found)]
    for index in up:
        found[index] += 1
    return found


def _diffuse(
    rests: list[list[int]],
    whole: int,
    order: NDArray[np.int64],
    tie_break: NDArray[np.int64],
    families: Sequence[tuple[NDArray[np.int64], int]],
) -> NDArray[np.bool_]:
    """Choose the cells to raise, stratum by stratum in an order, each time in the splits furthest below their ideals.
    The total of each stratum is exact. Split totals and the totals of the families' blocks are close; a weight for each
    family decides how close.
    """
    raised = np.zeros((len(rests), len(tie_break)), dtype=np.bool_)
    none = [0] * len(tie_break)
    credit = none
    of_blocks = [(blocks.tolist(), weight, [none] * (int(blocks.max()) + 1)) for blocks, weight in families]
    for stratum in order.tolist():
        row = rests[stratum]
        credit = lag = [have + rest for have, rest in zip(credit, row, strict=True)]
        credits = [credit]
        for blocks, weight, found in of_blocks:
            mine = [have + rest for have, rest in zip(found[blocks[stratum]], row, strict=True)]
            found[blocks[stratum]] = mine
            credits.append(mine)
            lag = [one + weight * other for one, other in zip(lag, mine, strict=True)]
        candidates = sorted((split for split, rest in enumerate(row) if rest), key=lambda s: (-lag[s], tie_break[s]))
        for split in candidates[: sum(row) // whole]:
            raised[stratum, split] = True
            for one in credits:
                one[split] -= whole
    return raised
