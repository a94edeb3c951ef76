"""Rows in Arrow batches, the input and output of tasks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

_TYPES = {
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "STRING": pa.string(),
    "ARRAY<INT>": pa.list_(pa.int32()),
}
Item = TypeVar("Item")


def arrow_schema(columns: str) -> pa.Schema:
    """The Arrow schema of columns in Spark's notation, such as ``id BINARY NOT NULL, bytes BIGINT``."""
    parts = (column.split() for column in columns.split(", "))
    return pa.schema([pa.field(name, _TYPES[kind], nullable=not others) for name, kind, *others in parts])


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows of batches, as tuples."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def batch_of(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as one batch."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.record_batch([list(column) for column in columns], schema=schema)


def bounded(items: Iterable[Item], *, most: int, most_bytes: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Group items in order: each group is bounded in number and in bytes, and has at least one item."""
    group: list[Item] = []
    held = 0
    for item in items:
        more = size(item)
        if group and (len(group) == most or held + more > most_bytes):
            yield group
            group, held = [], 0
        group.append(item)
        held += more
    if group:
        yield group
