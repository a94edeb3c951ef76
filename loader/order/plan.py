"""What a source asks of a plan, which says which sample comes when, and what all plans do alike. Pure arithmetic."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, Self

from loader.errors import StateError
from loader.order.permutation import Sharding

_OF_THE_SAMPLES = ("fingerprint", "rows")
_OF_THE_ORDER = ("seed", "shuffle")


class PlanState(Protocol):
    """Where an epoch stands."""

    def to_dict(self) -> dict[str, Any]:
        """The state as dictionaries, lists, texts and numbers."""
        ...


class Plan(Protocol):
    """The epochs of one rank, batch by batch; the one that a loaded state stands in has only what is left of it."""

    @property
    def rows(self) -> int:
        """The samples of an epoch over all ranks."""
        ...

    @property
    def whole(self) -> Sharding:
        """How a whole epoch is dealt."""
        ...

    @property
    def loaded(self) -> PlanState | None:
        """The state that it goes on from."""
        ...

    @property
    def first_epoch(self) -> int:
        """The epoch that the loaded state stands in; 0 without one."""
        ...

    def samples(self, epoch: int, /, *, offset: int = 0, every: int = 1) -> int:
        """The samples that the epoch has on this rank, in the batches that `steps` gives; what FILL repeats counts."""
        ...

    def first_step(self, epoch: int, /) -> int:
        """The number of an epoch's first batch: 0, or how many of this size what was delivered before would make."""
        ...

    def steps(self, epoch: int, /, *, offset: int = 0, every: int = 1) -> Iterator[Any]:
        """The batches of an epoch on this rank, in order; or of those that it has left, every so many-th from one."""
        ...

    def after(self, epoch: int, /, *, steps: int | None = None) -> PlanState:
        """The state once all ranks have delivered the batches of an epoch before number ``steps``.

        None: where it begins. Raises `OptionError` for fewer batches than were delivered before the epoch went on, or
        more than it has.
        """
        ...

    def after_samples(self, epoch: int, /, *, end: int, late: Iterable[int]) -> PlanState:
        """The state once this rank has delivered all samples below ``end`` but the late, where they come out of order.

        Of one rank among several it is a share of the state; see `merge_states`.
        """
        ...

    def going_on(self, state: Mapping[str, Any], /) -> Self:
        """The same, from a state on. Raises `StateError` for a state of another plan."""
        ...


def check_same(found: Any, ours: Any, /, *, samples: str, order: str) -> None:
    """Compare a state with ours of the same epoch; ``samples`` and ``order`` say what it should be a state of.

    Raises:
        StateError: It is of other samples or of another order.
    """
    for name in (*_OF_THE_SAMPLES, *_OF_THE_ORDER):
        if getattr(found, name) != getattr(ours, name):
            raise StateError(
                f"Wanted a state of {samples if name in _OF_THE_SAMPLES else order}: {name} {getattr(ours, name)}. "
                f"Found: {getattr(found, name)}. Make the source as it was then, or begin anew."
            )
