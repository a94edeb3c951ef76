"""The assignment of whole groups to splits, so that images by stratum and split are near a target. Pure arithmetic.

The optimal assignment is bin packing in as many dimensions as there are strata, so this is a heuristic. Groups are
scattered in descending size: each is drawn to a split with the probability of the split's part of the images that are
still wanted. So the chance of a group is the ratio of the split, whatever its size::

    wanted of 100 images        split 0   80     split 1   20
    a group of 10               80 %             20 %           it goes to split 0
    a group of 9                70 of 90         20 of 90       and so on: on average, still 80 % and 20 %

Only a group that is too large for what a split wants goes there more seldom. Then single groups move, and then pairs
are swapped, as long as that reduces the distance. The distance is similar to chi-square: the sum of
``(wanted - got)^2 / wanted`` over the cells of the matrix, plus the same over the totals of the splits. Totals have a
small weight at first, so that a huge group of one stratum does not keep other strata out of its split. The weight grows
as long as a total is off by more than a group.

Few groups are scattered several times, until the distance is at most that of a greedy assignment in descending size (as
in scikit-learn's ``StratifiedGroupKFold``), or no number is off by more than an image.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formats.hashing import xxhash64

# The initial weight of totals, how much and how often it may grow, and the weight where nothing is wanted.
_LIGHT, _HEAVIER, _TIMES, _SHUT = 1 / 64, 8, 4, 1e6
_WORK = 30_000_000  # the limit for moves at each weight and swaps in each pass, in cells examined: about a second
_ALONE = 1000  # the cost of examining a single group, in the same unit
_CHUNK = 1_000_000  # the number of cells that NumPy processes at once, which bounds memory
# The number of groups that try to swap, and how far they search on either side in the order of size.
_TRADERS, _NEIGHBOURS, _TRADE_PASSES = 2000, 48, 3
_NOISE = 1e-9  # A smaller gain counts as a rounding error
_TRIES, _ALL_TRIES = 8, 10_000  # the most attempts to scatter the groups, and the most cells of all attempts
_TOLERANCE = 0.5  # the distance at which a group is hardly drawn to a split that it is too large for


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The contents of ``g`` groups: entries ``starts[j]`` to ``starts[j + 1]`` belong to group ``j``. ``starts`` is
    int64 ``(g + 1,)``, strictly ascending. ``strata`` (dense numbers from 0) and ``images`` (the number of images of
    that stratum in the group, above 0) are int64 ``(k,)``. ``order`` (seeded hashes that break ties) is int64 ``(g,)``.
    """

    starts: NDArray[np.int64]
    strata: NDArray[np.int64]
    images: NDArray[np.int64]
    order: NDArray[np.int64]

    @property
    def owners(self) -> NDArray[np.int64]:
        """The group of each entry, int64 ``(k,)``."""
        return np.repeat(np.arange(len(self.order)), np.diff(self.starts))


