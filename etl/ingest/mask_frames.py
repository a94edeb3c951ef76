"""A look at masks before anything is written: are there images of which nobody can tell what their masks were drawn on?

Only images whose EXIF orientation turns them are of interest, and this stands in the first bytes of a JPEG.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.batches import arrow_schema, batch_of, rows_of
from etl.errors import SourceError
from etl.ingest.writing.tasks import distributed
from etl.pictures.headers import jpeg_orientation
from etl.pictures.images import Header, RejectedError, read_header
from etl.pictures.masks import UNKNOWN_FRAME, frame_of
from etl.sources.entries import Entry, Listing
from etl.sources.reading import Reader
from etl.workers import map_batches

log = logging.getLogger("imagestrata.ingest")

_FOUND = "frame STRING NOT NULL, name STRING NOT NULL"
_UNKNOWN = "unknown"
_FIRST_BYTES = 1 << 16
_THREADS = 8


def check_mask_frames(entries: DataFrame, *, listing: Listing, tasks: int) -> None:
    """Raise `SourceError` unless the sizes of all masks show their frame. Runs Spark, which reads the beginning of each
    image that is to be written (``entries``).
    """
    entries = entries.where("reason IS NULL AND label_place IS NOT NULL")
    parts = distributed(entries, tasks=tasks, access=listing.access)
    task = partial(_look, threads=_THREADS if listing.access == "random" else 1)
    found = map_batches(parts, task=task, schema=_FOUND)
    rows = found.groupBy("frame").agg(F.count("*").alias("masks"), F.min("name").alias("name")).collect()
    masks = Counter({row.frame: row.masks for row in rows})
    if masks["stored"]:
        log.info("%s masks are in the frame of the stored image, and are turned", f"{masks['stored']:,}")
    if count := masks[_UNKNOWN]:
        names, told = {row.frame: row.name for row in rows}, ""
        if masks["stored"] or masks["upright"]:
            told = f" Of other masks, by their sizes, {masks['stored']:,} are stored and {masks['upright']:,} upright."
        raise SourceError(
            "Wanted --mask-frame stored or --mask-frame upright: were masks drawn on the pixels as the files store "
            f"them, or on upright images? Found: {count:,} images that their EXIF orientation turns, with masks that "
            f"fit both, such as {names[_UNKNOWN]}.{told} Nothing was written."
        )


def _look(batches: Iterable[pa.RecordBatch], *, threads: int) -> Iterator[pa.RecordBatch]:
    with Reader() as reader, ThreadPoolExecutor(threads) as pool:
        for batch in batches:
            entries = [Entry(*row) for row in rows_of([batch])]
            frames = pool.map(partial(_frame, reader=reader), entries)
            rows = [(frame, entry.name) for entry, frame in zip(entries, frames, strict=True) if frame]
            yield batch_of(rows, arrow_schema(_FOUND))


def _frame(entry: Entry, *, reader: Reader) -> str | None:
    """The frame of the mask of an image that is turned; None for other images, and for what is rejected later."""
    try:
        image = _header(entry, reader)
        if image is None or image.stored_orientation == 1 or entry.label_place is None or entry.label_size is None:
            return None
        mask = read_header(reader.read(entry.label_place, entry.label_offset, entry.label_size), check="none")
        return frame_of(mask, image)
    except RejectedError as error:
        return _UNKNOWN if str(error).startswith(UNKNOWN_FRAME) else None


def _header(entry: Entry, reader: Reader) -> Header | None:
    data = entry.data
    if data is None and entry.size > _FIRST_BYTES:
        start = reader.read(entry.place, entry.offset or 0, _FIRST_BYTES)
        if jpeg_orientation(start) == 1:
            return None
    if data is None:
        data = reader.read(entry.place, entry.offset, entry.size)
    return read_header(data, check="none")
