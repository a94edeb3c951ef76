"""Which samples a rank delivers in each epoch, batch by batch, and its position after a batch. Pure arithmetic."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.errors import StateError
from loader.order.permutation import LastBatchPolicy, Sharding, epoch_order
from loader.order.plan import check_same, check_steps
from loader.order.state import Left, Share, State

# Places of an order that are computed together: a call takes milliseconds for this many as for a few.
_PLACES_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class Step:
    """A batch to be read, number ``number`` of the epoch, the same on all ranks: ``positions`` in the split, int64
    ``(b,)``, of which the last ``repeats`` repeat samples of earlier batches of any rank.
    """

    number: int
    positions: NDArray[np.int64]
    repeats: int


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The epochs of a split on one rank. The epoch of a ``loaded`` state has only its undelivered rest."""

    fingerprint: str
    rows: int
    seed: int
    shuffle: bool
    batch_size: int
    rank: int
    world_size: int
    last_batch_policy: LastBatchPolicy
    loaded: State | None = None

    def __post_init__(self) -> None:
        _ = self.whole  # raises if the numbers are not possible

    @cached_property
    def whole(self) -> Sharding:
        """How a full epoch is distributed. Raises `OptionError`."""
        return self._sharding(self.rows)

    @property
    def first_epoch(self) -> int:
        """The epoch of the loaded state; 0 without one."""
        return 0 if self.loaded is None else self.loaded.epoch

    def samples(self, epoch: int, /, *, offset: int = 0, every: int = 1) -> int:
        """The samples of the epoch on this rank, in the batches that `steps` gives; those that FILL repeats count."""
        sharding = self._sharding(len(self._begin(epoch).left))
        return sharding.samples_of(range(offset, sharding.steps, every))

    def first_step(self, epoch: int, /) -> int:
        """The number of an epoch's first batch: 0, or how many batches of this size were delivered before."""
        begin = self._begin(epoch)
        return (begin.rows - len(begin.left)) // begin.global_batch_size

    def steps(self, epoch: int, /, *, offset: int = 0, every: int = 1) -> Iterator[Step]:
        """The batches of an epoch on this rank, in order; or every so-many-th of the remaining ones, from ``offset``
        on.
        """
        begin = self._begin(epoch)
        left, sharding, first = begin.left, self._sharding(len(begin.left)), self.first_step(epoch)
        order = epoch_order(self.rows, fingerprint=self.fingerprint, seed=self.seed, epoch=epoch, shuffle=self.shuffle)
        at_once = max(1, _PLACES_AT_ONCE // self.batch_size)
        wanted = range(offset, sharding.steps, every)
        for start in range(0, len(wanted), at_once):
            steps = wanted[start : start + at_once]
            places = [self._places(left, sharding, step) for step in steps]
            if order is not None:
                places = np.split(order(np.concatenate(places)), np.cumsum([len(one) for one in places[:-1]]))
            for step, positions in zip(steps, places, strict=True):
                yield Step(first + step, positions, sharding.repeats(step))

    def after(self, epoch: int, /, *, steps: int | None = None) -> State:
        """As `Plan.after`."""
        begin = self._begin(epoch)
        sharding, first = self._sharding(len(begin.left)), self.first_step(epoch)
        most = first + sharding.most_steps
        steps = first if steps is None else steps
        check_steps(steps, epoch=epoch, first=first, most=most)
        if steps == most:
            return begin.following()
        return begin.after(min((steps - first) * sharding.global_batch_size, sharding.rows))

    def after_samples(self, epoch: int, /, *, end: int, late: Iterable[int]) -> State:
        """As `Plan.after_samples`."""
        begin, late = self._begin(epoch), tuple(late)
        sharding = self._sharding(len(begin.left))
        if self.world_size == 1 or (not late and end >= sharding.samples):
            return begin.following() if end >= sharding.samples and not late else begin.after(end, late=late)
        return replace(begin, share=Share(self.rank, self.world_size, self.batch_size, end, late))

    def going_on(self, state: Mapping[str, Any], /) -> "Schedule":
        """The same schedule, from a state on. Raises `StateError` for a state of another split, seed or order, or of
        one rank.
        """
        found = State.from_dict(state)
        check_same(found, self._whole_epoch(found.epoch), samples="this split", order="this order")
        if found.share is not None:
            raise StateError(
                "Wanted the state of all ranks. Found: the state of one rank with out-of-order delivery. "
                "Join the states of all ranks with loader.merge_states."
            )
        return replace(self, loaded=found)

    def _begin(self, epoch: int) -> State:
        """The state at the start of an epoch: all of it, or the rest in the loaded state."""
        if self.loaded is not None and self.loaded.epoch == epoch:
            return replace(self.loaded, global_batch_size=self.batch_size * self.world_size)
        return self._whole_epoch(epoch)

    def _whole_epoch(self, epoch: int) -> State:
        return State(
            fingerprint=self.fingerprint,
            seed=self.seed,
            shuffle=self.shuffle,
            epoch=epoch,
            global_batch_size=self.batch_size * self.world_size,
            rows=self.rows,
        )

    def _places(self, left: Left, sharding: Sharding, step: int) -> NDArray[np.int64]:
        """The places of a batch in the epoch's order."""
        found = left(sharding.places(step))
        if repeats := sharding.repeats(step):
            found[-repeats:] = sharding.repeated(step, self.rows)
        return found

    def _sharding(self, rows: int) -> Sharding:
        return Sharding(rows, self.batch_size, self.rank, self.world_size, self.last_batch_policy)
