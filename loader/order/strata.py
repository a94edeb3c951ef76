"""Epochs whose global batches have the same share of each class, as orders that are computed, not stored.

Each class has a number of places of an epoch, its due, and each global batch has its share of that, rounded up or down.
Such a matrix of batches and classes always exists. Each batch gets the rounded-down shares. The remaining places of all
classes, listed class by class, are assigned to the batches in turn, as in the wrap-around rule of McNaughton
("Scheduling with deadlines and loss functions", 1959). No class has more remaining places than there are batches, so no
batch gets two of a class. The last, partial batch is chosen first, so that the others can be full::

    due 7 and 5, batches of 5       class a   class b   left over, in turn
    shares of a batch               2.9       2.1
    batch 0                         2         2         a
    batch 1                         2         2         a
    the last two places             1         1

Which images of a class an epoch has is a window of one order of the class, which never changes: epoch ``e`` begins
``e * due`` places after epoch 0, and the order begins again at its end. So within an epoch, and over any number of
epochs, the numbers of times that two images of a class come differ by at most one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import inf
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from formats.permutation import Permutations

SamplingName: TypeAlias = Literal["shuffled", "stratified", "balanced"]
Integers: TypeAlias = NDArray[np.int64]

_NAMES = ("stratified", "balanced", "mixed", "bucketed")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How classes, or the parts of a mixture, share an epoch and its batches."""

    name: SamplingName | Literal["mixed", "bucketed"]
    batch: int  # places of a global batch when the order began; other ranks continue it with batches of other sizes
    # By number of the class or part. None: equal ones with "balanced", otherwise in proportion to their images.
    weights: tuple[tuple[int, float], ...] | None = None
    buckets: str | None = None  # the digest of those of "bucketed"

    def to_dict(self) -> dict[str, Any]:
        """The same as dictionaries, lists, texts and numbers."""
        weights = None if self.weights is None else [list(pair) for pair in self.weights]
        found: dict[str, Any] = {"name": self.name, "batch": self.batch, "weights": weights}
        return found if self.buckets is None else {**found, "buckets": self.buckets}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any], /) -> "Sampling":
        """The sampling that `to_dict` returned. Raises TypeError, ValueError or KeyError for anything else."""
        name, batch, weights = found["name"], found["batch"], found["weights"]
        if weights is not None:
            weights = tuple((number, weight) for number, weight in weights)
            if not all(type(one) is int and type(weight) is float and 0 <= weight < inf for one, weight in weights):
                raise ValueError(f"weights {weights}")
        if name not in _NAMES or type(batch) is not int or not 0 < batch <= 1 << 58:
            raise ValueError(f"a sampling {name!r} in batches of {batch!r}")
        buckets = found.get("buckets")
        if (buckets is not None) != (name == "bucketed") or not isinstance(buckets, str | None):
            raise ValueError(f"buckets {buckets!r}")
        return cls(name, batch, weights, buckets)

    def rows(self, classes: "Classes") -> int:
        """The places of an epoch."""
        sizes = classes.sizes
        return int(sizes.sum() if self.name != "bucketed" else (sizes // self.batch).sum() * self.batch)

    def strata(self, classes: "Classes") -> "Strata":
        """The shares of these classes."""
        numbers, sizes = classes.numbers.tolist(), classes.sizes
        if self.name == "balanced" or self.weights is not None:
            weights = dict.fromkeys(numbers, 1.0) if self.weights is None else dict(self.weights)
            dues = dues_of(int(sizes.sum()), {number: weights.get(number, 1.0) for number in numbers})
            return Strata(classes, np.array([dues[number] for number in numbers], dtype=np.int64), self.batch)
        return Strata(classes, sizes, self.batch)


@dataclass(frozen=True, slots=True)
class Classes:
    """The positions of a split by class."""

    labels: NDArray[np.int32]  # class numbers by position
    numbers: NDArray[np.int32]  # the class numbers that occur, ascending
    starts: Integers  # where each class begins in ``positions``, and the end of the last one
    positions: NDArray[np.uint32] | NDArray[np.int64]  # those of one class after another, ascending in each

    @property
    def sizes(self) -> Integers:
        """The images of each class."""
        return np.diff(self.starts)


def dues_of(rows: int, weights: Mapping[int, float]) -> dict[int, int]:
    """Divide ``rows`` places by weight: each class has its share rounded up or down, and all together have ``rows``."""
    total = sum(map(Fraction, weights.values()))
    shares = {number: rows * Fraction(weight) / total for number, weight in weights.items()}
    found = {number: int(share) for number, share in shares.items()}
    by_rest = sorted(shares, key=lambda number: (found[number] - shares[number], number))
    for number in by_rest[: rows - sum(found.values())]:
        found[number] += 1
    return found


@dataclass(frozen=True)
class Strata:
    """The due of each class in an epoch, and its shares of the global batches."""

    classes: Classes
    dues: Integers  # places of each class in an epoch, ``(C,)``
    batch: int  # places of a global batch

    @property
    def rows(self) -> int:
        """The places of an epoch."""
        return int(self.dues.sum())

    @property
    def full(self) -> int:
        """The number of full batches."""
        return self.rows // self.batch

    @property
    def rest(self) -> int:
        """The places of the last, partial batch."""
        return self.rows % self.batch

    @cached_property
    def shares(self) -> Integers:
        """What each full batch has of each class at least."""
        return np.array([int(due) * self.batch // self.rows for due in self.dues], dtype=np.int64)

    @cached_property
    def last(self) -> tuple[Integers, Integers]:
        """What the last, partial batch has of each class at least and at most, so that the others can be complete."""
        rows, rest, full = self.rows, self.rest, self.full
        least, most = [], []
        for due, share in zip(self.dues.tolist(), self.shares.tolist(), strict=True):
            is_even = due * self.batch % rows == 0
            least.append(max(due * rest // rows, due - full * (share + (not is_even))))
            most.append(min(-(-due * rest // rows), due - full * share))
        return np.array(least, dtype=np.int64), np.array(most, dtype=np.int64)


class StratifiedOrder:
    """The order of one epoch: the positions of the split at its places."""

    def __init__(self, strata: Strata, *, fingerprint: str, seed: int, epoch: int) -> None:
        self._strata, classes = strata, strata.classes
        key = f"stratified order 1\0{fingerprint}\0{seed}\0"
        self._cycles = Permutations(f"{key}cycles".encode())  # of the images of a class, for all epochs
        self._batches, self._slots, self._turns, lines = (
            Permutations(f"{key}{epoch}\0{what}".encode()) for what in ("batches", "slots", "turns", "classes")
        )
        count = len(classes.numbers)
        # Otherwise classes with few images would meet in the same batches in each epoch.
        self._line = lines(np.arange(count, dtype=np.int64), count)
        self._dues, self._shares = strata.dues[self._line], strata.shares[self._line]
        least, most = (bounds[self._line] for bounds in strata.last)
        can_have_more = np.flatnonzero(most > least)
        least[can_have_more[: strata.rest - int(least.sum())]] += 1
        self._left = self._dues - least - strata.full * self._shares
        self._ends_of_shares, self._ends_of_left, self._ends_of_last = (
            np.concatenate([[0], np.cumsum(numbers)]) for numbers in (self._shares, self._left, least)
        )
        sizes = classes.sizes.tolist()
        begun = [epoch * due % size for due, size in zip(strata.dues.tolist(), sizes, strict=True)]
        self._begun = np.array(begun, dtype=np.int64)

    def __len__(self) -> int:
        return self._strata.rows

    def __call__(self, places: Integers, /) -> Integers:
        """The positions at these places: int64 in, int64 of the same shape out."""
        strata, classes = self._strata, self._strata.classes
        batches, slots = np.divmod(places, strata.batch)
        is_last = batches == strata.full
        slots = self._slots(slots, np.where(is_last, strata.rest, strata.batch), batches)
        batches[~is_last] = self._batches(batches[~is_last], strata.full)
        usual = int(self._ends_of_shares[-1])
        is_left = ~is_last & (slots >= usual)
        slots[is_left] = batches[is_left] + (slots[is_left] - usual) * strata.full
        at, turns = np.empty_like(slots), np.empty_like(slots)
        for kind, ends in (
            (~is_last & ~is_left, self._ends_of_shares),
            (is_left, self._ends_of_left),
            (is_last, self._ends_of_last),
        ):
            at[kind] = np.searchsorted(ends, slots[kind], side="right") - 1
            turns[kind] = slots[kind] - ends[at[kind]]
        turns += self._shares[at] * np.where(is_last | is_left, strata.full, batches)
        turns[is_last] += self._left[at[is_last]]
        turns = self._turns(turns, self._dues[at], at)
        which = self._line[at]
        sizes = classes.sizes[which]
        found = self._cycles((self._begun[which] + turns) % sizes, sizes, which)
        positions: Integers = classes.positions[classes.starts[which] + found].astype(np.int64)
        return positions

    def places_of(self, position: int, /) -> list[int]:
        """The places at which a position comes in this epoch, ascending: none, one or several."""
        strata, classes = self._strata, self._strata.classes
        which = int(np.searchsorted(classes.numbers, classes.labels[position]))
        at = int(np.flatnonzero(self._line == which)[0])
        start, end = classes.starts[which : which + 2].tolist()
        size, due, share, left = end - start, int(self._dues[at]), int(self._shares[at]), int(self._left[at])
        of_class = classes.positions[start:end]
        # A number of another type would convert all of them.
        index = np.searchsorted(of_class, of_class.dtype.type(position))
        first = (int(self._cycles.inverse(np.array([index]), size, which)[0]) - int(self._begun[which])) % size
        places = []
        for turn in self._turns.inverse(np.arange(first, due, size, dtype=np.int64), due, at).tolist():
            beyond = turn - share * strata.full
            if beyond >= left:
                batch, slot = strata.full, int(self._ends_of_last[at]) + beyond - left
            elif beyond >= 0:
                turn_left, batch = divmod(int(self._ends_of_left[at]) + beyond, strata.full)
                slot = int(self._ends_of_shares[-1]) + turn_left
            else:
                batch, slot = turn // share, int(self._ends_of_shares[at]) + turn % share
            is_last = batch == strata.full
            if not is_last:
                batch = int(self._batches.inverse(np.array([batch]), strata.full)[0])
            size_of_batch = strata.rest if is_last else strata.batch
            slot = int(self._slots.inverse(np.array([slot]), size_of_batch, batch)[0])
            places.append(batch * strata.batch + slot)
        return sorted(places)


def classes_of(labels: NDArray[np.int32]) -> Classes:
    """The positions by class of labels that are in memory."""
    numbers, counts = np.unique(labels, return_counts=True)
    positions = np.argsort(labels, kind="stable")
    return Classes(labels, numbers, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), positions)
