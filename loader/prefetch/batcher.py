"""Batches, put together from samples as they arrive: in the order of the epoch, or in that of arrival. No I/O.

::

    steps --take--> samples that are being read --put--> what has arrived --ready--> complete batches
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loader.order.schedule import Step
from loader.prefetch.fetcher import Label, Row

# The ids at some positions: int64 ``(b,)`` in, uint8 ``(b, 16)`` out.
Ids: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.uint8]]


class Sample:
    """One image to be read, and what was read of it."""

    __slots__ = ("begun", "epoch", "error", "id", "image", "is_here", "is_repeat", "is_skipped", "label", "metadata",
                 "number", "place", "position", "readers", "sent", "size", "tries")  # fmt: skip

    def __init__(self, one: bytes, number: int, position: int, place: int, is_repeat: bool) -> None:
        self.id = one  # 16 bytes
        self.number = number  # on this rank, from 0 on, in what the epoch has left
        self.position = position
        self.place = place  # in the order of the epoch
        self.is_repeat = is_repeat  # it is delivered in another batch, too, and only fills this one for FILL
        self.epoch: Batcher
        self.image = b""
        self.label: Label = None
        self.metadata: tuple[Any, ...] = ()
        self.error: Exception | None = None  # instead of them
        self.is_here = False
        self.is_skipped = False  # it is left out
        self.begun = self.sent = 0.0
        self.readers = self.tries = 0
        self.size = 0  # bytes, of all that was read

    def take(self, row: Row) -> None:
        """Record what was read."""
        self.image, self.label, self.metadata = row
        self.error = None
        more = (one for one in (self.label, *self.metadata) if isinstance(one, (bytes, str)))
        self.size = len(self.image) + sum(map(len, more))


@dataclass(frozen=True, slots=True)
class Filled:
    """A complete batch."""

    number: int  # in the epoch
    samples: list[Any]  # `Sample`, or `ShardSample`
    repeats: int  # so many of the last samples fill it
    skipped: Sequence[Sample] = ()  # should have been in it
    skipped_repeats: Sequence[Sample] = ()  # should have filled it
    # With it, all samples with numbers below `end` but the `late` ones have been delivered.
    end: int = 0
    late: tuple[int, ...] = ()


class Batcher(ABC):
    """How the samples of one epoch become batches."""

    def __init__(self, steps: Iterator[Step], ids: Ids, *, batch_size: int, is_padded: bool) -> None:
        self._samples = _Samples(steps, ids, batch_size)
        self._batch_size, self._is_padded = batch_size, is_padded

    @property
    def is_taken(self) -> bool:
        """Whether all samples were taken."""
        return self._samples.is_taken

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether all batches were delivered."""

    @property
    @abstractmethod
    def is_needed(self) -> bool:
        """Whether the next sample belongs to the batch that the consumer waits for."""

    @abstractmethod
    def take(self) -> Sample | None:
        """The next sample to read; None if there is none, or none yet."""

    @abstractmethod
    def put(self, sample: Sample, /) -> bool:
        """Record a sample that has arrived; whether a batch may be `ready` now."""

    @abstractmethod
    def ready(self) -> Iterator[Filled]:
        """The batches that are complete. Raises a sample's error instead of its batch."""

    def _fill(self, number: int, found: list[Sample], *, end: int, late: tuple[int, ...] = ()) -> Filled:
        """A batch of these samples. If padded, it is filled with its own samples in turn; it is empty if it has none
        that is not skipped.
        """
        _check(found)
        samples = [sample for sample in found if not sample.is_skipped]
        skipped = [sample for sample in found if sample.is_skipped and not sample.is_repeat]
        skipped_repeats = [sample for sample in found if sample.is_skipped and sample.is_repeat]
        repeats = sum(sample.is_repeat for sample in samples)
        if self._is_padded and samples:
            again = self._batch_size - len(samples)
            samples, repeats = [*samples, *islice(cycle(samples), again)], repeats + again
        return Filled(number, samples, repeats, skipped, skipped_repeats, end, late)


