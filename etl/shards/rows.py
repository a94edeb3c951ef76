"""The rows between the steps of a sharding job: listed samples, and samples with their files."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import pyarrow as pa

from etl.batches import arrow_schema, rows_of
from etl.pictures.images import RejectedError
from etl.shards.reading import Labelled, Packed
from etl.shards.samples import Sample
from etl.sources.entries import ENTRIES, Entry

SAMPLES = f"order BIGINT, label INT, {ENTRIES}"  # an image to pack: its order, its class number, and its entry
# A sample with its files. One with a ``reason`` was rejected and has no files.
MADE = (
    "order BIGINT, label INT, id BINARY, or_split BINARY, path BINARY, size BIGINT, extension STRING, data BINARY, "
    "metadata BINARY, companion_extension STRING, companion BINARY, reason STRING"
)
ARROW_MADE = arrow_schema(MADE)

Listed: TypeAlias = tuple[int, int | None, Entry]  # A row of `SAMPLES`


def listed_rows(batch: pa.RecordBatch) -> list[Listed]:
    """Rows of `SAMPLES`, possibly with ``data`` at the end."""
    return [(order, label, Entry(*rest)) for order, label, *rest in rows_of([batch])]


def sharded(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Rows as tuples with ``shard`` first; it is last in the DataFrame."""
    # A dict for each row would cost more.
    *columns, shards = (column.to_pylist() for column in batch.columns)
    return zip(shards, *columns, strict=True)


def packed_row(
    order: int,
    label: int | None,
    id: bytes,
    or_split: bytes,
    path: bytes,
    size: int,
    extension: str,
    data: bytes,
    metadata: bytes,
    kind: str | None,
    companion: bytes | None,
    reason: str | None,
) -> Packed:
    """A row of `MADE`."""
    labelled = Labelled(label, Entry(id, or_split, path, None, None, b"", None, 0, reason=reason))
    if reason is not None:
        return labelled, RejectedError(reason)
    return labelled, Sample(extension, data, label, metadata, kind, companion)
