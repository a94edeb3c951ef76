"""What has been delivered of a source's batches, so that its state can be told. No I/O."""

from collections import OrderedDict
from collections.abc import Sequence

from loader.errors import OptionError
from loader.order.plan import Plan, PlanState

_MARKS = 1024
"""Batches for which it is known what was delivered with them, out of order."""


class Delivery:
    """The last batch that was delivered; and out of order, which samples were delivered with each of late."""

    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order
        self._last: tuple[int, int | None] | None = (0, None)
        self._marks: OrderedDict[tuple[int, int], tuple[int, Sequence[int]]] = OrderedDict()

    def begin(self, epoch: int) -> None:
        """Start with an epoch, as a loaded state has it; after `leave`, what is delivered stays unknown."""
        self._marks.clear()
        if self._last is not None:
            self._last = epoch, None

    def note(self, epoch: int, steps: int | None) -> None:
        """The batches of an epoch before number ``steps`` were delivered; None: what it began with."""
        self._last = epoch, steps

    def leave(self) -> None:
        """From now on only the caller knows what is delivered: DALI, or workers, read ahead of it."""
        self._last = None

    def mark(self, epoch: int, number: int, *, end: int, late: Sequence[int]) -> None:
        """Batch ``number`` is here, to be delivered: with it all samples below ``end`` but the ``late`` ones are."""
        if not self._in_order:
            self._marks[epoch, number + 1] = end, late  # not the images
            if len(self._marks) > _MARKS:
                self._marks.popitem(last=False)

    def state(self, plan: Plan, epoch: int | None, steps: int | None) -> PlanState:
        """The state behind the batches of an epoch before number ``steps``, by default behind what was delivered.

        Raises `OptionError` where that is not known.
        """
        if epoch is None:
            if self._last is None:
                raise OptionError(
                    "Wanted epoch and steps, which say what has left your pipeline. "
                    "Found: neither; DALI and workers read ahead."
                )
            epoch, steps = self._last
        if self._in_order or steps is None or steps == plan.first_step(epoch):
            return plan.after(epoch, steps=steps)
        if (mark := self._marks.get((epoch, steps))) is None:
            raise OptionError(
                f"Wanted a batch that was read lately, as batches come out of order. Found: {steps} of epoch {epoch}"
            )
        return plan.after_samples(epoch, end=mark[0], late=mark[1])
