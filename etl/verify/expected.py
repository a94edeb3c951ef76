"""The rows that a source determines, made by the code with which an ingest writes them."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from etl.batches import arrow_schema, batch_of, bounded, rows_of
from etl.frames import joined_by_id
from etl.ingest.listed_images import ListedImages
from etl.ingest.plan import IngestPlan
from etl.ingest.writing.image_rows import image_row, label_of
from etl.ingest.writing.preparation import Preparation, prepare_or_reject
from etl.ingest.writing.tasks import distributed, task_count
from etl.sources.entries import Entry
from etl.sources.reading import Reader
from etl.verify.comparison import mark
from etl.verify.plan import Check
from etl.verify.problems import EXPECTED
from etl.workers import map_batches

_READERS = 4
_TOGETHER = 64
_TOGETHER_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """How the rows of images follow from a source."""

    source: str  # its name in rows
    numbers: Mapping[str, int]  # of classes, by name; empty unless labels are classes
    preparation: Preparation | None  # how images are read and converted; None if they are not read
    has_sizes: bool  # whether the listed size is that of the stored image
    in_turn: bool  # whether images are read one by one, in the order of the rows

    @classmethod
    def of(cls, plan: IngestPlan, images: ListedImages, *, numbers: Mapping[str, int], check: Check) -> "Expectation":
        """Make it for an ingest. Images are read to check hashes only."""
        # Whatever the ingest's check says: an ingest without a check, or of an earlier version, may have taken them.
        preparation = Preparation(check="none", recode=plan.recode, label_type=plan.source.label_type)
        return cls(
            source=plan.source_name,
            numbers=numbers,
            preparation=preparation if check == "hashes" else None,
            has_sizes=not plan.recode.changes and not images.listing.has_data,
            in_turn=images.listing.access != "random",
        )

    def rows(self, images: ListedImages, *, only: DataFrame | None = None) -> DataFrame:
        """The rows of `EXPECTED` of all images of a source, or of those with these ids."""
        listing, counts = images.listing, images.counts
        entries = images.entries if self.preparation is None else images.without(None)
        if only is not None:
            entries = joined_by_id(entries, only, how="left_semi")
        cores = entries.sparkSession.sparkContext.defaultParallelism
        tasks = task_count(rows=counts.files, size=counts.bytes, cores=cores)
        parts = distributed(entries, tasks=tasks, access=listing.access)
        return map_batches(parts, task=partial(_expected_batches, expectation=self), schema=EXPECTED)

    def row(self, entry: Entry, reader: Reader) -> tuple[Any, ...]:
        """The row of `EXPECTED` of an image. Raises `SourceError` if the source does not answer."""
        picture, unreadable = None, None
        if self.preparation is not None and entry.reason is None:
            prepared = prepare_or_reject(entry, reader, preparation=self.preparation)
            picture, unreadable = (None, prepared) if isinstance(prepared, str) else (prepared, None)
        row = image_row(entry, picture, label=label_of(entry, numbers=self.numbers), source_name=self.source)
        if picture is None and self.has_sizes:
            row = row._replace(bytes=entry.size)
        return (entry.id, *row[:-1], mark(row.data_label), entry.reason, unreadable)


def _expected_batches(batches: Iterable[pa.RecordBatch], *, expectation: Expectation) -> Iterator[pa.RecordBatch]:
    entries = (Entry(*row) for row in rows_of(batches))
    groups = bounded(entries, most=_TOGETHER, most_bytes=_TOGETHER_BYTES, size=lambda entry: entry.size)
    with Reader() as reader, ThreadPoolExecutor(1 if expectation.in_turn else _READERS) as pool:
        for group in groups:
            rows = list(pool.map(partial(expectation.row, reader=reader), group))
            yield batch_of(rows, arrow_schema(EXPECTED))
