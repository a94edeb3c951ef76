"""Which split each group goes to whole, so that images by stratum and split come near to those wanted. Pure arithmetic.

Finding the best way is bin packing in as many dimensions as there are strata, so this is a heuristic. Groups go to
splits greedily, in descending size, as in scikit-learn's ``StratifiedGroupKFold``; then single groups move, then pairs
trade places, as long as that brings the images nearer. How far off they are is chi-square-like: the sum of
``(wanted - got)^2 / wanted`` over the cells of the matrix, plus that over the splits' totals. Totals weigh little at
first, so that a huge group of one stratum does not keep other strata out of its split, and more as long as one is off
by more than a group.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LIGHT, _HEAVIER, _TIMES, _SHUT = 1 / 64, 8, 4, 1e6
"""What totals weigh at first, how much and how often that may grow, and what they weigh where nothing is wanted."""
_WORK = 30_000_000
"""Bounds the moves at each weight, and the trades of each pass, in cells looked at: about a second."""
_ALONE = 1000
"""What looking at one group alone costs, in the same measure."""
_CHUNK = 1_000_000
"""Cells that numpy looks at together; it bounds memory."""
_TRADERS, _NEIGHBOURS, _TRADE_PASSES = 2000, 48, 3
"""How many groups look for another to trade places with, and how far on either side in the order of size."""
_NOISE = 1e-9
"""A smaller gain is taken for rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """What lies in each of ``g`` groups: entries ``starts[j]`` to ``starts[j + 1]`` are those of group ``j``.

    ``starts`` is int64 ``(g + 1,)``, strictly ascending; ``strata``, dense numbers from 0, and ``images``, how many of
    that stratum lie in the group, above 0, are int64 ``(k,)``; ``order``, seeded hashes that break ties, is int64
    ``(g,)``. Raises ValueError for columns that do not fit each other.
    """

    starts: NDArray[np.int64]
    strata: NDArray[np.int64]
    images: NDArray[np.int64]
    order: NDArray[np.int64]

    def __post_init__(self) -> None:
        groups, entries = len(self.order), len(self.strata)
        ends = self.starts[[0, -1]].tolist() if len(self.starts) else []
        if len(self.starts) != groups + 1 or ends != [0, entries] or np.any(np.diff(self.starts) <= 0):
            raise ValueError(f"Wanted ascending starts of {groups} groups, from 0 to {entries}. Found: {self.starts}")
        if len(self.images) != entries or np.any(self.images <= 0):
            raise ValueError(f"Wanted images above 0 for each of {entries} entries. Found: {self.images}")

    @property
    def owners(self) -> NDArray[np.int64]:
        """The group of each entry, int64 ``(k,)``."""
        return np.repeat(np.arange(len(self.order)), np.diff(self.starts))


def assign_groups(groups: Groups, wanted: NDArray[np.float64]) -> NDArray[np.int64]:
    """The split of each group, int64 ``(g,)``, so that images come near to those ``wanted``.

    ``wanted`` is float64 ``(n, s)``: images still wanted by stratum and split, perhaps fractions, and below 0 where a
    split has too many. It is a wish: also where it is 0, a split may get some. But a split that wants nothing in all
    gets nothing, if another wants any, and one that wants images in all gets a group, unless there are fewer groups
    than such splits. The groups may be given in any order: ties go by ``order``, then by content. Raises ValueError for
    strata or numbers that do not fit.
    """
    strata, splits = wanted.shape
    if not splits or not np.isfinite(wanted).all():
        raise ValueError(f"Wanted finite numbers of images for one split or more. Found: {wanted}")
    if len(groups.strata) and not 0 <= groups.strata.min() <= groups.strata.max() < strata:
        raise ValueError(f"Wanted strata from 0 to {strata - 1}. Found: {groups.strata.min()} to {groups.strata.max()}")
    if splits == 1 or not len(groups.order):
        return np.zeros(len(groups.order), dtype=np.int64)
    ranking = _descending(groups)
    search = _Search(groups, ranking, wanted)
    search.fill()
    search.move()
    largest = search.aim()
    for _ in range(_TIMES):
        if np.abs(search.left[-1]).max() > largest:
            search.worth[-1] *= _HEAVIER
            search.move()
    search.trade()
    search.supply()
    return search.split[np.argsort(ranking)]


