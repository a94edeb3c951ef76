"""Writes listed images from a Spark task: read and check a file, then write its rows or its copy.

A task keeps a sliding window of images in flight, bounded in number and in bytes. A few threads read and check files in
small groups, because each thread switch costs as much as a small write. One coroutine per image waits for the target.
Everything that is written depends only on the file and the order, so a retried task writes the same.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from etl.batches import batch_of, bounded, rows_of
from etl.ingest.writing.image_rows import label_of
from etl.ingest.writing.outcomes import ARROW_OUTCOMES, WRITTEN, Outcome
from etl.ingest.writing.preparation import Preparation, PreparedImage, prepare_or_reject
from etl.ingest.writing.progress import Counters
from etl.pictures.images import RejectedError
from etl.sources.entries import Entry, text
from etl.sources.reading import Reader

IMAGES_IN_FLIGHT = 128
BYTES_IN_FLIGHT = 64 << 20

_READERS = 4
_TOGETHER, _TOGETHER_BYTES = 8, 4 << 20  # the images of a group
_BATCH_ROWS = 500


class Sink(Protocol):
    """The destination of images, used from one event loop."""

    async def accept(self, entry: Entry, prepared: PreparedImage, label: int | None, /) -> str | None:
        """Write an image. Returns a remark. Raises `RejectedError` for one that cannot be written."""

    async def reject(self, entry: Entry, *, stage: str, reason: str) -> None:
        """Record why an image is not written."""


class Target(Protocol):
    """Makes a sink on an executor. It is part of the closure, so it has no secrets."""

    def open(self) -> AbstractAsyncContextManager[Sink]:
        """Connect."""


class Nowhere:
    """A target and sink that write nothing, for checking images only."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Nowhere"]:
        """Do nothing."""
        yield self

    async def accept(self, entry: Entry, prepared: PreparedImage, label: int | None, /) -> None:
        """Accept the image."""

    async def reject(self, entry: Entry, *, stage: str, reason: str) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOrder:
    """The parameters of a writing task."""

    target: Target
    preparation: Preparation
    labels: Mapping[str, int]  # the number of each class; empty unless labels are classes
    counters: Counters | None = None


def write_images(
    batches: Iterable[pa.RecordBatch], *, order: WriteOrder, in_turn: bool = False
) -> Iterator[pa.RecordBatch]:
    """Run the task: takes `ENTRIES`, yields `OUTCOMES`. Raises `UnreachableError`, `TableError`, `SourceError`."""
    entries = (Entry(*row) for row in rows_of(batches))
    threads = 1 if in_turn else _READERS  # in turn: one by one, in the order of the rows
    with Reader() as reader, ThreadPoolExecutor(threads) as pool, asyncio.Runner() as runner:
        outcomes = _Task(order, reader, pool).write(entries)
        try:
            while rows := runner.run(_take(outcomes, _BATCH_ROWS)):
                if order.counters is not None:
                    order.counters.add(rows)
                yield batch_of(rows, ARROW_OUTCOMES)
        finally:
            runner.run(_close(outcomes))


async def _take(outcomes: AsyncIterator[Outcome], count: int) -> list[Outcome]:
    taken: list[Outcome] = []
    async for outcome in outcomes:
        taken.append(outcome)
        if len(taken) == count:
            break
    return taken


async def _close(outcomes: Any) -> None:
    await outcomes.aclose()


class _Task:
    def __init__(self, order: WriteOrder, reader: Reader, threads: ThreadPoolExecutor) -> None:
        self._order = order
        self._reader = reader
        self._threads = threads
        # Python does not know its executor, so the id of the parent process is used instead.
        self._executor = f"{socket.gethostname()}/{os.getppid()}"

    async def write(self, entries: Iterator[Entry]) -> AsyncIterator[Outcome]:
        """Write images, as many at a time as the window allows; yield each outcome when it is known."""
        running: dict[asyncio.Task[Outcome], int] = {}  # with the size of each image
        ended: asyncio.Queue[asyncio.Task[Outcome]] = asyncio.Queue()
        size = 0

        async def outcome() -> Outcome:
            nonlocal size
            task = await ended.get()
            size -= running.pop(task)
            return task.result()

        async with self._order.target.open() as sink:
            try:
                for group in bounded(entries, most=_TOGETHER, most_bytes=_TOGETHER_BYTES, size=lambda one: one.size):
                    wanted = sum(entry.size for entry in group)
                    while running and (len(running) + len(group) > IMAGES_IN_FLIGHT or size + wanted > BYTES_IN_FLIGHT):
                        yield await outcome()
                    size += wanted
                    loading = asyncio.get_running_loop().run_in_executor(self._threads, self._load, group)
                    for place, entry in enumerate(group):
                        task = asyncio.create_task(self._store(entry, place, loading, sink))
                        task.add_done_callback(ended.put_nowait)
                        running[task] = entry.size
                while running:
                    yield await outcome()
            finally:  # the target can be closed only when nothing waits for it
                await asyncio.gather(*running, return_exceptions=True)

    def _load(self, group: list[Entry]) -> dict[int, PreparedImage | str]:
        """The images of a group by their places in it; for those that are rejected, the reason."""
        preparation = self._order.preparation
        loaded = (one.reason or prepare_or_reject(one, self._reader, preparation=preparation) for one in group)
        return dict(enumerate(loaded))

    async def _store(
        self, entry: Entry, place: int, loading: asyncio.Future[dict[int, PreparedImage | str]], sink: Sink
    ) -> Outcome:
        found = (await loading).pop(place)  # no longer held with its group
        or_split, path = text(entry.or_split), text(entry.path)
        stage = "list" if entry.reason else "read"
        if not isinstance(found, str):
            label = label_of(entry, numbers=self._order.labels)
            look = (len(found.data), found.sha256, WRITTEN, None)
            try:
                note = "; ".join(filter(None, (found.note, await sink.accept(entry, found, label)))) or None
                return Outcome(entry.id, label, or_split, path, *look, note, self._executor)
            except RejectedError as error:
                stage, found = "write", str(error)
        await sink.reject(entry, stage=stage, reason=found)
        return Outcome(entry.id, None, or_split, path, entry.size, None, stage, found, None, self._executor)
