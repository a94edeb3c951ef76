"""Images in the order in which they are packed, read ahead: from files, and from tables by id."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, TypeVar

from etl.batches import bounded
from etl.cassandra.cluster import Cluster
from etl.cassandra.task_sessions import ReadRow, row_reader
from etl.pictures.images import RejectedError, read_header
from etl.pictures.plan import EXTENSIONS, Check
from etl.shards.samples import Sample, metadata_text
from etl.sources.companions import read_array
from etl.sources.entries import Entry
from etl.sources.reading import Reader
from formats.checksums import COLUMN as CHECKSUM
from formats.checksums import UNKNOWN, checksum
from formats.read_ahead import ahead
from schemas import Columns, TableName
from schemas.tables import LabelType

THREADS = 4  # the number of images that a task reads at a time, if it can
_READ_TOGETHER = 8
_READ_TOGETHER_BYTES = 4 << 20  # the size of a group, because each thread switch costs as much as a small file
AHEAD, AHEAD_BYTES = 64, 32 << 20  # images in progress at a time
_TOGETHER = 64  # the number of images that are requested from a table at a time


class Listed(NamedTuple):
    """A row of `etl.shards.rows.SAMPLES`: an image with its order, class number and checksum."""

    order: int
    label: int | None
    checksum: int | None
    entry: Entry


class PictureTable(NamedTuple):
    """The table from which images are read by id."""

    cluster: Cluster
    table: TableName
    columns: Columns
    label_type: LabelType
    kept: TableName | None = None  # the table of replaced bytes, if there is one


Packed = tuple[Listed, Sample | RejectedError]
Row = TypeVar("Row")
Made = TypeVar("Made")


def from_files(rows: Iterable[Listed], *, label_type: LabelType, check: Check) -> Iterator[Packed]:
    """Samples of images in files, each with its row, in the order of the rows."""
    with Reader() as reader, ThreadPoolExecutor(THREADS, thread_name_prefix="pictures") as pool:

        def read(row: Listed) -> Sample | RejectedError:
            try:
                entry = row.entry
                if entry.reason is not None:
                    return RejectedError(entry.reason)
                data = _as_listed(reader.read(entry.place, entry.offset, entry.size), entry)
                companion = None
                if entry.label_place is not None and entry.label_size is not None:
                    companion = reader.read(entry.label_place, entry.label_offset, entry.label_size)
                return sample_of(row, data, companion, label_type=label_type, check=check)
            except RejectedError as error:
                return error

        def read_all(group: list[Listed]) -> list[Sample | RejectedError]:
            return [read(row) for row in group]

        groups = ahead(
            bounded(rows, most=_READ_TOGETHER, most_bytes=_READ_TOGETHER_BYTES, size=lambda row: row.entry.size),
            lambda group: pool.submit(read_all, group),
            most=AHEAD,
            size=lambda group: sum(row.entry.size for row in group),
            most_bytes=AHEAD_BYTES,
        )
        for group, samples in groups:
            yield from zip(group, samples, strict=True)


def from_table(rows: Iterable[Listed], *, pictures: PictureTable, check: Check) -> Iterator[Packed]:
    """Samples of images in a table, each with its row, in the order of the rows."""
    for row, found in fetched(rows, pictures=pictures):
        try:
            if isinstance(found, RejectedError):
                raise found
            data, companion = found
            data = _as_listed(data, row.entry)
            yield row, sample_of(row, data, companion, label_type=pictures.label_type, check=check)
        except RejectedError as error:
            yield row, error


def fetched(
    rows: Iterable[Listed], *, pictures: PictureTable
) -> Iterator[tuple[Listed, tuple[bytes, bytes | None] | RejectedError]]:
    """The images of rows, with their masks or arrays, in the order of the rows; several are requested at a time."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            read = runner.run(_reader(pictures, stack))
            for batch in bounded(rows, most=_TOGETHER, most_bytes=AHEAD_BYTES, size=lambda row: row.entry.size):
                yield from zip(batch, runner.run(_all(read, batch)), strict=True)
        finally:
            runner.run(stack.aclose())


async def _reader(
    pictures: PictureTable, stack: AsyncExitStack
) -> Callable[[Listed], Awaitable[tuple[bytes, bytes | None] | RejectedError]]:
    """A function that reads the image of a row: of the bytes that its checksum names, from the table or kept ones."""
    names = pictures.columns
    has_companion = pictures.label_type in ("multi", "blob")
    columns = [names.id, names.data, *([names.label] if has_companion else [])]
    now = await stack.enter_async_context(row_reader(pictures.cluster, pictures.table, columns=columns))
    then: ReadRow | None = None
    if pictures.kept is not None:
        columns = ["id", "data", *(["label"] if has_companion else [])]
        opened = row_reader(pictures.cluster, pictures.kept, columns=columns, by=CHECKSUM)
        then = await stack.enter_async_context(opened)

    async def read(row: Listed) -> tuple[bytes, bytes | None] | RejectedError:
        found, wanted = await now(row.entry.id), row.checksum or UNKNOWN
        if then is not None and wanted != UNKNOWN and not _is_of(wanted, found):
            found = await then(row.entry.id, wanted) or found
        if found is None or found[0] is None:
            return RejectedError("missing", f"no picture in {pictures.table}")
        if wanted != UNKNOWN and not _is_of(wanted, found):
            return RejectedError(
                "damaged", f"{pictures.table} has other bytes, or an ingest has replaced them meanwhile"
            )
        return found[0], found[1] if has_companion else None

    return read


def _is_of(wanted: int, found: tuple[Any, ...] | None) -> bool:
    return found is not None and found[0] is not None and checksum(*found) == wanted


def sample_of(row: Listed, data: bytes, companion: bytes | None, *, label_type: LabelType, check: Check) -> Sample:
    """The sample of an unchanged image without a mask. Raises `RejectedError`."""
    header = read_header(data, check=check)
    kind = companion_extension(companion, label_type=label_type)
    return Sample(
        EXTENSIONS[header.format], data, row.label, metadata_text(row.entry, label=row.label), kind, companion
    )


def _as_listed(data: bytes, entry: Entry) -> bytes:
    """Check that an image has its listed size, from which its place in a shard was computed. Raises `RejectedError`."""
    if len(data) != entry.size:
        raise RejectedError("another size than listed", f"{len(data)} bytes, not {entry.size}")
    return data


def companion_extension(companion: bytes | None, *, label_type: LabelType) -> str | None:
    """``npy`` for arrays, ``seg.png`` and similar for masks. Raises `RejectedError` for anything else, or nothing."""
    if label_type not in ("multi", "blob"):
        return None
    if companion is None:
        raise RejectedError("no mask" if label_type == "blob" else "no array", "the image has none")
    if label_type == "multi":
        read_array(companion)
        return "npy"
    return f"seg.{EXTENSIONS[read_header(companion, check='none').format]}"


async def _all(read: Callable[[Row], Awaitable[Made]], rows: Iterable[Row]) -> list[Made]:
    return await asyncio.gather(*(read(row) for row in rows))
