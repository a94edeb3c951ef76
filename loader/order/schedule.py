"""Which samples a rank delivers in each epoch, batch by batch, and its position after a batch. Pure arithmetic."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from formats.permutation import Permutation
from loader.errors import StateError
from loader.order.buckets import BucketedOrder
from loader.order.history import closed
from loader.order.permutation import Sharding, epoch_order, epoch_orders
from loader.order.plan import Placed, Plan, check_same
from loader.order.state import Left, Share, State
from loader.order.strata import Classes, Sampling, Strata, StratifiedOrder

Order: TypeAlias = StratifiedOrder | BucketedOrder | Permutation

# Places of an order that are computed together: a call takes milliseconds for this many as for a few.
_PLACES_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class Step:
    """A batch to be read, number ``number`` of the epoch, the same on all ranks: ``positions`` in the split, int64
    ``(b,)``, of which the last ``repeats`` repeat samples of earlier batches of any rank, and their ``places`` in the
    order of the epoch.
    """

    number: int
    positions: NDArray[np.int64]
    repeats: int
    places: NDArray[np.int64]

    @classmethod
    def plain(cls, number: int, positions: NDArray[np.int64], /) -> Self:
        """A batch of an order in which places are positions."""
        return cls(number, positions, 0, positions)


@dataclass(frozen=True, kw_only=True)
class Schedule(Plan):
    """The epochs of a split on one rank."""

    rows: int
    checksums: str | None = None  # the fingerprint of those that images are compared with
    loaded: State | None = None
    sampling: Sampling | None = None  # None: each epoch has the images in a random order, or in that of the split
    classes: Classes | None = None  # those of the split, for a sampling

    @cached_property
    def whole(self) -> Sharding:
        return self._sharding(self.rows)

    def steps(self, epoch: int, /, *, offset: int = 0, every: int = 1) -> Iterator[Step]:
        begin = self._begin(epoch)
        left, sharding, first = begin.left, self._sharding(len(begin.left)), self.first_step(epoch)
        order = self.order(epoch)
        at_once = max(1, _PLACES_AT_ONCE // self.batch_size)
        wanted = range(offset, sharding.steps, every)
        for start in range(0, len(wanted), at_once):
            steps = wanted[start : start + at_once]
            places = [self._places(left, sharding, step) for step in steps]
            for step, at, positions in zip(steps, places, _ordered(order, places), strict=True):
                yield Step(first + step, positions, sharding.repeats(step), at)

    def order(self, epoch: int, /) -> Order | None:
        """The positions of the split at the places of an epoch; None: the places themselves."""
        if self._strata is not None:
            return self._order_of_classes(epoch)
        return epoch_order(self.rows, fingerprint=self.fingerprint, seed=self.seed, epoch=epoch, shuffle=self.shuffle)

    def _order_of_classes(self, epoch: int) -> StratifiedOrder | BucketedOrder:
        named: Any = {"fingerprint": self.fingerprint, "seed": self.seed, "epoch": epoch}
        assert self.sampling is not None
        assert self._strata is not None
        if self.sampling.name == "bucketed":
            return BucketedOrder(self._strata.classes, self.sampling.batch, **named)
        return StratifiedOrder(self._strata, **named)

    def after_samples(self, epoch: int, /, *, end: int, late: Iterable[int]) -> State:
        begin = self._begin(epoch)
        late = tuple(late)
        is_over = not late and end >= self._sharding(begin.dealt).samples
        if self.world_size == 1 or is_over:
            return begin.following() if is_over else begin.after(end, late=late)
        return replace(begin, share=Share(self.rank, self.world_size, self.batch_size, end, late))

    def going_on(self, state: Mapping[str, Any], /) -> "Schedule":
        """The same schedule, from a state on. Raises `StateError` for a state of another split, seed or order, of other
        bytes, or of one rank.
        """
        found = State.from_dict(state)
        is_of_this_split = found.fingerprint == self.fingerprint
        if is_of_this_split and (ours := _options(self.sampling)) != (theirs := _options(found.sampling)):
            raise StateError(
                f"Wanted a state of this order: {ours}. Found: {theirs}. "
                "Make the source with the options that it had, or start from the beginning."
            )
        check_same(found, self._whole_epoch(found.epoch), samples="this split")
        if None not in (found.checksums, self.checksums) and found.checksums != self.checksums:
            raise StateError(
                f"Wanted a state of this split: the fingerprint of its checksums {self.checksums}. "
                f"Found: {found.checksums}. The split was made again after images were replaced. Make it of the "
                'earlier bytes (split.py --as-of), give on_changed="accept" to go on with the new ones, or start from '
                "the beginning."
            )
        if found.share is not None:
            raise StateError(
                "Wanted the state of all ranks. Found: the state of one rank with out-of-order delivery. "
                "Join the states of all ranks with loader.merge_states."
            )
        is_begin = found.epoch == 0 and found.dealt == found.rows
        found = found.with_past(closed(found.past, found.to_dict(), is_begin=is_begin))
        # The same order goes on, also in batches of another size.
        return replace(self, loaded=found, sampling=found.sampling)

    def delivered(self, epoch: int, end: Mapping[str, Any], /) -> int:
        begin, found = self._begin(epoch), State.from_dict(end)
        if found.epoch > epoch:
            return self._sharding(begin.dealt).most_steps
        return (begin.dealt - found.dealt) // self.whole.global_batch_size if found.epoch == epoch else 0

    def placed(self, step: Step, /) -> Placed:
        return Placed(step.positions, step.places)

    def on_all_ranks(self, epoch: int, step: int, /) -> list[tuple[int, Placed]]:
        # At once: computing an order takes as long for the places of one rank as for those of all.
        begin, number = self._begin(epoch), step - self.first_step(epoch)
        sharding = self._sharding(begin.dealt)
        ranks = [replace(sharding, rank=rank) for rank in range(self.world_size)]
        having = [one for one in ranks if number < one.steps]
        places = [self._places(begin.left, one, number) for one in having]
        found = _ordered(self.order(epoch), places)
        return [(one.rank, Placed(*some)) for one, *some in zip(having, found, places, strict=True)]

    def places_of(self, epochs: Sequence[int], position: int, /) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._strata is None:
            at, places = np.array(epochs, dtype=np.int64), np.full(len(epochs), position, dtype=np.int64)
            if self.shuffle:
                places = epoch_orders(self.rows, epochs, fingerprint=self.fingerprint, seed=self.seed).inverse(places)
            return at, places
        found = [(epoch, place) for epoch in epochs for place in self._order_of_classes(epoch).places_of(position)]
        at, places = np.array(found, dtype=np.int64).reshape(-1, 2).T
        return at, places

    def where(
        self, epochs: NDArray[np.int64], places: NDArray[np.int64], /, *, repeated: bool = True
    ) -> list[tuple[int, int, int]]:
        """Without those that FILL repeats, if not ``repeated``."""
        found: list[tuple[int, int, int]] = []
        is_rest = epochs == (-1 if self.loaded is None else self.loaded.epoch)
        for some in (is_rest, ~is_rest):  # all whole epochs are distributed alike
            if some.any():
                found += self._where(epochs[some], places[some], repeated=repeated)
        return found

    def _where(
        self, epochs: NDArray[np.int64], places: NDArray[np.int64], *, repeated: bool
    ) -> Iterator[tuple[int, int, int]]:
        """The batches that have places of epochs of which the same is left."""
        one = int(epochs[0])
        first, left = self.first_step(one), self._begin(one).left
        sharding, indices = self._sharding(len(left)), left.indices(places)
        steps, ranks = sharding.where(indices)
        comes = (indices >= 0) & (steps < sharding.most_steps)
        yield from zip(epochs[comes].tolist(), (steps[comes] + first).tolist(), ranks[comes].tolist(), strict=True)
        if repeated:
            which, again = sharding.where_repeated(places, self.rows)
            last = first + sharding.most_steps - 1
            yield from zip(epochs[which].tolist(), repeat(last), again.tolist(), strict=False)

    def _begin(self, epoch: int) -> State:
        begin: State = super()._begin(epoch)
        if begin is not self.loaded:
            return begin
        # It may come from ranks with another global batch.
        return replace(begin, global_batch_size=self.whole.global_batch_size, checksums=self.checksums)

    def _whole_epoch(self, epoch: int) -> State:
        return State(
            fingerprint=self.fingerprint,
            checksums=self.checksums,
            seed=self.seed,
            shuffle=self.shuffle,
            epoch=epoch,
            global_batch_size=self.whole.global_batch_size,
            rows=self.rows,
            sampling=self.sampling,
        )

    @cached_property
    def _strata(self) -> Strata | None:
        return None if self.sampling is None or self.classes is None else self.sampling.strata(self.classes)

    def _places(self, left: Left, sharding: Sharding, step: int) -> NDArray[np.int64]:
        """The places of a batch in the epoch's order."""
        found = left(sharding.places(step))
        if repeats := sharding.repeats(step):
            found[-repeats:] = sharding.repeated(step, self.rows)
        return found


def _ordered(order: Order | None, places: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """The positions at the places of several batches."""
    if order is None or not places:
        return places
    return np.split(order(np.concatenate(places)), np.cumsum([len(one) for one in places[:-1]]))


def _options(sampling: Sampling | None) -> str:
    """The options of a source that give this sampling. With the same ones, two orders differ in their batch alone."""
    if sampling is not None and sampling.name == "bucketed":
        # Batches of another size would have images of two buckets.
        return f"global batches of {sampling.batch}, with buckets of the digest {str(sampling.buckets)[:12]}"
    if sampling is not None and sampling.name == "mixed":
        return f"shares={None if sampling.weights is None else [weight for _, weight in sampling.weights]}"
    name, weights = ("shuffled", None) if sampling is None else (sampling.name, sampling.weights)
    return f"sampling={name!r}, class_weights={None if weights is None else dict(weights)}"
