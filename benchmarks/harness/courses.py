"""What the times at which batches came tell: the steady rate, stalls, how soon a consumer was fast. Arithmetic."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

WINDOW = 2_048
"""Images over which a rate is taken where it is asked how soon it was reached."""


@dataclass(frozen=True)
class Course:
    """How one consumer fared, a value for each batch in turn.

    ``asked`` and ``got``: seconds since the first request; ``counts``: images; ``cpu``: CPU seconds of the consumer's
    process until it got the batch. Raises ValueError for fewer than three batches or values of different lengths.
    """

    asked: Sequence[float]
    got: Sequence[float]
    counts: Sequence[int]
    cpu: Sequence[float]

    def __post_init__(self) -> None:
        lengths = {len(self.asked), len(self.got), len(self.counts), len(self.cpu)}
        if len(lengths) > 1 or min(lengths) < 3:
            raise ValueError(f"Wanted three batches or more, with all that belongs to them. Found: {sorted(lengths)}")

    @property
    def begins(self) -> int:
        """The first batch of the steady part, behind the first third."""
        return -(-len(self.got) // 3)

    @property
    def images(self) -> int:
        """The images of all batches."""
        return sum(self.counts)

    @property
    def rate(self) -> float:
        """Images a second in the steady part."""
        return self._steady_images / (self.got[-1] - self.got[self.begins - 1])

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds of the consumer's process for each image of the steady part."""
        return 1e3 * (self.cpu[-1] - self.cpu[self.begins - 1]) / self._steady_images

    def stall_share(self, *, begins: int | None = None) -> float:
        """The share of the time that was spent waiting for batches, from a batch on; by default the steady part's.

        A consumer asks for a batch when it is done with the last one, so that each wait is beyond its own schedule.
        """
        begins = self.begins if begins is None else begins
        began = self.got[begins - 1] if begins else 0.0
        waited = sum(got - asked for asked, got in zip(self.asked[begins:], self.got[begins:], strict=True))
        return waited / (self.got[-1] - began)

    def seconds_to(self, rate: float, *, window: int = WINDOW) -> float | None:
        """When the consumer first got ``window`` images in a row at this rate: the time at which they begin.

        In seconds since the first request. None if it never did.
        """
        times, totals = [0.0, *self.got], [0, *accumulate(self.counts)]
        for start, total in zip(times, totals, strict=True):
            end = bisect_left(totals, total + window)
            if end == len(totals):
                return None
            if totals[end] - total >= rate * (times[end] - start):
                return start
        return None

    @property
    def _steady_images(self) -> int:
        return sum(self.counts[self.begins :])
