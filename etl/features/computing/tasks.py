"""Tasks that compute features: they read images by id, compute what the images lack, and write it.

While the values of some images are computed, the next images are read and the values of the previous ones are written.
"""

import asyncio
import hashlib
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from etl.batches import arrow_schema, batch_of, bounded, rows_of
from etl.cassandra.cluster import Cluster
from etl.cassandra.task_sessions import ReadRow, TaskSession, insert_into, row_reader, task_session
from etl.features.computing.child import Child
from etl.features.computing.functions import BATCH, computed, load
from etl.features.computing.models import sent
from etl.features.computing.pictures import Picture
from etl.ingest.writing.progress import Counters
from etl.tables.sequence import Run
from schemas import Columns, TableName
from schemas.feature_sources import Builtin, Onnx
from schemas.features import FeatureView

ROWS = "id BINARY, path STRING, bytes BIGINT, sequence BIGINT, event_time BIGINT, sha256 BINARY, todo BIGINT"
"""The images to read. ``event_time`` is in milliseconds since 1970; ``todo`` has a bit for each view to compute."""

COUNTS = "view STRING, computed BIGINT, failed BIGINT"
"""What a task did for a view. ``""`` counts the images that have changed or gone since the job listed them."""

_CHUNK_BYTES = 32 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOrder:
    """What a task computes, and where it reads and writes."""

    cluster: Cluster
    data: TableName
    metadata: TableName
    columns: Columns
    views: tuple[FeatureView, ...]
    run: Run
    run_id: uuid.UUID
    """The id of the run in the quarantine table."""
    timeout: float
    counters: Counters


class Image(NamedTuple):
    """A row of `ROWS`, and when the bytes that were read expire: in seconds since 1970, 0 if they do not."""

    id: bytes
    path: str
    size: int | None
    sequence: int
    event_time: int
    sha256: bytes | None
    todo: int
    expires: int = 0


class Value(NamedTuple):
    """What was computed for a view of an image: the values as they are stored, or None and why there are none."""

    view: int
    image: Image
    size: int
    values: list[Any] | None
    error: str


def compute_features(batches: Iterable[pa.RecordBatch], *, order: FeatureOrder) -> Iterator[pa.RecordBatch]:
    """Compute and write the missing values of images: takes `ROWS`, yields `COUNTS`. Raises `UnreachableError`,
    `TableError`, `FunctionError`.
    """
    images = (Image(*row) for row in rows_of(batches))
    chunks = bounded(images, most=BATCH, most_bytes=_CHUNK_BYTES, size=lambda image: image.size or 0)
    with ExitStack() as stack, asyncio.Runner() as runner:
        counts = runner.run(_run(chunks, order, Computer(order.views, timeout=order.timeout, stack=stack)))
    rows = [(name, *counts[name]) for name in sorted(counts)]
    yield batch_of(rows, arrow_schema(COUNTS))


class Computer:
    """The functions of views: built-in ones are called here, others in child processes, until ``stack`` is closed."""

    def __init__(self, views: Sequence[FeatureView], *, timeout: float, stack: ExitStack) -> None:
        self._views = views
        self._here = {i: load(view.source) for i, view in enumerate(views) if isinstance(view.source, Builtin)}
        self._children = {
            i: Child(view, timeout=timeout, model=sent(view.digest) if isinstance(view.source, Onnx) else None)
            for i, view in enumerate(views)
            if i not in self._here
        }
        for child in self._children.values():
            stack.callback(child.close)

    def values(self, images: Sequence[tuple[Image, bytes]]) -> list[Value]:
        """The values that these images lack, from their bytes."""
        found = []
        for image, data in images:
            picture = Picture(data)
            for number, function in self._here.items():
                if image.todo >> number & 1:
                    ((values, error),) = computed(self._views[number], function, [picture])
                    found.append(Value(number, image, len(data), values, error))
        for number, child in self._children.items():
            wanted = [(image, data) for image, data in images if image.todo >> number & 1]
            answers = child.values([data for _, data in wanted])
            found += [
                Value(number, image, len(data), values, error)
                for (image, data), (values, error) in zip(wanted, answers, strict=True)
            ]
        return found


async def _run(chunks: Iterator[list[Image]], order: FeatureOrder, computer: Computer) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    async with AsyncExitStack() as stack:
        columns = (order.columns.id, order.columns.data)
        read = await stack.enter_async_context(row_reader(order.cluster, order.data, columns=columns, has_ttl=True))
        session = await stack.enter_async_context(task_session(order.cluster))
        output = await ValueRows.prepare(session, order)
        writing: asyncio.Task[None] | None = None
        reading = _next(chunks, read)
        try:
            while reading is not None:
                images = await reading
                reading = _next(chunks, read)
                values = await asyncio.to_thread(computer.values, [one for one in images if one[1] is not None])
                if writing is not None:
                    await writing
                writing = asyncio.create_task(output.write(values))
                _count(counts, values, images, order)
            if writing is not None:
                await writing
        finally:  # the sessions can be closed only when nothing waits for them
            await asyncio.gather(*filter(None, (reading, writing)), return_exceptions=True)
    return counts


