"""How many reads to keep in flight: as many as rate times round trip, measured while reading. Pure arithmetic.

With too few the link is idle. More than it needs only wait in queues, and a burst of them can lose packets. So the
window starts small and doubles every round trip until answers take twice the shortest round trip, because reads then
wait in a queue. After that it is twice the product of the best recent rate and the shortest recent round trip, or as
many as keep a nearby server busy. Now and then it is raised for a round, to see whether more has become possible. Every
30 seconds it is lowered for a round, because the queue that it keeps would otherwise be measured as a longer round
trip, and the window would grow with it. (The measures are those of BBR, Cardwell et al. 2016; a window paces reads well
enough if TCP paces the bytes.)::

                   answers wait in a queue                     each 8th round
    beginning ----------------------------------> steady ------------------------> probing
    one more for      or the server refuses       2 x rate      <----------------  3 x rate
    each answer       a read: half as many        x round trip     after a round   x round trip
                                                    |    ^
                                       each 30 s    v    |    after a round
                                                   draining
                                              half rate x round trip
"""

import math
from collections import deque

_FIRST = 16  # reads in flight, before anything is known
# Reads in flight that keep a server without any delay busy, measured; but not more than it answers in this time.
_BUSY, _BUSY_SECONDS = 256, 0.25
_GAIN = 2.0
_PROBE_GAIN, _ROUNDS_A_PROBE = 3.0, 8
_DRAIN_GAIN = 0.5  # fewer than are on their way at a time, so that no read waits in a queue
_QUEUED = 2.0  # an answer that takes this many times the shortest round trip has waited in a queue
_BEST_ROUNDS = 10  # the best rate of so many counts, so that a slow round does not make the window smaller
_SECONDS_OF_LEAST = 30.0  # a shortest round trip is forgotten after two such spans, in case the route has become longer
_REMEMBERED = 1024  # times of answers that are kept; a power of two


class Window:
    """The concurrency window: how many reads may be in flight. Times are seconds of a monotonic clock."""

    def __init__(self, *, most: int, now: float) -> None:
        """``most``: the limit of reads in flight."""
        self._most = max(most, 1)
        self.size = min(_FIRST, self._most)  # how many reads may be in flight
        self.answers = 0  # how many reads were answered
        self._bytes = 0  # of the answers
        self._times = [0.0] * _REMEMBERED
        self._is_beginning = True
        self._rates: deque[float] = deque(maxlen=_BEST_ROUNDS)
        self._rounds = 0
        self._round_began = now
        self._round_answers = 0
        self._was_full = self._was_refused = False
        # The shortest round trip of this span and the one before it.
        self._span_began = now
        self._shortest_before = self._shortest = float("inf")

    @property
    def round_trip(self) -> float | None:
        """The shortest recent answer, in seconds; None before the first one."""
        found = min(self._shortest_before, self._shortest)
        return None if found == float("inf") else found

    @property
    def rate(self) -> float:
        """The best recent rate, in reads a second; 0 before the first round."""
        return max(self._rates, default=0.0)

    @property
    def mean_size(self) -> float:
        """The mean size of an answer, in bytes; 0 before the first one."""
        return self._bytes / self.answers if self.answers else 0.0

    def quantiles(self, *shares: float) -> list[float]:
        """The times of recent answers at these quantiles, in seconds; 0 before the first answer."""
        known = sorted(self._times[: min(self.answers, _REMEMBERED)]) or [0.0]
        return [known[math.ceil(share * len(known)) - 1] for share in shares]

    def answered(self, size: int, *, sent: float, now: float, in_flight: int) -> None:
        """Record an answer of so many bytes to a read that was sent at this time, and how many reads were in flight up
        to then, this one counted.
        """
        taken = now - sent
        self._was_full |= in_flight >= self.size  # else reads wait for the consumer, not for the window
        self._bytes += size
        self._times[self.answers & (_REMEMBERED - 1)] = taken
        self.answers += 1
        self._shortest = min(self._shortest, taken)
        if self._is_beginning and self._was_full:
            self.size = min(self.size + 1, self._most)
            shortest = min(self._shortest_before, self._shortest)
            self._is_beginning = self.size < self._least or taken < _QUEUED * shortest
        if sent >= self._round_began and now > self._round_began:
            self._end_round(now)

    def refused(self) -> None:
        """Record that the server was overloaded or away: halve the window, once a round."""
        if not self._was_refused:
            self._was_refused, self._is_beginning = True, False
            self.size = max(1, self.size // 2)
            self._rates.clear()

    @property
    def _least(self) -> int:
        return min(_BUSY, self._most, max(_FIRST, round(self.rate * _BUSY_SECONDS)))

    def _end_round(self, now: float) -> None:
        rate = (self.answers - self._round_answers) / (now - self._round_began)
        was_full, self._was_full, self._was_refused = self._was_full, False, False
        self._round_began, self._round_answers = now, self.answers
        is_draining = now - self._span_began > _SECONDS_OF_LEAST
        if is_draining:
            self._span_began = now
            self._shortest_before, self._shortest = self._shortest, float("inf")
        if not was_full and rate <= self.rate:
            return  # the consumer is slower, so this says nothing about the link
        self._rates.append(rate)
        self._rounds += 1
        if self._is_beginning:
            return
        needed = self.rate * (self.round_trip or 0.0)
        if is_draining:
            self.size = max(1, round(_DRAIN_GAIN * needed))
        else:
            gain = _PROBE_GAIN if self._rounds % _ROUNDS_A_PROBE == 0 else _GAIN
            self.size = max(round(gain * needed), self._least)
        self.size = min(self.size, self._most)
