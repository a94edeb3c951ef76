"""What a source has given away, so that it can tell its state. No I/O."""

from collections import OrderedDict

from loader.errors import OptionError
from loader.order.schedule import Schedule
from loader.order.state import State
from loader.prefetch.batcher import Filled
from loader.shards.shard_schedule import ShardSchedule, ShardState

_MARKS = 1024
"""Batches for which it is known what was delivered with them, out of order."""


class Progress:
    """The last batch that was given away; and out of order, which samples were delivered with each of late."""

    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order
        self._given: tuple[int, int | None] | None = (0, None)
        self._marks: OrderedDict[tuple[int, int], tuple[int, tuple[int, ...]]] = OrderedDict()

    def begin(self, epoch: int) -> None:
        """Start with an epoch, as a loaded state has it. Who alone knows what is given away does so still."""
        self._marks.clear()
        if self._given is not None:
            self._given = epoch, None

    def note(self, epoch: int, steps: int | None) -> None:
        """The batches of an epoch before number ``steps`` were given away; None: what it began with."""
        self._given = epoch, steps

    def leave(self) -> None:
        """From now on nobody here knows what is given away."""
        self._given = None

    def mark(self, epoch: int, filled: Filled) -> None:
        """A batch has come, to be given away later."""
        if not self._in_order:
            self._marks[epoch, filled.number + 1] = filled.end, filled.late  # not the images
            if len(self._marks) > _MARKS:
                self._marks.popitem(last=False)

    def state(self, schedule: Schedule | ShardSchedule, epoch: int | None, steps: int | None) -> State | ShardState:
        """The state behind the batches of an epoch before number ``steps``, by default behind what was given away.

        Raises `OptionError` where that is not known.
        """
        if epoch is None:
            if self._given is None:
                raise OptionError(
                    "Wanted epoch and steps, which say what has left your pipeline. "
                    "Found: neither; DALI and workers read ahead."
                )
            epoch, steps = self._given
        if (
            isinstance(schedule, ShardSchedule)
            or self._in_order
            or steps is None
            or steps == schedule.first_step(epoch)
        ):
            return schedule.after(epoch, steps=steps)
        if (mark := self._marks.get((epoch, steps))) is None:
            raise OptionError(
                f"Wanted a batch that was read lately, as batches come out of order. Found: {steps} of epoch {epoch}"
            )
        return schedule.after_samples(epoch, end=mark[0], late=mark[1])
