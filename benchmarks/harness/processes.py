"""CPU and memory of processes and their descendants, as /proc tells them.

Memory is anonymous (RssAnon): what is mapped from files, and the page cache, are not counted.
"""

import os
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.background import Background

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Sample:
    """Anonymous memory in MB at a time (``time.monotonic``): a process, its JVM, the largest of its Python workers."""

    at: float
    driver: float
    jvm: float
    worker: float


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, and of those of its children that have ended; 0.0 when it is not there."""
    try:
        fields = _stat(pid)
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS


def descendants(pid: int, *, without: Collection[int] = ()) -> list[int]:
    """A process and all below it; those in ``without``, and what is below them, are left out."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*"):
        number = int(entry.name)
        try:
            children.setdefault(int(_stat(number)[1]), []).append(number)
        except OSError:  # it ended
            continue
    found, pending = [], [pid]
    while pending:
        one = pending.pop()
        if one not in without:
            found.append(one)
            pending += children.get(one, [])
    return found


def anonymous_mb(pid: int) -> float:
    """Anonymous memory of a process; 0.0 when it is not there."""
    try:
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    return 0.0


def quarter_peaks(samples: Iterable[tuple[float, float]], *, start: float, end: float) -> list[float]:
    """The highest value in each quarter of the time from ``start`` to ``end``, of samples (time, value).

    A quarter without a sample has 0.0.
    """
    peaks = [0.0] * 4
    for at, value in samples:
        if start <= at <= end and end > start:
            quarter = min(3, int(4 * (at - start) / (end - start)))
            peaks[quarter] = max(peaks[quarter], value)
    return peaks


class MemoryWatch(Background):
    """Samples a process that runs Spark, a few times a second; a context manager."""

    def __init__(self, pid: int, *, seconds: float = 0.1) -> None:
        super().__init__()
        self._pid = pid
        self._seconds = seconds
        self.samples: list[Sample] = []

    def peak(self, names: Sequence[str]) -> float:
        """The highest sum of these fields of `Sample`, in MB."""
        return max((sum(getattr(sample, name) for name in names) for sample in self.samples), default=0.0)

    def _work(self) -> None:
        while not self._stop.wait(self._seconds):
            jvm = worker = 0.0
            for pid in descendants(self._pid):
                words = _words(pid)
                if words and words[0].endswith(b"java"):
                    jvm = max(jvm, anonymous_mb(pid))
                elif b"pyspark.daemon" in words:
                    worker = max(worker, anonymous_mb(pid))
            self.samples.append(Sample(time.monotonic(), anonymous_mb(self._pid), jvm, worker))


def _words(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _stat(pid: int) -> list[str]:
    """The fields behind the name, from the state on."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