def assign_groups(groups: Groups, wanted: NDArray[np.float64]) -> NDArray[np.int64]:
    """Assign a split to each group, int64 ``(g,)``, so that the numbers of images are near ``wanted``. ``wanted`` is
    float64 ``(n, s)``: the images still wanted by stratum and split, possibly fractions, and negative if a split has
    too many. It is a target, not a limit: a split may get images of a stratum even if it wants 0. But a split that
    wants no images in all gets none if another split wants some, and a split that wants images in all gets a group,
    unless there are fewer groups than such splits. Which groups go where follows from ``order``: over many orders, each
    group goes to a split as often as ``wanted`` allows. The groups may be in any order; ties are broken by ``order``,
    then by contents.
    """
    splits = wanted.shape[1]
    if splits == 1 or not len(groups.order):
        return np.zeros(len(groups.order), dtype=np.int64)
    ranking = _descending(groups)
    place = np.argsort(ranking)
    tries = min(_TRIES, _ALL_TRIES // (len(groups.strata) * splits))
    if tries < 2:
        return _searched(groups, ranking, wanted, attempt=0).split[place]
    usual = _searched(groups, ranking, wanted, attempt=None)
    enough, _ = usual.distance(wanted)
    for attempt in range(tries):
        found = _searched(groups, ranking, wanted, attempt=attempt)
        distance, farthest = found.distance(wanted)
        if distance <= enough + _NOISE or farthest <= 1:
            return found.split[place]
    return usual.split[place]


def _searched(
    groups: Groups, ranking: NDArray[np.int64], wanted: NDArray[np.float64], *, attempt: int | None
) -> "_Search":
    """Assign the groups, scattered by the draws of an attempt, or greedily (None)."""
    search = _Search(groups, ranking, wanted)
    if attempt is None:
        search.fill()
    else:
        search.scatter(_draws(groups.order[ranking], attempt))
    search.move()
    largest = search.aim()
    for _ in range(_TIMES):
        if np.abs(search.left[-1]).max() > largest:
            search.worth[-1] *= _HEAVIER
            search.move()
    search.trade()
    search.supply()
    return search


def _draws(order: NDArray[np.int64], attempt: int) -> NDArray[np.float64]:
    """A number from 0 to 1 for each group, which depends on its order and the attempt."""
    hashes = xxhash64([np.full(len(order), attempt, dtype=np.int64), order]).view(np.uint64)
    return (hashes >> np.uint64(11)).astype(np.float64) / (1 << 53)


def _descending(groups: Groups) -> NDArray[np.int64]:
    """The groups from the largest to the smallest, int64 ``(g,)``; ties by ``order``, then by contents."""
    sizes = np.add.reduceat(groups.images, groups.starts[:-1])
    ranking = np.lexsort((groups.order, -sizes))
    if np.any((np.diff(sizes[ranking]) == 0) & (np.diff(groups.order[ranking]) == 0)):
        entries = np.stack((groups.strata, groups.images), axis=1)
        content = [sorted(part.tolist()) for part in np.split(entries, groups.starts[1:-1])]
        ranking = np.array(sorted(ranking.tolist(), key=lambda j: (-sizes[j], groups.order[j], content[j])))
    return ranking.astype(np.int64)


class _Search:
    """Groups in descending size, the current split of each (-1: none), and the images still wanted. The last stratum
    has all images, so totals need no separate arithmetic.
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
        # A cell counts as if it wanted at least a typical group; otherwise small splits would stay empty.
        entries = np.bincount(self.strata, minlength=every + 1)
        usual = np.bincount(self.strata, weights=self.images, minlength=every + 1) / np.maximum(entries, 1)
        shares = np.vstack((self.shares, self.shares.sum(axis=0)))
        self.plain = 1 / np.maximum(shares, np.maximum(usual, 1)[:, None])
        self.worth = self.plain.copy()
        self.worth[-1] *= np.where(is_open, _LIGHT, _SHUT)
        self.is_open = is_open

    def scatter(self, draws: NDArray[np.float64]) -> None:
        """Draw a split for each group, in the proportions of the images that splits still want."""
        for group, draw in enumerate(draws.tolist()):
            own = slice(self.starts[group], self.starts[group + 1])
            strata, images = self.strata[own], self.images[own, None]
            left = np.maximum(self.left.take(strata, axis=0), 0)
            wants = left[:-1] * self.is_open
            chances = np.add.reduce(wants * (images[:-1] / np.maximum(np.add.reduce(wants, axis=1)[:, None], _NOISE)))
            if not chances.any():  # nothing of its strata is wanted any more
                chances = left[-1] * self.is_open if (left[-1] * self.is_open).any() else self.is_open.astype(float)
            too_many = np.maximum(images - left, 0)
            costs = np.add.reduce(too_many * too_many * self.plain.take(strata, axis=0))
            chances = chances * np.exp(
                np.min(costs, where=chances > 0, initial=np.inf) / _TOLERANCE - costs / _TOLERANCE
            )
            ends = np.cumsum(chances)
            self._put(group, min(int(np.searchsorted(ends, draw * ends[-1], side="right")), len(ends) - 1))

    def distance(self, wanted: NDArray[np.float64]) -> tuple[float, float]:
        """How far the assignment is from ``wanted``: the distance, and the largest number of images."""
        got = np.bincount(
            self.strata * len(self.wants) + np.repeat(self.split, np.diff(self.starts)),
            weights=self.images,
            minlength=self.left.size,
        ).reshape(self.left.shape)
        off = got - np.vstack((wanted, self.wants))
        return float((off * off * self.plain).sum()), float(np.abs(off).max())

    def fill(self) -> None:
        """Assign the groups one by one, each to the split that reduces the distance most."""
        for group in range(len(self.split)):
            self._put(group, int(self._changes(group).argmin()))

    def move(self) -> None:
        """Move single groups, those with the largest gain first, until none gains."""
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
        """Adjust the targets for giants, groups larger than all that some split wants; return the largest other group.
        If giants have more of a stratum than their split wants, the other splits share the rest of the stratum.
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
        """Swap the groups that are nearest to moving with others of similar size."""
        traders = min(_TRADERS, _WORK * len(self.split) // (len(self.strata) * 2 * _NEIGHBOURS))
        for _ in range(_TRADE_PASSES):
            changes = self._all_changes()
            changes[np.arange(len(changes)), self.split] = np.inf
            nearest = np.argsort(changes.min(axis=1), kind="stable")[:traders]
            if not sum(self._trade(group) for group in nearest.tolist()):
                return

    def supply(self) -> None:
        """Move a group to each split that wants images but got none, the one with the smallest cost."""
        if len(self.split) < self.wanting.sum():
            return
        for split in np.flatnonzero(self.wanting & (np.bincount(self.split, minlength=len(self.wants)) == 0)).tolist():
            spare = ~self.wanting | (np.bincount(self.split, minlength=len(self.wants)) > 1)
            changes = np.where(spare[self.split], self._all_changes()[:, split], np.inf)
            self._put(int(changes.argmin()), split)

    def _trade(self, group: int) -> bool:
        """Swap with the neighbor that gives the largest gain, if there is one."""
        own, here = slice(self.starts[group], self.starts[group + 1]), self.split[group]
        first, last = max(0, group - _NEIGHBOURS), min(len(self.split), group + _NEIGHBOURS + 1)
        starts, splits = np.array(self.starts[first : last + 1]), self.split[first:last]
        strata, theirs = self.strata[starts[0] : starts[-1]], self.images[starts[0] : starts[-1]]
        there = np.repeat(splits, np.diff(starts))
        ours = np.zeros(len(self.left))
        ours[self.strata[own]] = self.images[own]
        worth_here, worth_there = self.worth[strata, here], self.worth[strata, there]
        pull = self.left[strata, here] * worth_here - self.left[strata, there] * worth_there
        # The change when they come here, minus what would be counted twice: ours leave as theirs come.
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
        column = self.left[:, split]  # a view: much faster than indexing both axes
        column[strata] -= images
        if before >= 0:
            column = self.left[:, before]
            column[strata] += images
        self.split[group] = split

    def _changes(self, group: int) -> NDArray[np.float64]:
        """The change of the distance when the group goes to each split, ``(s,)``."""
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
