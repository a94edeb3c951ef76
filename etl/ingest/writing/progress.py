"""The progress of an ingest, shown on the driver: images, MB/s, rejected files, time left."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Self

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from etl.ingest.writing.outcomes import Outcome

log = logging.getLogger("imagestrata.progress")

_LOOK_SECONDS = 0.5
_LINE_SECONDS = 10.0  # between two lines without a terminal


class Counters:
    """Spark accumulators of what tasks have done. They are updated when a task ends; retried tasks count again."""

    def __init__(self, context: SparkContext) -> None:
        self._images, self._bytes, self._rejected = (context.accumulator(0) for _ in range(3))

    def add(self, rows: Iterable[Outcome]) -> None:
        """Count the outcomes of a task, in the task."""
        for row in rows:
            if row.sha256 is None:
                self._rejected += 1
            else:
                self._images += 1
                self._bytes += row.size

    def count(self, *, images: int = 0, bytes: int = 0, rejected: int = 0) -> None:
        """Add counts in a task that has no outcomes."""
        self._images += images
        self._bytes += bytes
        self._rejected += rejected

    @property
    def images(self) -> int:
        """The number of images that were written."""
        return int(self._images.value)

    @property
    def bytes(self) -> int:
        """Their size in bytes, as stored."""
        return int(self._bytes.value)

    @property
    def rejected(self) -> int:
        """The number of rejected files."""
        return int(self._rejected.value)


Observe = Callable[[Counters, int], object]
_OBSERVE: ContextVar[Observe | None] = ContextVar("observe", default=None)


@contextmanager
def observed(observe: Observe) -> Iterator[None]:
    """Call ``observe`` with the counters and the number of files when a block begins to write images."""
    token = _OBSERVE.set(observe)
    try:
        yield
    finally:
        _OBSERVE.reset(token)


class Watch:
    """Shows the progress of a block, as a bar or as lines, and calls ``stop`` once if too many files are rejected."""

    def __init__(self, counters: Counters, *, files: int, allowed: int, stop: Callable[[], object]) -> None:
        self._counters = counters
        self._files = files
        self._allowed = allowed
        self._stop = stop
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="progress", daemon=True)
        self.is_over = False

    def __enter__(self) -> Self:
        if (observe := _OBSERVE.get()) is not None:
            observe(self._counters, self._files)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        from rich.console import Console  # not at the top: executors import `Counters` and may lack rich
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        started = told = time.monotonic()
        before = 0
        console = Console(stderr=True)
        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()]
        with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as bar:
            task = bar.add_task("write", total=self._files)
            while not self._ended.wait(_LOOK_SECONDS):
                now, done = time.monotonic(), self._counters.images + self._counters.rejected
                line = self._line(now - started)
                bar.update(task, completed=done, description=line)
                if not sys.stderr.isatty() and done > before and now - told >= _LINE_SECONDS:
                    left = (now - started) * (self._files - done) / done
                    log.info("%s, about %s left", line, _duration(left))
                    told, before = now, done
                if self._counters.rejected > self._allowed and not self.is_over:
                    self.is_over = True
                    self._stop()

    def _line(self, seconds: float) -> str:
        counters = self._counters
        return (
            f"{counters.images:,} of {self._files:,} images, {counters.bytes / 1e6 / seconds:,.1f} MB/s, "
            f"{counters.rejected:,} rejected"
        )


def collect_watched(
    frame: DataFrame, *, group: str, description: str, counters: Counters, files: int, allowed: int
) -> list[Row] | None:
    """Collect a DataFrame whose tasks write images, and show the progress. Returns None if its jobs, which are in this
    group, were cancelled because more than ``allowed`` files were rejected.
    """
    context = frame.sparkSession.sparkContext
    context.setJobGroup(group, description)
    watch = Watch(counters, files=files, allowed=allowed, stop=partial(context.cancelJobGroup, group))
    try:
        with watch:
            return frame.collect()
    except (PySparkException, Py4JJavaError):
        if not watch.is_over:
            raise
        return None


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
