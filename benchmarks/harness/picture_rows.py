"""What every contender of the ingest benchmark writes: two rows for each image of a tree; and a check of the result."""

import asyncio
import gc
import hashlib
import os
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.harness.pictures import CLASSES, Planted
from etl.cassandra.cluster import Cluster
from etl.cassandra.task_sessions import task_session
from etl.pictures.images import read_header
from schemas import Columns, TableName, image_id
from schemas.tables import create_data, create_metadata, defined_columns

KEYSPACE = "bench"
DATA = TableName(KEYSPACE, "data")
METADATA = TableName(KEYSPACE, "metadata")
LABELS = {f"class_{number}": number for number in range(CLASSES)}
DATA_COLUMNS = defined_columns(create_data(DATA, Columns()))
METADATA_COLUMNS = defined_columns(create_metadata(METADATA, Columns()))
TABLES = {DATA: DATA_COLUMNS, METADATA: METADATA_COLUMNS}
"""The columns of each table with their CQL types, as an ingest creates them."""
INSERTS = tuple(
    f"INSERT INTO {table.quoted} ({', '.join(columns)}) VALUES ({', '.join('?' for _ in columns)})"
    for table, columns in TABLES.items()
)
"""The statements that write the data row and the metadata row."""

Rows = tuple[tuple[Any, ...], tuple[Any, ...]]

_LOOKED_AT = 50


@dataclass(frozen=True)
class Origin:
    """The metadata that all rows of one run share."""

    source: str
    ingested_at: datetime
    ingest_id: uuid.UUID

    @classmethod
    def of(cls, root: str) -> "Origin":
        """A run that starts now."""
        return cls(f"file://{root}", datetime.now(UTC).replace(microsecond=0), uuid.uuid1())


def list_paths(root: str) -> list[str]:
    """The files below a folder, relative to it, sorted."""
    return sorted(
        os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names
    )


def our_id(path: str) -> uuid.UUID:
    """The id that an ingest gives to an image."""
    return image_id(KEYSPACE, b"", os.fsencode(path))


def rows_of(path: str, data: bytes, *, id: uuid.UUID, origin: Origin) -> Rows:
    """Hash an image and read its header; return its data row and its metadata row."""
    header = read_header(data)
    name = path.partition("/")[0]
    label = LABELS[name]
    values = {
        **{"id": id, "label": label, "or_label": name, "or_split": "", "path": path, "format": header.format},
        **{"width": header.width, "height": header.height, "bytes": len(data), "group_id": None},
        **{"sha256": hashlib.sha256(data).digest(), "source": origin.source},
        **{"ingested_at": origin.ingested_at, "ingest_id": origin.ingest_id, "since": 1},
    }
    both = {**values, "data": data}
    return tuple(both[name] for name in DATA_COLUMNS), tuple(values.get(name) for name in METADATA_COLUMNS)


def arrow_schema_of(table: TableName) -> pa.Schema:
    """The Arrow schema of one of the tables. UUIDs are text."""
    types = {"int": pa.int32(), "bigint": pa.int64(), "blob": pa.binary(), "timestamp": pa.timestamp("us", tz="UTC")}
    return pa.schema([(name, types.get(kind, pa.string())) for name, kind in TABLES[table].items()])


def arrow_rows(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Some of the rows of one table of `Rows` as Arrow."""
    texts = ((str(value) if isinstance(value, uuid.UUID) else value for value in row) for row in rows)
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in texts], schema=schema)


def rows_below(root: str) -> list[Rows]:
    """The rows of all images below a folder, in memory."""
    origin = Origin.of(root)
    rows = [rows_of(path, Path(root, path).read_bytes(), id=our_id(path), origin=origin) for path in list_paths(root)]
    gc.freeze()  # exclude these objects from garbage collection
    return rows


def write_bare(cluster: Cluster, rows: Sequence[Rows], *, in_flight: int, batch: bool) -> tuple[float, float]:
    """Write both rows of each image, ``in_flight`` images at a time; return seconds and CPU seconds."""
    return asyncio.run(_write(cluster, rows, in_flight=in_flight, batch=batch))


async def _write(cluster: Cluster, rows: Sequence[Rows], *, in_flight: int, batch: bool) -> tuple[float, float]:
    import acsylla

    left: Iterator[Rows] = iter(rows)
    async with task_session(cluster) as connected:
        put_data, put_metadata = [await connected.prepare(statement) for statement in INSERTS]
        session: Any = connected._session  # the same connection as an ingest's, without the work around each write

        async def one_after_another() -> None:
            for data, metadata in left:
                if batch:
                    both = acsylla.create_batch_unlogged()
                    both.add_statement(put_data.bind(data))
                    both.add_statement(put_metadata.bind(metadata))
                    await session.execute_batch(both)
                else:
                    await session.execute(put_data.bind(data))
                    await session.execute(put_metadata.bind(metadata))

        started, cpu = time.monotonic(), time.process_time()
        await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
        return time.monotonic() - started, time.process_time() - cpu


def prove(session: Any, *, planned: Planted) -> None:
    """Check that the tables hold what was planned. Raises RuntimeError otherwise.

    ``session`` is a session of the Python driver. The metadata table must have the planned rows (each id once) and
    bytes. A regular sample of the images is read and hashed, and compared with the metadata.
    """
    rows = list(session.execute(f"SELECT id, bytes, sha256 FROM {METADATA}", timeout=120))
    files, size = len({row.id for row in rows}), sum(row.bytes for row in rows)
    if (files, size) != (planned.files, planned.bytes):
        raise RuntimeError(
            f"Wanted {planned.files:,} pictures of {planned.bytes:,} bytes in {METADATA}. Found: {files:,} of {size:,}"
        )
    query = session.prepare(f"SELECT data FROM {DATA} WHERE id = ?")
    for row in rows[:: max(1, len(rows) // _LOOKED_AT)]:
        found = session.execute(query, (row.id,)).one()
        if found is None or hashlib.sha256(found.data).digest() != row.sha256:
            raise RuntimeError(f"Wanted the picture {row.id} in {DATA} as it was read. Found: another, or none.")


def session(name: str, *, master: str, options: Mapping[str, str | int] | None = None) -> SparkSession:
    """A local session with little logging, Spark's own defaults and these options."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # also if the environment is not activated
    builder = SparkSession.builder.master(master).appName(name)
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for option, value in {**quiet, **(options or {})}.items():
        builder = builder.config(option, value)
    return builder.getOrCreate()
