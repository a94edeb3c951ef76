"""Numbers of a source: what it has delivered, and how its reads perform."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Stats:
    """What a source has delivered since its first request, and how its reads perform.

    Attributes:
        images: Images delivered.
        bytes: Bytes delivered.
        seconds: Seconds since the first request.
        stall_share: The share of these seconds in which the consumer waited for a batch, from 0 to 1; several consumers
            at a time add up.
        in_flight: Reads that wait for an answer.
        window: The most reads in flight of one epoch at present.
        held_bytes: Bytes that were read and not yet delivered.
        round_trip: The shortest recent answer, in seconds; None before the first one.
        p50: The median of the last thousand answers, in seconds.
        p99: Their 99th percentile, in seconds.
        retries: Reads repeated after an error.
        second_reads: Reads sent again because the answer was late.
        rereads: Pieces of shards read again because ``memory_budget`` did not hold them.
        skipped: Samples that were left out.
        connections: Open connections, over all nodes.
    """

    images: int = 0
    bytes: int = 0
    seconds: float = 0.0
    stall_share: float = 0.0
    in_flight: int = 0
    window: int = 0
    held_bytes: int = 0
    round_trip: float | None = None
    p50: float = 0.0
    p99: float = 0.0
    retries: int = 0
    second_reads: int = 0
    rereads: int = 0
    skipped: int = 0
    connections: int = 0

    @property
    def images_per_second(self) -> float:
        """The mean over ``seconds``."""
        return self.images / self.seconds if self.seconds else 0.0


class Meter:
    """Counters of a source, which its streams update: reads on the event loop, delivery in the consumer's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.began: float | None = None
        self.images = self.bytes = self.in_flight = self.held_bytes = 0
        self.retries = self.second_reads = self.rereads = self.skipped = 0
        self._waited = 0.0
        self._waits: set[float] = set()  # when the present waits began

    @property
    def waited(self) -> float:
        """Seconds that consumers have waited, up to now."""
        now = self._clock()
        return self._waited + sum(now - began for began in list(self._waits))

    def begin(self) -> None:
        """The first stream begins."""
        if self.began is None:
            self.began = self._clock()

    def stats(self, **more: Any) -> Stats:
        """These counters, and ``more`` numbers that the engine knows."""
        seconds = 0.0 if self.began is None else self._clock() - self.began
        return Stats(
            images=self.images,
            bytes=self.bytes,
            seconds=seconds,
            stall_share=self.waited / seconds if seconds else 0.0,
            in_flight=self.in_flight,
            held_bytes=self.held_bytes,
            retries=self.retries,
            second_reads=self.second_reads,
            rereads=self.rereads,
            skipped=self.skipped,
            **more,
        )

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While a consumer waits."""
        began = self._clock()
        self._waits.add(began)
        try:
            yield
        finally:
            self._waits.discard(began)
            self._waited += self._clock() - began