def _next(chunks: Iterator[list[Image]], read: ReadRow) -> "asyncio.Task[list[tuple[Image, Any]]] | None":
    chunk = next(chunks, None)
    return None if chunk is None else asyncio.create_task(_read(chunk, read))


async def _read(images: Sequence[Image], read: ReadRow) -> list[tuple[Image, bytes | None]]:
    """The bytes of images; None for images that were deleted or changed since they were listed."""

    async def one(image: Image) -> tuple[Image, bytes | None]:
        row = await read(image.id)
        data = None if row is None or row[0] is None else bytes(row[0])
        if row is None or data is None or image.sha256 not in (None, hashlib.sha256(data).digest()):
            return image, None
        # not by the time of their ingest: it may have written them long after it began
        return image._replace(expires=int(time.time()) + row[1] if row[1] else 0), data

    return await asyncio.gather(*map(one, images))


def _count(
    counts: dict[str, tuple[int, int]],
    values: Sequence[Value],
    images: Sequence[tuple[Image, bytes | None]],
    order: FeatureOrder,
) -> None:
    def add(name: str, computed: int, failed: int) -> None:
        before = counts.get(name, (0, 0))
        counts[name] = (before[0] + computed, before[1] + failed)

    for value in values:
        add(order.views[value.view].title, value.values is not None, value.values is None)
    sizes = [len(data) for _, data in images if data is not None]
    if gone := len(images) - len(sizes):
        add("", gone, 0)
    failed = len({value.image.id for value in values if value.values is None})
    order.counters.count(images=len(images) - failed, bytes=sum(sizes), rejected=failed)


class ValueRows:
    """Prepared statements for the values of each view, and for the quarantine table."""

    def __init__(self, session: TaskSession, order: FeatureOrder, statements: Sequence[Any], quarantine: Any) -> None:
        self._session, self._order = session, order
        self._statements, self._quarantine = statements, quarantine
        self._clock = order.run.task_clock

    @classmethod
    async def prepare(cls, session: TaskSession, order: FeatureOrder) -> "ValueRows":
        """Prepare the statements."""
        statements = []
        for view in order.views:
            names = ["id", "sequence", "event_timestamp", "created_timestamp", "sha256", "error", *view.fields]
            statements.append(await session.prepare(insert_into(view.table_of(order.metadata), names, has_ttl=True)))
        names = ["ingest_id", "path", "stage", "reason", "bytes"]
        quarantine = TableName(order.metadata.keyspace, "quarantine")
        return cls(session, order, statements, await session.prepare(insert_into(quarantine, names)))

    async def write(self, values: Sequence[Value]) -> None:
        """Write the values of each image at once, and a row in the quarantine table if it lacks some."""
        by_image: dict[bytes, list[Value]] = {}
        for value in values:
            by_image.setdefault(value.image.id, []).append(value)
        failed = [[one for one in found if one.error] for found in by_image.values()]
        await asyncio.gather(*map(self.accept, by_image.values()), *map(self._reject, filter(None, failed)))

    async def accept(self, values: Sequence[Value]) -> None:
        """Write the values of an image. Raises `UnreachableError`."""
        image, name = values[0].image, uuid.UUID(bytes=values[0].image.id)
        at, now = _EPOCH + timedelta(milliseconds=image.event_time), datetime.now(UTC)
        ttl = max(1, image.expires - int(time.time())) if image.expires else 0
        rows = []
        for value in values:
            stored = [None] * len(self._order.views[value.view].fields) if value.values is None else value.values
            row = (name, image.sequence, at, now, image.sha256, value.error or None, *stored, self._clock, ttl)
            rows.append((self._statements[value.view], row))
        await self._session.write(rows, about=f"features of image {name}")  # one mutation: the tables have the same key

    async def _reject(self, values: Sequence[Value]) -> None:
        """Record the views that an image lacks; its path is the key, so they are one row."""
        image = values[0].image
        reasons = "; ".join(f"{self._order.views[value.view].title}: {value.error}" for value in values)
        row = (self._order.run_id, image.path, "feature", reasons, values[0].size, self._clock)
        await self._session.write([(self._quarantine, row)], about=f"{image.path} into the quarantine table")
