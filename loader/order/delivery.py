"""What has been delivered of a source's batches, for its state. No I/O."""

from collections import OrderedDict
from collections.abc import Sequence

from loader.errors import OptionError
from loader.order.plan import Plan, PlanState

_MARKS = 1024
"""Recent batches for which we know what was delivered with them, out of order."""


class Delivery:
    """The last delivered batch; and out of order, which samples were delivered with each recent batch."""

    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order
        self._last: tuple[int, int | None] | None = (0, None)
        self._marks: OrderedDict[tuple[int, int], tuple[int, Sequence[int]]] = OrderedDict()

    def begin(self, epoch: int) -> None:
        """Start with an epoch, as in a loaded state. After `leave`, what is delivered stays unknown."""
        self._marks.clear()
        if self._last is not None:
            self._last = epoch, None

    def note(self, epoch: int, steps: int | None) -> None:
        """Record that the batches of an epoch before ``steps`` were delivered; None: those that it began with."""
        self._last = epoch, steps

    def leave(self) -> None:
        """Record that only the caller knows what is delivered from now on, because DALI or workers read ahead."""
        self._last = None

    def mark(self, epoch: int, number: int, *, end: int, late: Sequence[int]) -> None:
        """Record batch ``number``, which is about to be delivered: then all samples below ``end`` but the ``late`` ones
        are.
        """
        if not self._in_order:
            self._marks[epoch, number + 1] = end, late  # not the images
            if len(self._marks) > _MARKS:
                self._marks.popitem(last=False)

    def state(self, plan: Plan, epoch: int | None, steps: int | None) -> PlanState:
        """The state after the batches of an epoch before number ``steps``; by default after what was delivered.

        Raises `OptionError` if that is not known.
        """
        if epoch is None:
            if self._last is None:
                raise OptionError(
                    "Wanted epoch and steps, which say what has left your pipeline. "
                    "Found: neither. DALI and workers read ahead, so the source cannot know."
                )
            epoch, steps = self._last
        if self._in_order or steps is None or steps == plan.first_step(epoch):
            return plan.after(epoch, steps=steps)
        if (mark := self._marks.get((epoch, steps))) is None:
            raise OptionError(
                f"Wanted one of the last {_MARKS:,} batches that were read, because batches come out of order. "
                f"Found: {steps} of epoch {epoch}"
            )
        return plan.after_samples(epoch, end=mark[0], late=mark[1])
