"""Row groups of Parquet files as entries, on executors, with or without reading the images."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl.batches import arrow_schema, batch_of, rows_of
from etl.errors import SourceError, one_line
from etl.secrets import executor_storage
from etl.sources.entries import ARROW_ENTRIES
from etl.sources.labels.values import LabelError, class_label_names, label_texts, listed
from etl.sources.tars import unsafe
from formats.stores.storage import Storage
from schemas.identity import image_ids

GROUPS = "file BINARY NOT NULL, number INT NOT NULL, first BIGINT NOT NULL, rows BIGINT NOT NULL, size BIGINT NOT NULL"
"""A row group: file, number in the file, number of its first row, number of rows, and total size of the images."""
NO_PATH, NO_BYTES = "no path", "no bytes in its row"
_ARROW_WITH_DATA = ARROW_ENTRIES.append(pa.field("data", pa.binary()))
_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 1000
_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of a table: names, and dotted names for fields of the image column."""

    data: str
    path: str | None
    label: str | None = None
    group: str | None = None
    order: tuple[str, ...] = ()  # the names of the classes of which the label column has the numbers

    def named(self, *, with_data: bool) -> list[str]:
        """The names of all columns to read."""
        names = (self.path, self.label, self.group, self.data if with_data else None)
        return list(dict.fromkeys(name for name in names if name is not None))


def list_groups(names: Iterable[str], *, folder: str, column: str) -> Iterator[pa.RecordBatch]:
    """Run the task: it takes names of files and yields their row groups."""
    storage = executor_storage(folder)
    leaf = column.replace("\0", ".")
    for name in names:
        rows: list[tuple[bytes, int, int, int, int]] = []
        with opened(storage, name) as file:
            start = 0
            for number in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(number)
                chunks = (group.column(at) for at in range(group.num_columns))
                size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == leaf)
                rows.append((os.fsencode(name), number, start, group.num_rows, size))
                start += group.num_rows
        yield batch_of(rows, arrow_schema(GROUPS))


@contextmanager
def opened(storage: Storage, name: str) -> Iterator[pq.ParquetFile]:
    """An open Parquet file, read page by page. Errors become `SourceError`."""
    try:
        with storage.open(name) as file:
            yield pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise SourceError(unreadable(f"{storage.address}/{name}", error)) from None


def read_groups(
    batches: Iterable[pa.RecordBatch], *, folder: str, columns: Columns, dataset: str, or_split: bytes, with_data: bool
) -> Iterator[pa.RecordBatch]:
    """Run the task: it takes row groups and yields entries, with or without the image bytes."""
    storage: Storage | None = None
    number = image_ids(dataset, or_split)
    entries = partial(_entry_batches, columns=columns, or_split=or_split, number=number, with_data=with_data)
    wanted = columns.named(with_data=with_data)
    for batch in batches:
        storage = storage or executor_storage(folder)
        for name, group, first, rows, size in sorted(rows_of([batch])):
            mean = size // max(1, rows)
            step = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, mean))) if with_data else _BATCH_ROWS
            place, stem = os.fsencode(f"{storage.address}/") + name, name.rpartition(b".")[0]
            with opened(storage, os.fsdecode(name)) as file:
                missing = [one for one in wanted if one.partition("\0")[0] not in file.schema_arrow.names]
                if missing:
                    raise SourceError(
                        f"Wanted the columns {', '.join(one.replace(chr(0), '.') for one in missing)} in "
                        f"{storage.address}/{os.fsdecode(name)}, as in the first file. "
                        f"Found: {', '.join(file.schema_arrow.names)}."
                    )
                _check_order(file.schema_arrow, columns, f"{storage.address}/{os.fsdecode(name)}")
                leaves = [one.replace("\0", ".") for one in wanted]  # none if only the number of rows is needed
                at = first
                for part in file.iter_batches(batch_size=step, row_groups=[group], columns=leaves, use_threads=False):
                    yield from entries(part, place=place, stem=stem, first=at, mean=mean)
                    at += part.num_rows


def _check_order(schema: Any, columns: Columns, place: str) -> None:
    """Raise `SourceError` if a file has other class names than the first one."""
    if columns.order and (found := class_label_names(schema, columns.label)) != columns.order:
        names = listed(found) if found else "no names"
        raise SourceError(
            f"Wanted the class names {listed(columns.order)} of the column {columns.label!r} in the schema of {place}, "
            f"as in the first file. Found: {names}. Set --class-names number to use the numbers, or ingest the file "
            "separately."
        )


def _entry_batches(
    part: pa.RecordBatch,
    *,
    columns: Columns,
    place: bytes,
    stem: bytes,
    first: int,
    mean: int,
    or_split: bytes,
    number: Callable[[bytes], bytes],
    with_data: bool,
) -> Iterator[pa.RecordBatch]:
    count = part.num_rows
    rows = range(first, first + count)
    data = _column(part, columns.data).cast(pa.binary()) if with_data else None
    sizes = pc.fill_null(pc.binary_length(data), 0).cast(pa.int64()).to_pylist() if with_data else [mean] * count
    paths = _raw(part, columns.path) if columns.path else [None] * count
    names = [stem + b"/%d" % row if path is None else path for row, path in zip(rows, paths, strict=True)]
    reasons: list[str | None] = []
    for at, name in enumerate(names):
        if not name:
            reasons.append(NO_PATH)
        else:
            absent = data is not None and not data[at].is_valid
            reasons.append(unsafe(name) or (NO_BYTES if absent else None))
    nothing = pa.nulls(count)
    groups = _column(part, columns.group).cast(pa.string()) if columns.group else nothing
    texts = [_labels(part, columns, place=place, first=first), groups]
    splits, places = [or_split] * count, [place] * count
    arrays = [[*map(number, names)], splits, names, *texts, places, [*rows], sizes, *([nothing] * 3), reasons]
    schema = _ARROW_WITH_DATA if with_data else ARROW_ENTRIES
    made = [
        one.cast(field.type) if isinstance(one, pa.Array) else pa.array(one, field.type)
        for one, field in zip([*arrays, data][: len(schema)], schema, strict=True)
    ]
    whole = pa.RecordBatch.from_arrays(made, schema=schema)
    start = held = 0
    for at, size in enumerate(sizes if with_data else ()):
        if held and held + size > _BATCH_BYTES:
            yield whole.slice(start, at - start)
            start, held = at, 0
        held += size
    yield whole.slice(start)


def _labels(part: pa.RecordBatch, columns: Columns, *, place: bytes, first: int) -> pa.Array:
    if columns.label is None:
        return pa.nulls(part.num_rows)
    try:
        return label_texts(_column(part, columns.label), names=columns.order)
    except LabelError as error:
        raise SourceError(
            f"Wanted labels in the column {columns.label!r} of {os.fsdecode(place)}. Found: {error}, in row "
            f"{first + error.row + 1:,}. {error.mend}"
        ) from None


def _column(part: pa.RecordBatch, name: str) -> pa.Array:
    column, _, field = name.partition("\0")
    found = part.column(column)
    return pc.struct_field(found, field) if field else found


def _raw(part: pa.RecordBatch, name: str) -> list[bytes | None]:
    """A column as raw bytes: its text as UTF-8, whatever its type."""
    found = _column(part, name)
    kind = found.type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        found = found.cast(pa.string())
    return [None if one is None else one if isinstance(one, bytes) else one.encode() for one in found.to_pylist()]


def unreadable(place: str, error: Exception) -> str:
    words = "nothing there" if isinstance(error, FileNotFoundError) else one_line(error)
    return f"Wanted to read Parquet at {place}. Found: {words}"
