"""What a source has done and how it goes, as numbers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Stats:
    """What a source has delivered since its first request, and how its reads go.

    ``images`` and ``bytes`` delivered in ``seconds``; ``stall_share``: the share of these that the consumer has waited
    for a batch; ``in_flight``: reads that wait for an answer, of one epoch about ``window`` at most; ``held_bytes`` are
    here and not yet delivered. ``round_trip`` is the shortest answer of late, ``p50`` and ``p99`` of the last thousand
    answers, in seconds. ``retries``: reads tried again after an error; ``second_reads``: reads sent again because the
    answer was late; ``rereads``: pieces of shards read again because ``memory_budget`` did not hold them; ``skipped``:
    samples that were done without; ``connections``: those that are open, over all nodes.
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
        """Over all ``seconds``."""
        return self.images / self.seconds if self.seconds else 0.0


class Meter:
    """Counts of a source, kept by its streams: those of reads on the loop, those of delivery by the consumer."""

    def __init__(self) -> None:
        self.began: float | None = None
        self.images = self.bytes = self.in_flight = self.held_bytes = 0
        self.retries = self.second_reads = self.rereads = self.skipped = 0
        self._waited = 0.0
        self._waits: set[float] = set()  # when the waits began that go on

    @property
    def waited(self) -> float:
        """The seconds that consumers have waited, up to now."""
        now = time.monotonic()
        return self._waited + sum(now - began for began in list(self._waits))

    def begin(self) -> None:
        """The first stream begins."""
        if self.began is None:
            self.began = time.monotonic()

    def stats(self, **more: Any) -> Stats:
        """These counts, and ``more`` that the engine knows of its reads."""
        seconds = 0.0 if self.began is None else time.monotonic() - self.began
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
        began = time.monotonic()
        self._waits.add(began)
        try:
            yield
        finally:
            self._waits.discard(began)
            self._waited += time.monotonic() - began
