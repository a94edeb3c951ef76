"""The epochs of a folder of shards on one rank, and its position after a batch. Pure arithmetic."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from loader.errors import OptionError, StateError
from loader.order.history import Past, Run, can_be, closed, past_of, without_past
from loader.order.permutation import LastBatchPolicy, Sharding
from loader.order.plan import Placed, Plan, check_same
from loader.shards.shard_order import Deal, EpochOrder, Numbers, Ranges, ShardStep, steps

_FORMAT = 1
_OF_THE_DEAL = ("batch_size", "world_size", "last_batch_policy", "streams", "mix")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """The position in an epoch of shards, the same on all ranks: ``steps`` delivered batches of what was ``left``
    before (None: a full epoch).
    """

    fingerprint: str
    seed: int
    shuffle: bool
    epoch: int
    rows: int
    batch_size: int
    world_size: int
    last_batch_policy: LastBatchPolicy
    streams: int
    mix: int
    left: Ranges | None = None
    steps: int = 0
    past: Past = field(default=(), compare=False)  # the runs that led to it

    def deal(self) -> Deal:
        """How what was left is distributed."""
        left = ((0, self.rows),) if self.left is None else self.left
        return Deal(left, self.batch_size, self.world_size, self.last_batch_policy, self.streams, self.mix)

    @property
    def dealt(self) -> int:
        """How many samples were left before."""
        return self.deal().rows

    def later(self, steps: int, /) -> "ShardState":
        """The state after so many more batches of all ranks."""
        return replace(self, steps=self.steps + steps)

    def following(self) -> "ShardState":
        """The state at the beginning of the next epoch."""
        return replace(self, epoch=self.epoch + 1, left=None, steps=0)

    def with_past(self, past: Past, /) -> "ShardState":
        """The state with the runs that led to it."""
        return replace(self, past=past)

    def to_dict(self) -> dict[str, Any]:
        """The state as dictionaries, lists, texts and numbers."""
        left = None if self.left is None else [list(one) for one in self.left]
        return {
            "format": _FORMAT,
            "kind": "shards",
            **without_past({one.name: getattr(self, one.name) for one in fields(self)}),
            "left": left,
            "global_batch_size": self.batch_size * self.world_size,
            **({"past": [run.to_dict() for run in self.past]} if self.past else {}),
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any], /) -> "ShardState":
        """The state that `to_dict` returned; raises `StateError` for anything else."""
        if not isinstance(found, Mapping):
            raise StateError(f"Wanted a state of shards from state_dict(). Found: {type(found).__name__}")
        if "kind" not in found and "share" in found:
            raise StateError("Wanted a state of shards. Found: one of a split or of class folders")
        try:
            if found["kind"] != "shards" or found["format"] != _FORMAT:
                raise ValueError(f"{found['kind']!r}, format {found['format']!r}")
            left = found["left"]
            ranges = None if left is None else tuple((int(start), int(stop)) for start, stop in left)
            given = {one.name: found[one.name] for one in fields(cls) if one.name != "past"}
            state = cls(**{**given, "left": ranges, "past": past_of(found.get("past", ()), cls.from_dict)})
            numbers = (state.epoch, state.rows, state.steps, state.seed, *(x for one in ranges or () for x in one))
            numbers += (state.streams, state.mix)
            if not all(type(number) is int for number in numbers) or min(state.epoch, state.steps) < 0:
                raise ValueError("something other than whole numbers")
            if min(state.streams, state.mix) < 1 or not can_be(state.batch_size, state.world_size):
                raise ValueError("impossible options")
            if any(not 0 <= start < stop <= state.rows for start, stop in ranges or ()):
                raise ValueError("places outside the epoch")
        except StateError:  # of a run in its past
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"Wanted a state of shards from state_dict(). Found: {error!r}") from None
        return state


@dataclass(frozen=True, kw_only=True)
class ShardSchedule(Plan):
    """The epochs of shards on one rank."""

    pieces: Numbers  # the number of samples of each piece, int64 (p,)
    streams: int
    mix: int
    loaded: ShardState | None = None

    @cached_property
    def whole(self) -> Sharding:
        return self._sharding(int(self.pieces.sum()))

    def steps(self, epoch: int, /, *, offset: int = 0, every: int = 1) -> Iterator[ShardStep]:
        begin, first = self._begin(epoch), self.first_step(epoch)
        done, order = begin.steps, self._order(epoch)
        return steps(begin.deal(), order, self.rank, first=first - done, begin=done + offset, every=every)

    def after_samples(self, epoch: int, /, *, end: int, late: Iterable[int]) -> ShardState:
        """Raises `OptionError`: shards are delivered in order."""
        raise OptionError(f"Wanted batches of shards in order. Found: {end} samples of epoch {epoch} out of order")

    def going_on(self, state: Mapping[str, Any], /) -> "ShardSchedule":
        """The same schedule, from a state on. Raises `StateError` for a state of other shards or another order."""
        found = ShardState.from_dict(state)
        is_begin = found.epoch == found.steps == 0 and found.left is None
        past = closed(found.past, found.to_dict(), is_begin=is_begin)
        ours = self._whole_epoch(found.epoch)
        check_same(found, ours, samples="these shards")
        if any(getattr(found, name) != getattr(ours, name) for name in _OF_THE_DEAL):
            left = found.deal().after(found.steps, self._order(found.epoch)) if found.steps else found.left
            found = replace(ours, left=left)
            if left is not None and not left:
                found = found.following()
        return replace(self, loaded=replace(found, past=past))

    def of_run(self, run: Run, /) -> "ShardSchedule":
        own = {name: run.begin[name] for name in ("streams", "mix")}
        return super(ShardSchedule, replace(self, **own)).of_run(run)

    def delivered(self, epoch: int, end: Mapping[str, Any], /) -> int:
        begin, found = self._begin(epoch), ShardState.from_dict(end)
        if found.epoch > epoch:
            return self._sharding(begin.dealt).most_steps
        return found.steps - begin.steps if found.epoch == epoch else 0

    def placed(self, step: ShardStep, /) -> Placed:
        positions = self._starts[list(step.pieces)] + np.array(step.insides, dtype=np.int64)
        return Placed(positions, positions)  # an epoch has each once

    def places_of(self, epochs: Sequence[int], position: int, /) -> tuple[Numbers, Numbers]:
        return np.array(epochs, dtype=np.int64), np.full(len(epochs), position, dtype=np.int64)  # as `placed` gives

    def where(self, epochs: Numbers, places: Numbers, /) -> list[tuple[int, int, int]]:
        # The order of shards has no inverse: all batches are looked through.
        pieces = np.searchsorted(self._starts, places, side="right") - 1
        insides = places - self._starts[pieces]
        return [
            (epoch, step.number, rank)
            for epoch, *wanted in zip(epochs.tolist(), pieces.tolist(), insides.tolist(), strict=True)
            for rank in range(self.world_size)
            for step in replace(self, rank=rank).steps(epoch)
            if wanted[0] in step.pieces and tuple(wanted) in zip(step.pieces, step.insides, strict=True)
        ]

    @cached_property
    def _starts(self) -> Numbers:
        return np.concatenate([[0], np.cumsum(self.pieces)]).astype(np.int64)

    def _order(self, epoch: int) -> EpochOrder:
        return EpochOrder(self.pieces, self.fingerprint, self.seed, epoch, self.shuffle)

    def _whole_epoch(self, epoch: int) -> ShardState:
        return ShardState(
            fingerprint=self.fingerprint,
            seed=self.seed,
            shuffle=self.shuffle,
            epoch=epoch,
            rows=self.whole.rows,
            batch_size=self.batch_size,
            world_size=self.world_size,
            last_batch_policy=self.last_batch_policy,
            streams=self.streams,
            mix=self.mix,
        )
