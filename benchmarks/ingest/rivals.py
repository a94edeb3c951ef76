"""Other ways to write a tree of pictures into the same two tables.

One at a time, by hand; the usual Spark way; and the Spark connector. All read the files, hash them, look at their
headers and write the same columns as an ingest does.
"""

import itertools
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness import picture_rows, pictures
from benchmarks.harness.picture_rows import (
    DATA,
    DATA_COLUMNS,
    METADATA,
    METADATA_COLUMNS,
    Origin,
    insert,
    list_paths,
    our_id,
    rows_of,
)
from etl.cassandra.tables import append_rows
from etl.sources.trees import list_tree
from schemas import TableName

# Executors do not find the benchmarks: what tasks need of these modules travels with them.
for _module in (pictures, picture_rows, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]

IMAGES_UNTIL_BLOCK = 32
_ARROW_ROWS = 16

Hosts = Sequence[str]


def one_at_a_time(root: str, *, hosts: Hosts, port: int, limit: int) -> None:
    """Read a picture, insert its data row, insert its metadata row, and so on: the Python driver as it comes."""
    from cassandra.cluster import Cluster

    with Cluster(hosts, port=port) as cluster, cluster.connect() as session:
        put_data = session.prepare(insert(DATA, DATA_COLUMNS))
        put_metadata = session.prepare(insert(METADATA, METADATA_COLUMNS))
        origin = Origin.of(root)
        for path in list_paths(root)[:limit]:
            data, metadata = rows_of(path, Path(root, path).read_bytes(), id=our_id(path), origin=origin)
            session.execute(put_data, data)
            session.execute(put_metadata, metadata)


def usual_way(spark: SparkSession, root: str, *, hosts: Hosts, port: int, limit: int) -> None:
    """The driver lists, executors write what they read through the Python driver, new random ids for all."""
    paths = list_paths(root)[:limit]
    write = partial(_write_partition, root=root, hosts=hosts, port=port, origin=Origin.of(root))
    spark.sparkContext.parallelize(paths).foreachPartition(write)


def _write_partition(paths: Iterable[str], *, root: str, hosts: Hosts, port: int, origin: Origin) -> None:
    from cassandra.cluster import Cluster

    with Cluster(hosts, port=port) as cluster, cluster.connect() as session:
        put_data = session.prepare(insert(DATA, DATA_COLUMNS))
        put_metadata = session.prepare(insert(METADATA, METADATA_COLUMNS))
        paths = iter(paths)
        while group := list(itertools.islice(paths, IMAGES_UNTIL_BLOCK)):
            waiting = []
            for path in group:
                data, metadata = rows_of(path, Path(root, path).read_bytes(), id=uuid.uuid4(), origin=origin)
                waiting.append(session.execute_async(put_data, data))
                waiting.append(session.execute_async(put_metadata, metadata))
            for future in waiting:
                future.result()


def connector(spark: SparkSession, root: str, *, tasks: int, limit: int) -> None:
    """Our listing, read and hashed in Python, written by the Spark connector: the data, then the metadata.

    The second write computes its rows again, as Spark does; but without sending the pictures to the JVM once more.
    """
    listing = list_tree(spark, root, dataset=picture_rows.KEYSPACE, splits=[b""], or_split=b"", by_folder=True)
    last = list_paths(root)[:limit][-1]
    entries = listing.entries.where(F.col("path") <= F.lit(last.encode())).select("path", "place").repartition(tasks)
    origin = Origin.of(root)
    for table, columns in ((DATA, DATA_COLUMNS), (METADATA, METADATA_COLUMNS)):
        append_rows(_rows(entries, table=table, columns=columns, origin=origin), table=table)


_TYPES = {
    **{"label": pa.int32(), "width": pa.int32(), "height": pa.int32(), "bytes": pa.int64()},
    **{"sha256": pa.binary(), "data": pa.binary(), "ingested_at": pa.timestamp("us", tz="UTC")},
}
_NAMES = {pa.int32(): "INT", pa.int64(): "BIGINT", pa.binary(): "BINARY", pa.string(): "STRING"}


def _rows(entries: DataFrame, *, table: TableName, columns: Sequence[str], origin: Origin) -> DataFrame:
    schema = pa.schema([(name, _TYPES.get(name, pa.string())) for name in columns])
    kinds = ", ".join(f"{field.name} {_NAMES.get(field.type, 'TIMESTAMP')}" for field in schema)
    read = partial(_read_batches, schema=schema, is_data=table == DATA, origin=origin)
    return entries.mapInArrow(read, kinds)


def _read_batches(
    batches: Iterable[pa.RecordBatch], *, schema: pa.Schema, is_data: bool, origin: Origin
) -> Iterator[pa.RecordBatch]:
    """Rows of (path, place) in, rows of one table out, few at a time: pictures fill the memory."""
    entries = (
        entry for batch in batches for entry in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    while group := list(itertools.islice(entries, _ARROW_ROWS)):
        rows = []
        for path, place in group:
            name = path.decode()
            data, metadata = rows_of(name, Path(place.decode()).read_bytes(), id=our_id(name), origin=origin)
            rows.append(
                [str(value) if isinstance(value, uuid.UUID) else value for value in (data if is_data else metadata)]
            )
        columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
