"""When a read is repeated, when a late one is hedged by a second one, and when it fails. Pure arithmetic."""

import random
from collections.abc import Callable

from formats.retries import pause
from loader.prefetch.window import Window

# An answer is late after this many times the 95th percentile, plus this many seconds.
_LATE, _LATE_SECONDS = 1.5, 0.05
# Before there were so many answers, it is late after this many seconds at least.
_FEW, _LATE_OF_FEW = 64, 1.0
_SECOND_SHARE = 0.02  # of hedged reads among all reads, so that a slow server gets hardly more work
_SECOND_AT_ONCE = 16  # hedged reads that are allowed in addition, for answers that are late at the same time
_READERS = 3  # the most reads of one sample under way


class RetryPolicy:
    """When the reads of a sample are repeated or hedged, and how long they are tried. All times are in seconds."""

    def __init__(self, *, timeout: float, uniform: Callable[[float, float], float] = random.uniform) -> None:
        """A sample fails if it was not read within ``timeout`` of its first read. ``uniform`` gives random numbers."""
        self.timeout, self._uniform = timeout, uniform
        self._hedged = 0  # hedged reads so far

    def pause(self, tries: int, /) -> float:
        """How long to wait before the next try after so many failed ones."""
        return pause(tries, longest=2.0, uniform=self._uniform)

    def late(self, window: Window, /) -> float:
        """How long an answer may take before the sample is read a second time."""
        late = window.quantiles(0.95)[0] * _LATE + _LATE_SECONDS
        return late if window.answers >= _FEW else max(late, _LATE_OF_FEW)

    def may_hedge(self, window: Window, /, *, readers: int) -> bool:
        """Whether a sample with this many reads under way gets a hedged read; counts it if so."""
        is_allowed = readers < _READERS and self._hedged + 1 <= window.answers * _SECOND_SHARE + _SECOND_AT_ONCE
        self._hedged += is_allowed
        return is_allowed
