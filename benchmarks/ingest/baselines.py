"""Other ways to write a tree of images to the same two tables.

By hand, one at a time; the usual Spark way; and the Spark connector. All read the files, hash them, read their headers
and write the same columns as an ingest.
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
    INSERTS,
    TABLES,
    Origin,
    arrow_rows,
    arrow_schema_of,
    list_paths,
    our_id,
    rows_of,
)
from etl.cassandra.tables import append_rows
from etl.ingest.writing.tasks import task_count
from etl.sources.plan import SourcePlan
from etl.sources.trees import list_tree
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import TableName

# Executors cannot import the benchmarks, so tasks carry what they need of these modules.
for _module in (pictures, picture_rows, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]

IMAGES_UNTIL_BLOCK = 32
_ARROW_ROWS = 16
CORES = 2


def one_at_a_time(spark: SparkSession, root: str, *, server: Cassandra, limit: int) -> None:
    """Read an image, insert its data row, insert its metadata row, and repeat, with the Python driver's defaults."""
    from cassandra.cluster import Cluster

    with Cluster(server.hosts, port=server.port) as cluster, cluster.connect() as session:
        put_data, put_metadata = map(session.prepare, INSERTS)
        origin = Origin.of(root)
        for path in list_paths(root)[:limit]:
            data, metadata = rows_of(path, Path(root, path).read_bytes(), id=our_id(path), origin=origin)
            session.execute(put_data, data)
            session.execute(put_metadata, metadata)


def usual_way(spark: SparkSession, root: str, *, server: Cassandra, limit: int) -> None:
    """The driver lists the files; executors read them and write them with the Python driver, with new random ids."""
    paths = list_paths(root)[:limit]
    write = partial(_write_partition, root=root, hosts=server.hosts, port=server.port, origin=Origin.of(root))
    spark.sparkContext.parallelize(paths).foreachPartition(write)


def _write_partition(paths: Iterable[str], *, root: str, hosts: Sequence[str], port: int, origin: Origin) -> None:
    from cassandra.cluster import Cluster

    with Cluster(hosts, port=port) as cluster, cluster.connect() as session:
        put_data, put_metadata = map(session.prepare, INSERTS)
        paths = iter(paths)
        while group := list(itertools.islice(paths, IMAGES_UNTIL_BLOCK)):
            waiting = []
            for path in group:
                data, metadata = rows_of(path, Path(root, path).read_bytes(), id=uuid.uuid4(), origin=origin)
                waiting.append(session.execute_async(put_data, data))
                waiting.append(session.execute_async(put_metadata, metadata))
            for future in waiting:
                future.result()


def connector(spark: SparkSession, root: str, *, server: Cassandra, limit: int) -> None:
    """Our listing, read and hashed in Python, written by the Spark connector: first the data, then the metadata.

    Spark computes the rows again for the second write, but does not send the images to the JVM again.
    """
    listing = list_tree(spark, root, plan=SourcePlan(address=root), dataset=picture_rows.KEYSPACE)
    some = list_paths(root)[:limit]
    size = sum(Path(root, path).stat().st_size for path in some)
    tasks = task_count(rows=len(some), size=size, cores=CORES)
    entries = listing.entries.where(F.col("path") <= F.lit(some[-1].encode())).select("path", "place")
    origin = Origin.of(root)
    for table in TABLES:
        append_rows(_rows(entries.repartition(tasks), table=table, origin=origin), table=table)


_NAMES = {pa.int32(): "INT", pa.int64(): "BIGINT", pa.binary(): "BINARY", pa.string(): "STRING"}


def _rows(entries: DataFrame, *, table: TableName, origin: Origin) -> DataFrame:
    schema = arrow_schema_of(table)
    kinds = ", ".join(f"{field.name} {_NAMES.get(field.type, 'TIMESTAMP')}" for field in schema)
    read = partial(_read_batches, schema=schema, is_data=table == DATA, origin=origin)
    return entries.mapInArrow(read, kinds)


def _read_batches(
    batches: Iterable[pa.RecordBatch], *, schema: pa.Schema, is_data: bool, origin: Origin
) -> Iterator[pa.RecordBatch]:
    """Turn rows of (path, number) into rows of one table, in small batches, because images fill the memory."""
    entries = (entry for batch in batches for entry in batch.to_pylist())
    while group := list(itertools.islice(entries, _ARROW_ROWS)):
        rows = []
        for entry in group:
            name = entry["path"].decode()
            data = Path(entry["place"].decode()).read_bytes()
            rows.append(rows_of(name, data, id=our_id(name), origin=origin)[0 if is_data else 1])
        yield arrow_rows(rows, schema)