class InOrder(Batcher):
    """The batches of the schedule. With ``is_padded`` they are full, or empty, even if samples are skipped."""

    def __init__(self, steps: Iterator[Step], ids: Ids, *, batch_size: int, is_padded: bool) -> None:
        super().__init__(steps, ids, batch_size=batch_size, is_padded=is_padded)
        self._filling: deque[_Filling] = deque()
        self._handed_out = 0  # batches
        self._has_failed = False

    @property
    def is_over(self) -> bool:
        return self.is_taken and not self._filling

    @property
    def is_needed(self) -> bool:
        return len(self._filling) <= 1

    def take(self) -> Sample | None:
        sample = self._samples.take()
        if self._samples.has_begun_step:
            self._filling.append(_Filling(*self._samples.step))
        return sample

    def put(self, sample: Sample, /) -> bool:
        filling = self._filling[sample.number // self._batch_size - self._handed_out]
        filling.left -= 1
        self._has_failed |= sample.error is not None and not sample.is_skipped
        return not filling.left or self._has_failed

    def ready(self) -> Iterator[Filled]:
        while self._filling:
            first = self._filling[0]
            if self._has_failed:  # even if other samples of the batch have not arrived
                _check(first.samples)
            if first.left:
                return
            self._filling.popleft()
            self._handed_out += 1
            yield self._fill(first.number, first.samples, end=first.samples[-1].number + 1)


class _Filling:
    """A batch and how many of its samples have not arrived."""

    __slots__ = ("left", "number", "samples")

    def __init__(self, number: int, samples: list[Sample]) -> None:
        self.number, self.samples, self.left = number, samples, len(samples)


class OutOfOrder(Batcher):
    """Batches of what has arrived. A sample is taken only if it is less than ``reorder`` after any that has not
    arrived, and samples are delivered in the order of their arrival, so none overtakes one of a later batch by
    ``reorder``.
    """

    def __init__(self, steps: Iterator[Step], ids: Ids, *, batch_size: int, is_padded: bool, reorder: int) -> None:
        super().__init__(steps, ids, batch_size=batch_size, is_padded=is_padded)
        self._reorder = reorder
        self._first = self._samples.next_step
        self._here: deque[Sample] = deque()
        self._repeats: list[Sample] = []  # they come last
        self._taken = self._arrived = self._batches = 0
        self._oldest = 0  # all samples below have arrived
        self._early: set[int] = set()  # samples above `_oldest` that have arrived
        self._end = 0  # no sample from here on was delivered
        self._late: set[int] = set()  # samples below `_end` that were not delivered
        self._has_failed = False

    @property
    def is_over(self) -> bool:
        return self.is_taken and self._arrived == self._taken and not self._here

    @property
    def is_needed(self) -> bool:
        return len(self._here) + self._taken - self._arrived < self._batch_size

    def take(self) -> Sample | None:
        if self._taken - self._oldest >= self._reorder:
            return None
        sample = self._samples.take()
        self._taken += sample is not None
        return sample

    def put(self, sample: Sample, /) -> bool:
        self._arrived += 1
        self._early.add(sample.number)
        while self._oldest in self._early:
            self._early.remove(self._oldest)
            self._oldest += 1
        (self._repeats if sample.is_repeat else self._here).append(sample)
        self._has_failed |= sample.error is not None and not sample.is_skipped
        if self._has_failed:
            return True
        return len(self._here) >= self._batch_size or (self.is_taken and self._arrived == self._taken)

    def ready(self) -> Iterator[Filled]:
        is_complete = self.is_taken and self._arrived == self._taken
        if self._repeats and is_complete:
            self._here += self._repeats
            self._repeats = []
        if self._has_failed:  # even if the batch is not complete: in an outage, the rest of it would fail one by one
            _check([*islice(self._here, self._batch_size), *self._repeats])
        while len(self._here) >= self._batch_size or (self._here and is_complete):
            samples = [self._here.popleft() for _ in range(min(self._batch_size, len(self._here)))]
            self._deliver(samples)
            number = self._first + self._batches
            self._batches += 1
            yield self._fill(number, samples, end=self._end, late=tuple(sorted(self._late)))

    def _deliver(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            self._late.update(range(self._end, sample.number + 1))
            self._end = max(self._end, sample.number + 1)
            self._late.discard(sample.number)


class _Samples:
    """The samples of steps in turn. It looks one step ahead, to know which sample is the last."""

    def __init__(self, steps: Iterator[Step], ids: Ids, batch_size: int) -> None:
        self._steps, self._ids, self._batch_size = steps, ids, batch_size
        self._count = 0
        self._coming = next(steps, None)
        self._left: deque[Sample] = deque()
        self.next_step = self._coming.number if self._coming else 0
        self.step: tuple[int, list[Sample]] = (0, [])  # the number and all samples of the step of the last sample
        self.has_begun_step = False  # whether the last sample was the first of its step

    @property
    def is_taken(self) -> bool:
        return not self._left and self._coming is None

    def take(self) -> Sample | None:
        self.has_begun_step = not self._left and self._coming is not None
        if not self._left and self._coming is not None:
            step, self._coming = self._coming, next(self._steps, None)
            self._left = deque(self._of(step))
            self.step = step.number, list(self._left)
        return self._left.popleft() if self._left else None

    def _of(self, step: Step) -> Iterator[Sample]:
        """The samples of a step; those that repeat samples of other batches are read again."""
        fresh = len(step.positions) - step.repeats
        packed = self._ids(step.positions).tobytes()
        for at, (position, place) in enumerate(zip(step.positions.tolist(), step.places.tolist(), strict=True)):
            yield Sample(packed[16 * at : 16 * at + 16], self._count + at, position, place, at >= fresh)
        self._count += self._batch_size


def _check(samples: Sequence[Sample]) -> None:
    for sample in samples:
        if sample.is_here and sample.error is not None and not sample.is_skipped:  # else the read is repeated
            raise sample.error
