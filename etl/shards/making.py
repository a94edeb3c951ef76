"""Images that are converted before they are packed, or that cannot be read in the order of the shards."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa

from etl.batches import batch_of, bounded
from etl.ingest.writing.preparation import Preparation, prepare
from etl.pictures.images import RejectedError
from etl.pictures.plan import EXTENSIONS
from etl.shards.plan import Compression
from etl.shards.reading import AHEAD, AHEAD_BYTES, Listed, PictureTable, companion_extension, fetched
from etl.shards.rows import ARROW_MADE, listed_rows
from etl.shards.samples import Sample, compressed, listed_size, metadata_text
from etl.sources.reading import Reader
from formats.read_ahead import ahead

_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 1000


def make(
    batches: Iterable[pa.RecordBatch],
    *,
    preparation: Preparation,
    compress: Compression,
    threads: int,
    pictures: PictureTable | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run the task: it takes rows of `SAMPLES`, possibly with ``data``, and yields rows of `MADE` in the same order.
    Files that can only be read sequentially use one of the ``threads``.
    """
    rows = (row for batch in batches for row in listed_rows(batch))
    task = partial(_made, preparation=preparation, compress=compress)
    with Reader() as reader, ThreadPoolExecutor(threads, thread_name_prefix="pictures") as pool:
        given = _with_pictures(rows, reader, pictures)
        made = ahead(
            given,
            lambda one: pool.submit(task, *one),
            most=AHEAD,
            size=lambda one: one[0].entry.size,
            most_bytes=AHEAD_BYTES,
        )
        samples = (sample for _, sample in made)
        for group in bounded(samples, most=_BATCH_ROWS, most_bytes=_BATCH_BYTES, size=lambda sample: int(sample[5])):
            yield batch_of(group, ARROW_MADE)


class _Held(Reader):
    """Returns bytes that are in memory already."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def read(self, place: bytes, offset: int | None, size: int) -> bytes:
        return self._data


def _with_pictures(
    rows: Iterator[Listed], reader: Reader, pictures: PictureTable | None
) -> Iterator[tuple[Listed, Reader]]:
    """Rows with the reader of their files. Rows of a table contain their image bytes."""
    if pictures is None:
        yield from ((row, reader) for row in rows)
        return
    for row, found in fetched(rows, pictures=pictures):
        if isinstance(found, RejectedError):
            yield row._replace(entry=row.entry._replace(reason=str(found))), reader
            continue
        data, companion = found
        entry = row.entry._replace(data=data)
        if companion is not None:
            entry = entry._replace(label_place=b"", label_size=len(companion))
        yield row._replace(entry=entry), _Held(companion or b"")


def _made(row: Listed, reader: Reader, *, preparation: Preparation, compress: Compression) -> tuple[Any, ...]:
    order, label, _, entry = row
    ids = (order, label, entry.id, entry.or_split, entry.path)
    # A rejected image leaves the space that its listing says, as it does if images are read while they are packed.
    room = 0 if entry.reason or preparation.recode.changes or compress != "none" else listed_size(entry, label=label)
    try:
        if entry.reason is not None:
            raise RejectedError(entry.reason)
        picture = prepare(entry, reader, preparation=preparation)
        kind = companion_extension(picture.companion, label_type=preparation.label_type)
        extension, data = compressed(EXTENSIONS[picture.header.format], picture.data, compress=compress)
        sample = Sample(extension, data, label, metadata_text(entry, label=label), kind, picture.companion)
    except RejectedError as error:
        return (*ids, room, None, None, None, None, None, str(error))
    return (*ids, sample.size, extension, data, sample.metadata, kind, sample.companion, None)