def deviations(groups: Groups, assigned: NDArray[np.int64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Images that each split got of each stratum, minus those ``wanted``; both float64 ``(n, s)``."""
    cells = groups.strata * wanted.shape[1] + assigned[groups.owners]
    got = np.bincount(cells, weights=groups.images, minlength=wanted.size)
    return got.reshape(wanted.shape).astype(np.float64) - wanted


def _descending(groups: Groups) -> NDArray[np.int64]:
    """The groups from the largest to the smallest, int64 ``(g,)``; ties by ``order``, then by what lies in them."""
    sizes = np.add.reduceat(groups.images, groups.starts[:-1])
    ranking = np.lexsort((groups.order, -sizes))
    if np.any((np.diff(sizes[ranking]) == 0) & (np.diff(groups.order[ranking]) == 0)):
        entries = np.stack((groups.strata, groups.images), axis=1)
        content = [sorted(part.tolist()) for part in np.split(entries, groups.starts[1:-1])]
        ranking = np.array(sorted(ranking.tolist(), key=lambda j: (-sizes[j], groups.order[j], content[j])))
    return ranking.astype(np.int64)


class _Search:
    """Groups in descending size, the split of each so far (-1: none), and the images still wanted.

    The last stratum is that of all images, so that totals need no arithmetic of their own.
    """

    def __init__(self, groups: Groups, ranking: NDArray[np.int64], wanted: NDArray[np.float64]) -> None:
        every, count = len(wanted), len(ranking)
        rank = np.argsort(ranking)
        self.sizes: NDArray[np.int64] = np.add.reduceat(groups.images, groups.starts[:-1])[ranking]
        owners = np.concatenate((rank[groups.owners], np.arange(count)))
        strata = np.concatenate((groups.strata, np.full(count, every)))
        keys, where = np.unique(owners * (every + 1) + strata, return_inverse=True)
        self.strata = keys % (every + 1)
        self.images = np.bincount(where, weights=np.concatenate((groups.images, self.sizes)))
        self.starts: list[int] = np.searchsorted(keys, np.arange(count + 1) * (every + 1)).tolist()
        self.split = np.full(count, -1, dtype=np.int64)
        self.wants = wanted.sum(axis=0)
        self.wanting = self.wants > _NOISE * self.sizes.sum()
        is_open = self.wanting | ~self.wanting.any()
        self.left = np.vstack((wanted, self.wants)).astype(np.float64)
        self.shares = np.maximum(wanted, 0) * is_open
        # However little a cell wants, it counts as if it wanted a usual group: else small splits would stay empty.
        entries = np.bincount(self.strata, minlength=every + 1)
        usual = np.bincount(self.strata, weights=self.images, minlength=every + 1) / np.maximum(entries, 1)
        shares = np.vstack((self.shares, self.shares.sum(axis=0)))
        self.worth = 1 / np.maximum(shares, np.maximum(usual, 1)[:, None])
        self.worth[-1] *= np.where(is_open, _LIGHT, _SHUT)

    def fill(self) -> None:
        """Put one group after the other where the distance falls most."""
        for group in range(len(self.split)):
            self._put(group, int(self._changes(group).argmin()))

    def move(self) -> None:
        """Move single groups, those that gain most first, until none gains."""
        work = _WORK
        while work > 0:
            best = self._all_changes().min(axis=1)
            gaining = np.flatnonzero(best < -_NOISE)
            gaining = gaining[np.argsort(best[gaining], kind="stable")][: 1 + work // _ALONE]
            work -= _ALONE * len(gaining) + len(self.strata) * len(self.wants)
            moved = False
            for group in gaining.tolist():
                changes = self._changes(group)
                split = int(changes.argmin())
                if changes[split] < -_NOISE:
                    self._put(group, split)
                    moved = True
            if not moved:
                return

    def aim(self) -> float:
        """Aim at totals that leave room for giants, groups beyond all that some split wants; the largest other group.

        Where giants hold more of a stratum than is wanted there, the other splits share what they leave of it.
        """
        giants = int((self.sizes > np.min(self.wants, where=self.wants > 0, initial=np.inf)).sum())
        end, splits = self.starts[giants], np.repeat(self.split[:giants], np.diff(self.starts[: giants + 1]))
        cells = self.strata[:end] * len(self.wants) + splits
        held = np.bincount(cells, weights=self.images[:end], minlength=self.left.size).reshape(self.left.shape)[:-1]
        burst = held > self.shares
        others = np.where(burst, 0, self.shares)
        rest = np.bincount(self.strata, weights=self.images)[:-1] - held.sum(axis=1, where=burst)
        room = others * (rest / np.maximum(others.sum(axis=1), _NOISE))[:, None]
        self.left[-1] += np.where(burst, held, room).sum(axis=0) - self.wants
        return float(self.sizes[giants:].max(initial=1))

    def trade(self) -> None:
        """Let the groups that come nearest to moving trade places with others of about their size."""
        traders = min(_TRADERS, _WORK * len(self.split) // (len(self.strata) * 2 * _NEIGHBOURS))
        for _ in range(_TRADE_PASSES):
            changes = self._all_changes()
            changes[np.arange(len(changes)), self.split] = np.inf
            nearest = np.argsort(changes.min(axis=1), kind="stable")[:traders]
            if not sum(self._trade(group) for group in nearest.tolist()):
                return

    def supply(self) -> None:
        """Move a group to each split that wants images but got none, the one that costs least there."""
        if len(self.split) < self.wanting.sum():
            return
        for split in np.flatnonzero(self.wanting & (np.bincount(self.split, minlength=len(self.wants)) == 0)).tolist():
            spare = ~self.wanting | (np.bincount(self.split, minlength=len(self.wants)) > 1)
            changes = np.where(spare[self.split], self._all_changes()[:, split], np.inf)
            self._put(int(changes.argmin()), split)

    def _trade(self, group: int) -> bool:
        """Trade places with the neighbour that gains most by it, if one does."""
        own, here = slice(self.starts[group], self.starts[group + 1]), self.split[group]
        first, last = max(0, group - _NEIGHBOURS), min(len(self.split), group + _NEIGHBOURS + 1)
        starts, splits = np.array(self.starts[first : last + 1]), self.split[first:last]
        strata, theirs = self.strata[starts[0] : starts[-1]], self.images[starts[0] : starts[-1]]
        there = np.repeat(splits, np.diff(starts))
        ours = np.zeros(len(self.left))
        ours[self.strata[own]] = self.images[own]
        worth_here, worth_there = self.worth[strata, here], self.worth[strata, there]
        pull = self.left[strata, here] * worth_here - self.left[strata, there] * worth_there
        # What changes when they come here, less what both ways would count twice: ours leave as theirs come.
        parts = theirs * ((theirs - 2 * ours[strata]) * (worth_here + worth_there) - 2 * pull)
        changes = np.add.reduceat(parts, starts[:-1] - starts[0]) + self._changes(group)[splits]
        changes[splits == here] = 0
        other = int(changes.argmin())
        if changes[other] >= -_NOISE:
            return False
        self._put(group, int(splits[other]))
        self._put(first + other, int(here))
        return True

    def _put(self, group: int, split: int) -> None:
        own, before = slice(self.starts[group], self.starts[group + 1]), self.split[group]
        strata, images = self.strata[own], self.images[own]
        column = self.left[:, split]  # a view: much quicker than indexing both axes
        column[strata] -= images
        if before >= 0:
            column = self.left[:, before]
            column[strata] += images
        self.split[group] = split

    def _changes(self, group: int) -> NDArray[np.float64]:
        """What the distance changes by when the group goes to each split, ``(s,)``."""
        own, here = slice(self.starts[group], self.starts[group + 1]), self.split[group]
        strata, images = self.strata[own], self.images[own, None]
        weighed = images * self.worth.take(strata, axis=0)
        changes: NDArray[np.float64] = np.add.reduce(weighed * (images - 2 * self.left.take(strata, axis=0)), axis=0)
        if here >= 0:
            changes += 2 * np.add.reduce(weighed[:, here] * images[:, 0]) - changes[here]
            changes[here] = 0
        return changes

    def _all_changes(self) -> NDArray[np.float64]:
        """`_changes` of every group, ``(g, s)``."""
        found = np.empty((len(self.split), len(self.wants)))
        step = 1 + _CHUNK * len(found) // (len(self.strata) * len(self.wants))
        for first in range(0, len(found), step):
            starts, here = np.array(self.starts[first : first + step + 1]), self.split[first : first + step]
            span, rows, starts = slice(starts[0], starts[-1]), np.arange(len(here)), starts[:-1] - starts[0]
            strata, images = self.strata[span], self.images[span, None]
            weighed = images * self.worth[strata]
            part = np.add.reduceat(weighed * (images - 2 * self.left[strata]), starts, axis=0)
            squares = np.add.reduceat(weighed * images, starts, axis=0)
            part += (2 * squares[rows, here] - part[rows, here])[:, None]
            part[rows, here] = 0
            found[first : first + step] = part
        return found
