"""Writing listed images from a Spark task: read, look at, then the data row, and when that is safe its metadata row.

A task keeps a sliding window of images in flight, bounded in number and in bytes; files are read by a few threads, and
one coroutine per image waits for Cassandra. Everything that a row holds follows from the file and the order, so a task
that is run again writes the same rows.
"""

import asyncio
import hashlib
import os
import stat
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from etl.cassandra import Cluster, TooLargeError, Writer, writer
from etl.images import Header, RejectedError, read_header
from etl.ingest_plan import ingest_time
from etl.trees import text
from schemas import Columns, TableName

IMAGES_IN_FLIGHT = 64
BYTES_IN_FLIGHT = 64 << 20
MAX_BYTES = 256 << 20
"""No server takes a row of this size (a frame of its protocol is shorter), so it is not even read."""

_READERS = 4
_BATCH_ROWS = 500

OUTCOMES = "id BINARY, label INT, or_split STRING, bytes BIGINT, sha256 BINARY, stage STRING, reason STRING"
"""What became of a file: ``stage`` is ``written``, or where it was rejected (``list``, ``read``, ``write``) and why."""

_ARROW_OUTCOMES = pa.schema(
    [
        pa.field("id", pa.binary()),
        pa.field("label", pa.int32()),
        pa.field("or_split", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("sha256", pa.binary()),
        pa.field("stage", pa.string()),
        pa.field("reason", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOrder:
    """What a task needs to know to write its images."""

    cluster: Cluster
    root: bytes
    source: str
    data_table: TableName
    metadata_table: TableName
    quarantine_table: TableName
    columns: Columns
    labels: Mapping[str, int]
    ingest_id: uuid.UUID


class Picture(NamedTuple):
    """A file that is an image: all of it, its SHA-256, its header."""

    data: bytes
    sha256: bytes
    header: Header


class _File(NamedTuple):
    id: bytes
    or_split: bytes
    path: bytes
    size: int
    reason: str | None


class _Outcome(NamedTuple):
    id: bytes
    label: int | None
    or_split: str
    size: int
    sha256: bytes | None
    stage: str
    reason: str | None


def write_images(batches: Iterable[pa.RecordBatch], *, order: WriteOrder) -> Iterator[pa.RecordBatch]:
    """The task: rows of `trees.FILES` in, rows of `OUTCOMES` out, as they are done.

    Raises `UnreachableError`, `TableError`.
    """
    files = (
        _File(*row) for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    with ThreadPoolExecutor(_READERS) as readers, asyncio.Runner() as runner:
        outcomes = _write(files, order, readers)
        try:
            while rows := runner.run(_take(outcomes, _BATCH_ROWS)):
                yield pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=_ARROW_OUTCOMES)
        finally:
            runner.run(_close(outcomes))


async def _take(outcomes: AsyncIterator[_Outcome], count: int) -> list[_Outcome]:
    taken: list[_Outcome] = []
    async for outcome in outcomes:
        taken.append(outcome)
        if len(taken) == count:
            break
    return taken


async def _close(outcomes: Any) -> None:
    await outcomes.aclose()


async def _write(files: Iterator[_File], order: WriteOrder, readers: ThreadPoolExecutor) -> AsyncIterator[_Outcome]:
    """Keep the window full; outcomes come in the order of their ends."""
    async with writer(order.cluster) as session:
        rows = await _Rows.prepare(session, order)
        loop = asyncio.get_running_loop()
        running: dict[asyncio.Task[_Outcome], int] = {}
        ended: asyncio.Queue[asyncio.Task[_Outcome]] = asyncio.Queue()
        in_flight = 0
        try:
            for file in files:
                while running and (len(running) >= IMAGES_IN_FLIGHT or in_flight + file.size > BYTES_IN_FLIGHT):
                    done = await ended.get()
                    in_flight -= running.pop(done)
                    yield done.result()
                task = loop.create_task(rows.ingest(file, readers))
                running[task] = file.size
                in_flight += file.size
                task.add_done_callback(ended.put_nowait)
            while running:
                done = await ended.get()
                del running[done]
                yield done.result()
        finally:  # the session may be closed only when nothing waits for it any more
            await asyncio.gather(*running, return_exceptions=True)


class _Rows:
    """The three kinds of rows that come of files, as prepared statements."""

    def __init__(self, session: Writer, order: WriteOrder, data: Any, metadata: Any, quarantine: Any) -> None:
        self._session = session
        self._order = order
        self._data = data
        self._metadata = metadata
        self._quarantine = quarantine
        self._time = ingest_time(order.ingest_id)

    @classmethod
    async def prepare(cls, session: Writer, order: WriteOrder) -> "_Rows":
        names = order.columns
        data = f'"{names.id}", "{names.label}", "{names.data}"'
        metadata = (
            f'"{names.id}", "{names.label}", or_label, or_split, path, format, width, height, bytes, sha256, source, '
            "ingested_at, ingest_id"
        )
        return cls(
            session,
            order,
            await session.prepare(_insert(order.data_table, data)),
            await session.prepare(_insert(order.metadata_table, metadata)),
            await session.prepare(_insert(order.quarantine_table, "ingest_id, path, stage, reason, bytes")),
        )

    async def ingest(self, file: _File, readers: ThreadPoolExecutor) -> _Outcome:
        """Write a file's rows, or tell in the quarantine why there are none."""
        if file.reason is not None:
            return await self._reject(file, "list", file.reason)
        path = os.path.join(self._order.root, file.or_split, file.path)
        loop = asyncio.get_running_loop()
        try:
            picture = await loop.run_in_executor(readers, read_picture, path)
        except RejectedError as error:
            return await self._reject(file, "read", str(error))
        try:
            return await self._accept(file, picture)
        except TooLargeError as error:
            limits = "See max_mutation_size and native_transport_max_frame_size in the server's cassandra.yaml."
            return await self._reject(file, "write", f"too large: {error} {limits}")

    async def _accept(self, file: _File, picture: Picture) -> _Outcome:
        data, sha256, header = picture
        image, path, or_split = uuid.UUID(bytes=file.id), text(file.path), text(file.or_split)
        or_label = text(file.path.partition(b"/")[0])
        label = self._order.labels[or_label]
        about = f"image {image} ({path})"
        await self._session.write(self._data, (image, label, data), about=f"{about} into {self._order.data_table}")
        look = (header.format, header.width, header.height, len(data), sha256)
        run = (self._order.source, self._time, self._order.ingest_id)
        values = (image, label, or_label, or_split, path, *look, *run)
        await self._session.write(self._metadata, values, about=f"{about} into {self._order.metadata_table}")
        return _Outcome(file.id, label, or_split, len(data), sha256, "written", None)

    async def _reject(self, file: _File, stage: str, reason: str) -> _Outcome:
        path = text(os.path.join(file.or_split, file.path))
        values = (self._order.ingest_id, path, stage, reason, file.size)
        await self._session.write(self._quarantine, values, about=f"{path} into {self._order.quarantine_table}")
        return _Outcome(file.id, None, text(file.or_split), file.size, None, stage, reason)


def _insert(table: TableName, columns: str) -> str:
    marks = ", ".join("?" for _ in columns.split(","))
    return f"INSERT INTO {table.quoted} ({columns}) VALUES ({marks})"


def read_picture(path: bytes) -> Picture:
    """Read a whole file and look at it. Raises `RejectedError`; never waits for a pipe that nobody writes to."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise RejectedError("not a regular file")
            if found.st_size > MAX_BYTES:
                raise RejectedError("too large", f"{found.st_size} bytes")
            data = file.readall() or b""
    except OSError as error:
        raise RejectedError("unreadable", error.strerror or type(error).__name__) from None
    return Picture(data, hashlib.sha256(data).digest(), read_header(data))
