"""When a read is tried again, when a late one is hedged by a second, and when it is given up. Pure arithmetic."""

from formats.retries import pause
from loader.prefetch.window import Window

_LATE = 1.5
"""An answer is late that takes this often what 95 of 100 take at most,"""
_LATE_SECONDS = 0.05
"""and this much longer."""
_FEW = 64
"""So few answers tell nothing yet of how long they take: then only this is late."""
_LATE_OF_FEW = 1.0
_SECOND_SHARE = 0.02
"""Hedged reads for late answers, of all reads, so that a slow server gets no more work than that,"""
_SECOND_AT_ONCE = 16
"""and those that may come at once on top."""
_READERS = 3
"""At most so many reads of one sample are under way."""


class RetryPolicy:
    """Decides over a sample's reads by their times in seconds."""

    def __init__(self, *, timeout: float) -> None:
        """A sample that was not read ``timeout`` after its first read is given up."""
        self.timeout = timeout
        self._hedged = 0  # reads so far

    def pause(self, tries: int, /) -> float:
        """How long to wait before a read is tried again that has failed so often: a little, then twice as long."""
        return pause(tries, longest=2.0)

    def is_over(self, *, begun: float, now: float) -> bool:
        """Whether a sample that was first read at this time is given up."""
        return now - begun >= self.timeout

    def late(self, window: Window, /) -> float:
        """How long an answer may take before the sample is read a second time."""
        late = window.quantiles(0.95)[0] * _LATE + _LATE_SECONDS
        return late if window.answers >= _FEW else max(late, _LATE_OF_FEW)

    def may_hedge(self, window: Window, /, *, readers: int) -> bool:
        """Whether a sample that this many reads are under way for gets a hedged read; counts it if so."""
        is_allowed = readers < _READERS and self._hedged + 1 <= window.answers * _SECOND_SHARE + _SECOND_AT_ONCE
        self._hedged += is_allowed
        return is_allowed
