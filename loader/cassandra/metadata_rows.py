"""Rows of a split's metadata table by id, without the images."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Any

import pyarrow as pa

from loader.cassandra.clients import TableReader, readers_of
from loader.cassandra.cluster import Cluster
from loader.errors import OptionError, TableError
from loader.prefetch.fetch_thread import fetch_engine
from loader.prefetch.split_batches import batcher_of, steps_of
from loader.splits import Split
from schemas import SchemaError, TableName

_ROWS = 4096  # of one batch
_BUDGET = 64_000_000
_ARROW = {
    "ascii": pa.string(),
    "bigint": pa.int64(),
    "blob": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "text": pa.string(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "timeuuid": pa.string(),
    "tinyint": pa.int8(),
    "uuid": pa.string(),
    "varchar": pa.string(),
    "list<int>": pa.list_(pa.int32()),
}
# The clients have classes of their own for these, with the same text.
_CONVERT: dict[str, Callable[[str], Any]] = {"date": date.fromisoformat, "timeuuid": str, "uuid": str}


def read_metadata(split: Split, columns: tuple[str, ...] | None, cluster: Cluster) -> pa.Table:
    """Columns of the split's metadata table, by position; None: all but id and label. Raises `OptionError`,
    `TableError` for columns that are not there, `MissingImageError` for an id without a row, `UnreachableError`,
    `AccessError`.
    """
    try:
        table = TableName.parse(split.metadata_table)
    except SchemaError:
        raise OptionError(f"Wanted a split that names its metadata table. Found: {split!r}") from None
    kinds = _kinds(readers_of(split, cluster, metadata=columns or ()), table)
    if columns is None:
        columns = tuple(name for name in kinds if name not in (split.columns.id, split.columns.label))
    engine = fetch_engine(
        readers_of(split, cluster, metadata=columns, has_images=False),
        batcher_of(split, batch_size=_ROWS),
        budget=_BUDGET,
        max_in_flight=4096,
    )
    found: list[list[Any]] = [[] for _ in columns]
    stream = engine.stream(iter([steps_of(len(split), batch_size=_ROWS)]))
    try:
        while (batch := stream.take()) is not None:
            for values, column in zip(found, zip(*(one.metadata for one in batch.samples), strict=True), strict=True):
                values.extend(column)
    finally:
        stream.close()
        engine.close()
    return pa.table(
        {name: _array(table, name, kinds[name], values) for name, values in zip(columns, found, strict=True)}
    )


def _kinds(make: Callable[[], TableReader], table: TableName) -> dict[str, str]:
    """The CQL type of each column of a table; asked in a thread, because notebooks have a running event loop."""

    async def ask() -> dict[str, str]:
        reader = make()
        try:
            await reader.connect()
            return {name: kind for name, (kind, _) in (await reader.columns(table)).items()}
        finally:
            await reader.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(ask())).result()


def _array(table: TableName, name: str, kind: str, values: Sequence[Any]) -> pa.Array:
    kind = kind.removeprefix("frozen<").removesuffix(">") if kind.startswith("frozen<") else kind
    try:
        if convert := _CONVERT.get(kind):
            values = [None if value is None else convert(str(value)) for value in values]
        return pa.array(values, type=_ARROW.get(kind))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TableError(
            f"Wanted values of {table}.{name} that Arrow can hold. Found: {kind} ({error}). Leave the column out."
        ) from error
