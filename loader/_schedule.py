"""Which samples a rank delivers in each epoch, batch by batch, and where it stands after a batch. Pure arithmetic."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader._errors import OptionError, StateError
from loader._order import LastBatchPolicy, Sharding, epoch_order
from loader._state import State


@dataclass(frozen=True, slots=True)
class Step:
    """One batch to come: ``positions`` in the split, int64 ``(b,)``.

    The last ``repeats`` of them repeat the one before, or, if these are all, a sample of an earlier batch. ``number``
    counts the epoch's batches from 0, the same on all ranks.
    """

    number: int
    positions: NDArray[np.int64]
    repeats: int


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The epochs of a split on one rank; the one that a ``loaded`` state stands in has only what is left of it."""

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
        _ = self.whole  # refuses what is impossible

    @cached_property
    def whole(self) -> Sharding:
        """How a whole epoch is dealt. Raises `OptionError`."""
        return self._sharding(self.rows)

    @property
    def first_epoch(self) -> int:
        """The epoch that the loaded state stands in; 0 without one."""
        return 0 if self.loaded is None else self.loaded.epoch

    def samples(self, epoch: int, /) -> int:
        """The samples that the epoch has on this rank; those that FILL repeats count."""
        return self._sharding(len(self._begin(epoch).left)).samples

    def first_step(self, epoch: int, /) -> int:
        """The number of an epoch's first batch: 0, or how many of this size what was delivered before would make."""
        begin = self._begin(epoch)
        return (begin.rows - len(begin.left)) // begin.global_batch_size

    def steps(self, epoch: int, /) -> Iterator[Step]:
        """The batches of an epoch on this rank, in order."""
        begin = self._begin(epoch)
        left, sharding, first = begin.left, self._sharding(len(begin.left)), self.first_step(epoch)
        order = epoch_order(self.rows, fingerprint=self.fingerprint, seed=self.seed, epoch=epoch, shuffle=self.shuffle)
        for step in range(sharding.steps):
            places = left(sharding.places(step))
            yield Step(first + step, places if order is None else order(places), sharding.repeats(step))

    def after(self, epoch: int, /, *, steps: int | None = None) -> State:
        """The state once all ranks have delivered the batches of an epoch before number ``steps``.

        None: where it begins. Raises `OptionError` for fewer batches than were delivered before the epoch went on, or
        more than it has.
        """
        begin = self._begin(epoch)
        sharding, first = self._sharding(len(begin.left)), self.first_step(epoch)
        whole, rest = divmod(sharding.rows, sharding.global_batch_size)
        most = first + whole + (rest > 0 and self.last_batch_policy != "DROP")
        steps = first if steps is None else steps
        if not first <= steps <= most:
            raise OptionError(f"Wanted from {first} to {most} batches of epoch {epoch}. Found: {steps}")
        if steps == most:
            return begin.following()
        return begin.after(min((steps - first) * sharding.global_batch_size, sharding.rows))

    def going_on(self, state: Mapping[str, Any], /) -> "Schedule":
        """The same, from a state on. Raises `StateError` for one of another split, seed or order, or of one rank."""
        found = State.from_dict(state)
        ours = self._whole_epoch(found.epoch)
        for name in ("fingerprint", "rows", "seed", "shuffle"):
            if getattr(found, name) != getattr(ours, name):
                what = "split" if name in ("fingerprint", "rows") else "order"
                raise StateError(
                    f"Wanted a state of this {what}: {name} {getattr(ours, name)}. Found: {getattr(found, name)}"
                )
        if found.share is not None:
            raise StateError(
                "Wanted the state of all ranks. Found: that of one that delivers out of order. "
                "Give the states of all ranks to loader.merge_states."
            )
        return replace(self, loaded=found)

    def _begin(self, epoch: int) -> State:
        """Where an epoch begins: at what is left, or whole."""
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

    def _sharding(self, rows: int) -> Sharding:
        return Sharding(rows, self.batch_size, self.rank, self.world_size, self.last_batch_policy)
