"""The rows between the steps of a sharding job: listed samples, and samples with their files."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from etl.batches import arrow_schema, rows_of
from etl.pictures.images import RejectedError
from etl.shards.reading import Listed, Packed
from etl.shards.samples import Sample
from etl.sources.entries import ENTRIES, Entry
from formats.checksums import COLUMN as CHECKSUM

# An image to pack: its order, its class number, its checksum if it is read from a table that has it, and its entry.
SAMPLES = f"order BIGINT, label INT, {CHECKSUM} BIGINT, {ENTRIES}"
# A sample with its files. One with a ``reason`` was rejected and has no files.
MADE = (
    "order BIGINT, label INT, id BINARY, or_split BINARY, path BINARY, size BIGINT, extension STRING, data BINARY, "
    "metadata BINARY, companion_extension STRING, companion BINARY, reason STRING"
)
ARROW_MADE = arrow_schema(MADE)


def listed_rows(batch: pa.RecordBatch) -> list[Listed]:
    """Rows of `SAMPLES`, possibly with ``data`` at the end."""
    return [Listed(order, label, checksum, Entry(*rest)) for order, label, checksum, *rest in rows_of([batch])]


def sharded(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Rows as tuples with ``shard`` first; it is last in the DataFrame."""
    # A dict for each row would cost more.
    *columns, shards = (column.to_pylist() for column in batch.columns)
    return zip(shards, *columns, strict=True)


def packed_row(row: Sequence[Any]) -> Packed:
    """A row of `MADE`."""
    order, label, id, or_split, path, _, extension, data, metadata, kind, companion, reason = row
    listed = Listed(order, label, None, Entry(id, or_split, path, None, None, b"", None, 0, reason=reason))
    if reason is not None:
        return listed, RejectedError(reason)
    return listed, Sample(extension, data, label, metadata, kind, companion)
