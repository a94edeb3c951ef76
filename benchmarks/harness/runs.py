"""One run of a consumer: when batches came, and the CPU it cost the client, the server and the proxy."""

import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import accumulate
from operator import attrgetter
from typing import Any

from benchmarks.harness.processes import cpu_seconds
from imagestrata.devstack.servers.delay import Carried, DelayProxy

IMAGE_BYTES = 110_000
WINDOW = 2_048
"""Images over which `seconds_to` takes a rate."""


@dataclass(frozen=True)
class Course:
    """The timings of one consumer, with one value per batch.

    ``asked`` and ``got``: seconds since the first request; ``counts``: images; ``cpu``: CPU seconds of the consumer's
    process until it got the batch. Raises ValueError for fewer than three batches or for values of different lengths.
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
        """The first batch of the steady part, after the first third."""
        return -(-len(self.got) // 3)

    @property
    def images(self) -> int:
        """The number of images in all batches."""
        return sum(self.counts)

    @property
    def rate(self) -> float:
        """Images per second in the steady part."""
        return self._steady_images / (self.got[-1] - self.got[self.begins - 1])

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds of the consumer's process per image of the steady part."""
        return 1e3 * (self.cpu[-1] - self.cpu[self.begins - 1]) / self._steady_images

    def stall_share(self, *, begins: int | None = None) -> float:
        """The share of time spent waiting for batches, from a batch on; by default in the steady part.

        A consumer asks for a batch when it has finished the last one, so every wait is a stall.
        """
        begins = self.begins if begins is None else begins
        began = self.got[begins - 1] if begins else 0.0
        waited = sum(got - asked for asked, got in zip(self.asked[begins:], self.got[begins:], strict=True))
        return waited / (self.got[-1] - began)

    def seconds_to(self, rate: float, *, window: int = WINDOW) -> float | None:
        """The start of the first ``window`` images that came at this rate, in seconds since the first request.

        None if the rate was never reached.
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


@dataclass(frozen=True)
class Far:
    """A simulated distance: a proxy with this round trip, which delays a share of the answers."""

    rtt: float
    hold_share: float = 0.0
    hold: float = 0.0


@dataclass(frozen=True)
class Run:
    """One run of a consumer: its timings, its other answers, and the CPU of the server and the proxy."""

    course: Course
    answer: dict[str, Any]
    server_cpu: float
    carried: Carried | None

    @property
    def rate(self) -> float:
        """Images per second in the steady part."""
        return self.course.rate

    @property
    def whole_rate(self) -> float:
        """Images per second, from the first request to the last image."""
        return self.course.images / self.course.got[-1]

    @property
    def mb_per_s(self) -> float:
        """MB per second in the steady part. If a consumer reports no bytes, images count with their usual size."""
        size = self.answer.get("sums", {}).get("bytes", IMAGE_BYTES * self.course.images)
        return float(self.course.rate * size / self.course.images / 1e6)

    @property
    def server_ms(self) -> float:
        """CPU milliseconds of the server per image."""
        return 1e3 * self.server_cpu / self.course.images

    @property
    def proxy_ms(self) -> float:
        """CPU milliseconds of the proxy per image; 0.0 without a proxy."""
        return 1e3 * self.carried.cpu_seconds / self.course.images if self.carried else 0.0


def course_of(answer: Mapping[str, Any]) -> Course:
    """The timings in a consumer's answer."""
    return Course(answer["asked"], answer["got"], answer["counts"], answer["cpu"])


def measured(
    ask: Callable[[int], dict[str, Any]], *, port: int, servers: Iterable[int | None], far: Far | None = None
) -> tuple[dict[str, Any], float, Carried | None]:
    """Call ``ask`` with a port; return its answer, the servers' CPU seconds, and the bytes through the proxy."""
    pids = [pid for pid in servers if pid is not None]
    with DelayProxy(port, **asdict(far)) if far else nullcontext() as proxy:
        before = sum(map(cpu_seconds, pids))
        answer = ask(proxy.port if proxy else port)
        return answer, sum(map(cpu_seconds, pids)) - before, proxy.end() if proxy else None


def costs(runs: Sequence[Run], *, client_ms: Callable[[Run], float] = lambda run: run.course.cpu_ms) -> str:
    """Median CPU times of some runs, for a note."""
    client, server, proxy = (
        statistics.median(map(value, runs)) for value in (client_ms, attrgetter("server_ms"), attrgetter("proxy_ms"))
    )
    return f"CPU ms an image {client:.2f} client + {server:.2f} server" + (f" + {proxy:.2f} proxy" if proxy else "")


def describe(runs: Sequence[Run]) -> str:
    """Medians of some runs, for a note."""
    return f"{statistics.median(run.rate for run in runs):,.0f} images/s, {costs(runs)}"


def check(answer: Mapping[str, Any], wanted: Mapping[str, int], consumer: str) -> None:
    """Raise RuntimeError unless all sums of a consumer are as expected."""
    found = answer["sums"]
    if wrong := {name: (wanted[name], value) for name, value in found.items() if wanted[name] != value}:
        raise RuntimeError(f"Wanted the same images from {consumer}. Found: sums (wanted, found) {wrong}")
