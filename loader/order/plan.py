"""The protocol of plans, which say which sample comes when, and what all plans have in common. Pure arithmetic."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, Self

from loader.errors import OptionError, StateError
from loader.order.permutation import Sharding

_OF_THE_SAMPLES = ("fingerprint", "rows")
_OF_THE_ORDER = ("seed", "shuffle")


class PlanState(Protocol):
    """A position in an epoch."""

    def to_dict(self) -> dict[str, Any]:
        """The state as dictionaries, lists, texts and numbers."""
        ...


class Plan(Protocol):
    """The epochs of one rank, batch by batch. The epoch of a loaded state has only its undelivered rest."""

    @property
    def rows(self) -> int:
        """The samples of an epoch over all ranks."""
        ...

    @property
    def whole(self) -> Sharding:
        """How a full epoch is distributed."""
        ...

    @property
    def loaded(self) -> PlanState | None:
        """The state that it continues from."""
        ...

    @property
    def first_epoch(self) -> int:
        """The epoch of the loaded state; 0 without one."""
        ...

    def samples(self, epoch: int, /, *, offset: int = 0, every: int = 1) -> int:
        """The samples of the epoch on this rank, in the batches that `steps` gives; those that FILL repeats count."""
        ...

    def first_step(self, epoch: int, /) -> int:
        """The number of an epoch's first batch: 0, or how many batches of this size were delivered before."""
        ...

    def steps(self, epoch: int, /, *, offset: int = 0, every: int = 1) -> Iterator[Any]:
        """The batches of an epoch on this rank, in order; or every so-many-th of the remaining ones, from ``offset``
        on.
        """
        ...

    def after(self, epoch: int, /, *, steps: int | None = None) -> PlanState:
        """The state once all ranks have delivered the batches of an epoch before number ``steps``; None: its beginning.
        Raises `OptionError` for fewer batches than the loaded state has, or more than the epoch has.
        """
        ...

    def after_samples(self, epoch: int, /, *, end: int, late: Iterable[int]) -> PlanState:
        """The state once this rank has delivered, out of order, all samples below ``end`` but the late ones; of one
        rank among several a part of the state, see `merge_states`.
        """
        ...

    def going_on(self, state: Mapping[str, Any], /) -> Self:
        """The same plan, from a state on. Raises `StateError` for a state of another plan."""
        ...


def check_same(found: Any, ours: Any, /, *, samples: str, order: str) -> None:
    """Compare a state with ours of the same epoch; ``samples`` and ``order`` are the words for them in the message.
    Raises `StateError` for other samples or another order.
    """
    for name in (*_OF_THE_SAMPLES, *_OF_THE_ORDER):
        if getattr(found, name) != getattr(ours, name):
            raise StateError(
                f"Wanted a state of {samples if name in _OF_THE_SAMPLES else order}: {name} {getattr(ours, name)}. "
                f"Found: {getattr(found, name)}. "
                "Make the source with the options that it had, or start from the beginning."
            )


def check_steps(steps: int, *, epoch: int, first: int, most: int) -> None:
    """Raise `OptionError` unless ``steps`` batches of an epoch, counted from its start, can have been delivered."""
    if not first <= steps <= most:
        raise OptionError(
            f"Wanted from {first} to {most} batches of epoch {epoch}, counted from its start. Found: {steps}. "
            "After a resume, count from source.first_step(epoch)."
        )
