"""Runs processes, and samples their CPU and memory, including descendants.

Memory is anonymous (RssAnon): mapped files and the page cache do not count.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import psutil

from benchmarks.harness.results import ROOT

T = TypeVar("T")


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended; 0.0 if it does not exist."""
    with suppress(psutil.NoSuchProcess):
        return float(sum(psutil.Process(pid).cpu_times()[:4]))
    return 0.0


def descendants(pid: int) -> list[int]:
    """A process and all its descendants."""
    with suppress(psutil.NoSuchProcess):
        return [pid, *(process.pid for process in psutil.Process(pid).children(recursive=True))]
    return []


def anonymous_mb(pid: int) -> float:
    """Anonymous memory of a process; 0.0 if it does not exist."""
    with suppress(psutil.NoSuchProcess):
        memory = psutil.Process(pid).memory_info()
        return float(memory.rss - memory.shared) / 1e6  # shared: files and shared memory
    return 0.0


def quarter_peaks(samples: Iterable[tuple[float, float]], *, start: float, end: float) -> list[float]:
    """The highest value in each quarter of the time from ``start`` to ``end``, from samples (time, value).

    A quarter without samples has 0.0.
    """
    peaks = [0.0] * 4
    for at, value in samples:
        if start <= at <= end and end > start:
            quarter = min(3, int(4 * (at - start) / (end - start)))
            peaks[quarter] = max(peaks[quarter], value)
    return peaks


class Background:
    """A context manager that runs ``work`` in a thread; the event tells it to stop at the end of the block."""

    def __init__(self, work: Callable[[threading.Event], None]) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=work, args=(self._stop,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def watched(look: Callable[[], T], *, seconds: float) -> Iterator[list[tuple[float, T]]]:
    """Call ``look`` repeatedly while the block runs; collect its values with their times (``time.monotonic``)."""
    samples: list[tuple[float, T]] = []

    def sample(stop: threading.Event) -> None:
        while not stop.wait(seconds):
            samples.append((time.monotonic(), look()))

    with Background(sample):
        yield samples


def peak(samples: Iterable[tuple[float, float]], *, end: float = float("inf")) -> float:
    """The highest value up to a time, from samples (time, value); 0.0 if there are none."""
    return max((value for at, value in samples if at <= end), default=0.0)


def tree_mb(pid: int) -> float:
    """Anonymous memory of a process and all its descendants."""
    return sum(map(anonymous_mb, descendants(pid)))


@dataclass(frozen=True, slots=True)
class SparkMemory:
    """Anonymous memory in MB of a process that runs Spark, of its JVM, and of its largest Python worker."""

    driver: float
    jvm: float
    worker: float

    @classmethod
    def of(cls, pid: int) -> "SparkMemory":
        """The current values."""
        jvm = worker = 0.0
        for one in descendants(pid):
            with suppress(psutil.NoSuchProcess):
                words = psutil.Process(one).cmdline()
                if words and words[0].endswith("java"):
                    jvm = max(jvm, anonymous_mb(one))
                elif "pyspark.daemon" in words:
                    worker = max(worker, anonymous_mb(one))
        return cls(anonymous_mb(pid), jvm, worker)


@dataclass(frozen=True)
class Finished(Generic[T]):
    """The result of a process: its answer, its duration, and the samples."""

    answer: dict[str, Any]
    seconds: float
    samples: Sequence[tuple[float, T]]


def run_process(
    command: Sequence[str],
    *,
    limit: float,
    environment: Mapping[str, str] | None = None,
    look: Callable[[int], T] | None = None,
    every: float = 0.1,
) -> Finished[T]:
    """Run a process in a separate session, which ends with this process. The answer is its last line of JSON.

    ``look`` samples it by pid, which costs CPU time. Raises RuntimeError if it fails or exceeds ``limit`` seconds.
    """
    samples: list[tuple[float, T]] = []
    name = command[3] if command[1] == "-m" else " ".join(command[:4])
    started = time.monotonic()
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            with watched(lambda: look(process.pid), seconds=every) if look else nullcontext(samples) as samples:
                out, complaint = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"Wanted {name} within {limit:.0f} s. Found: it runs on") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    seconds = time.monotonic() - started
    if process.returncode:
        told = complaint.decode(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"Wanted {name} to succeed. Found: {process.returncode}, {told}")
    return Finished(answer_of(out), seconds, samples)


def worker(function: str, *arguments: object, python: Path | str = sys.executable) -> list[str]:
    """The command that calls ``MODULE:FUNCTION`` of the benchmarks with JSON arguments."""
    return [str(python), "-m", "benchmarks.harness.worker", function, json.dumps(arguments)]


def answer_of(output: bytes) -> dict[str, Any]:
    """The last line that is JSON, since libraries may print after it. Raises RuntimeError if there is none."""
    for line in reversed(output.splitlines()):
        if line.startswith(b"{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise RuntimeError(f"Wanted a line of JSON. Found: {output[-200:]!r}")
