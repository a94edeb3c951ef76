"""What all plans, which say which sample comes when, have in common. Pure arithmetic."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from loader.errors import OptionError, StateError
from loader.order.history import Past, Run
from loader.order.permutation import LastBatchPolicy, Sharding

_OF_THE_SAMPLES = ("fingerprint", "rows")
_OF_THE_ORDER = ("seed", "shuffle")
_ONLY = 1 << 40  # a stride after which there is no other batch


class PlanState(Protocol):
    """A position in an epoch: after ``steps`` batches of all ranks, of the samples that were distributed."""

    @property
    def epoch(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def dealt(self) -> int:
        """How many samples were distributed: all of the epoch, or what an earlier state had left of it."""
        ...

    def later(self, steps: int, /) -> "PlanState":
        """The state after so many more batches of all ranks."""
        ...

    def following(self) -> "PlanState":
        """The state at the beginning of the next epoch."""
        ...

    @property
    def past(self) -> Past:
        """The runs that led to it."""
        ...

    def with_past(self, past: Past, /) -> "PlanState":
        """The state with the runs that led to it."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The state as dictionaries, lists, texts and numbers."""
        ...


class Placed(NamedTuple):
    """Samples: their positions in the split, and their places in the order of an epoch, int64 ``(b,)``. A position may
    come several times in an epoch, a place only to fill the last batch.
    """

    positions: NDArray[np.int64]
    places: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """The epochs of one rank, batch by batch. The epoch of a ``loaded`` state has only its undelivered rest."""

    fingerprint: str
    seed: int
    shuffle: bool
    batch_size: int
    rank: int
    world_size: int
    last_batch_policy: LastBatchPolicy
    loaded: PlanState | None = None

    def __post_init__(self) -> None:
        _ = self.whole  # raises if the numbers are not possible

    @cached_property
    @abstractmethod
    def whole(self) -> Sharding:
        """How a full epoch is distributed. Raises `OptionError`."""

    @property
    def first_epoch(self) -> int:
        """The epoch of the loaded state; 0 without one."""
        return 0 if self.loaded is None else self.loaded.epoch

    def samples(self, epoch: int, /, *, offset: int = 0, every: int = 1) -> int:
        """The samples of the epoch on this rank, in the batches that `steps` gives; those that FILL repeats count."""
        begin: PlanState = self._begin(epoch)
        sharding = self._sharding(begin.dealt)
        return sharding.samples_of(range(begin.steps + offset, sharding.steps, every))

    def first_step(self, epoch: int, /) -> int:
        """The number of an epoch's first batch: 0, or how many batches of this size were delivered before."""
        begin: PlanState = self._begin(epoch)
        return (self.whole.rows - begin.dealt) // self.whole.global_batch_size + begin.steps

    @abstractmethod
    def steps(self, epoch: int, /, *, offset: int = 0, every: int = 1) -> Iterator[Any]:
        """The batches of an epoch on this rank, in order; or every so-many-th of the remaining ones, from ``offset``
        on.
        """

    def after(self, epoch: int, /, *, steps: int | None = None) -> PlanState:
        """The state once all ranks have delivered the batches of an epoch before number ``steps``; None: its beginning.
        Raises `OptionError` for fewer batches than the loaded state has, or more than the epoch has.
        """
        begin: PlanState = self._begin(epoch)
        if steps is None:  # also of an epoch without batches, whose beginning is its end
            return begin
        first = self.first_step(epoch)
        most = first - begin.steps + self._sharding(begin.dealt).most_steps
        if not first <= steps <= most:
            raise OptionError(
                f"Wanted from {first} to {most} batches of epoch {epoch}, counted from its start. Found: {steps}. "
                "After a resume, count from source.first_step(epoch)."
            )
        return begin.following() if steps == most else begin.later(steps - first)

    def whole_steps(self, epoch: int, /) -> Iterator[Any]:
        """The batches of a whole epoch, as of one rank, whatever is loaded. Each can be read alone."""
        alone = replace(self, rank=0, world_size=1, last_batch_policy="PARTIAL", loaded=None)
        for number in range(alone.whole.steps):
            yield from alone.steps(epoch, offset=number, every=_ONLY)

    @abstractmethod
    def after_samples(self, epoch: int, /, *, end: int, late: Iterable[int]) -> PlanState:
        """The state once this rank has delivered, out of order, all samples below ``end`` but the late ones; of one
        rank among several a part of the state, see `merge_states`.
        """

    @abstractmethod
    def going_on(self, state: Mapping[str, Any], /) -> Self:
        """The same plan, from a state on. Raises `StateError` for a state of another plan."""

    def of_run(self, run: Run, /) -> Self:
        """The plan of a run, on its first rank. Raises `StateError` for a run of another plan."""
        made = replace(
            self,
            batch_size=run.batch_size,
            world_size=run.world_size,
            rank=0,
            last_batch_policy=run.last_batch_policy,
            loaded=None,
        )
        return made.going_on(run.begin)

    @abstractmethod
    def delivered(self, epoch: int, end: Mapping[str, Any], /) -> int:
        """How many batches of an epoch all ranks together have delivered, in order, up to a state. Raises `StateError`
        for another state.
        """

    @abstractmethod
    def placed(self, step: Any, /) -> Placed:
        """The samples of a batch."""

    def on_all_ranks(self, epoch: int, step: int, /) -> list[tuple[int, Placed]]:
        """The ranks that have a batch number ``step`` of an epoch, and its samples."""
        offset = step - self.first_step(epoch)
        plans = (replace(self, rank=rank) for rank in range(self.world_size))
        planned = [(plan.rank, next(plan.steps(epoch, offset=offset, every=_ONLY), None)) for plan in plans]
        return [(rank, self.placed(batch)) for rank, batch in planned if batch is not None]

    @abstractmethod
    def places_of(self, epochs: Sequence[int], position: int, /) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places at which a position comes in epochs, and the epoch of each, as two arrays: first the epochs, as
        they are given. An epoch may have it once, several times or not at all.
        """

    @abstractmethod
    def where(self, epochs: NDArray[np.int64], places: NDArray[np.int64], /) -> list[tuple[int, int, int]]:
        """The batches, on any rank, that have places of the orders of epochs: their epochs, numbers and ranks. A place
        that FILL repeats has several.
        """

    def _begin(self, epoch: int) -> Any:
        """The state at the start of an epoch: all of it, or the rest in the loaded state."""
        return self.loaded if self.loaded is not None and self.loaded.epoch == epoch else self._whole_epoch(epoch)

    @abstractmethod
    def _whole_epoch(self, epoch: int) -> Any:
        """The state at the start of an epoch of which nothing was delivered."""

    def _sharding(self, rows: int) -> Sharding:
        return Sharding(rows, self.batch_size, self.rank, self.world_size, self.last_batch_policy)


def check_same(found: Any, ours: Any, /, *, samples: str) -> None:
    """Compare a state with ours of the same epoch; ``samples`` are the words for them in the message. Raises
    `StateError` for other samples or another order.
    """
    for name in (*_OF_THE_SAMPLES, *_OF_THE_ORDER):
        if getattr(found, name) != getattr(ours, name):
            raise StateError(
                f"Wanted a state of {samples if name in _OF_THE_SAMPLES else 'this order'}: {name} "
                f"{getattr(ours, name)}. Found: {getattr(found, name)}. "
                "Make the source with the options that it had, or start from the beginning."
            )
