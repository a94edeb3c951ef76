"""The fixture of the features benchmark: one server and one Spark session on two cores, and ways to fill tables."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness.cassandra import embedded
from benchmarks.harness.hashes import hash_digits
from benchmarks.harness.picture_rows import KEYSPACE, session
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import TableName

CORES = 2
HEAP = "4g"
_FORMAT = "org.apache.spark.sql.cassandra"
_QUIET_SECONDS = 300.0
_FLUSH_MS = 3_000
_IDS = (11, 12)
"""Seeds of the two hashes that an id is made of."""
# Filling is not measured: rows in batches, and no commit log.
_FAST = {
    "spark.cassandra.output.batch.grouping.key": "replica_set",
    "spark.cassandra.output.concurrent.writes": "16",
}


@dataclass(frozen=True)
class FeatureFixture:
    """A server, a session of it, and a Spark session."""

    folder: Path
    spark: SparkSession
    server: Cassandra
    control: Any

    def fill(self, table: TableName, rows: DataFrame, *, batch: int = 30) -> None:
        """Append rows to a table, this many at a time: the server refuses batches of large rows."""
        target = {
            "keyspace": table.keyspace,
            "table": table.table,
            "spark.cassandra.output.batch.size.rows": str(batch),
        }
        rows.write.format(_FORMAT).options(**target, **_FAST).mode("append").save()

    def settle(self) -> None:
        """Wait until the server has nothing left to compact."""
        deadline, quiet = time.monotonic() + _QUIET_SECONDS, 0
        while quiet < 3 and time.monotonic() < deadline:
            quiet = 0 if list(self.control.execute("SELECT * FROM system_views.sstable_tasks")) else quiet + 1
            time.sleep(1)
        os.sync()

    def files(self, table: TableName) -> dict[str, tuple[int, int]]:
        """The time of the last change and the size of each SSTable file of a table, by path."""
        files = self.server.folder.glob(f"node1/**/{table.keyspace}/{table.table}-*/*.db")
        found = {}
        for path in files:
            with suppress(FileNotFoundError):  # compacted meanwhile
                found[str(path)] = (path.stat().st_mtime_ns, path.stat().st_size)
        return found

    def flush(self, table: TableName) -> dict[str, tuple[int, int]]:
        """Wait until all rows of a table are in files, and return the files."""
        self.control.execute(f"ALTER TABLE {table} WITH memtable_flush_period_in_ms = {_FLUSH_MS}")
        deadline, since, files = time.monotonic() + _QUIET_SECONDS, time.monotonic(), self.files(table)
        while time.monotonic() < min(deadline, since + 5 * _FLUSH_MS / 1000):
            time.sleep(1)
            self.settle()
            if (found := self.files(table)) != files:
                since, files = time.monotonic(), found
        return files


@contextmanager
def spark_session(folder: Path, options: Mapping[str, str | int] | None = None) -> Iterator[SparkSession]:
    """A session on two cores whose files are below a folder."""
    ours = {"spark.driver.memory": HEAP, "spark.local.dir": str(folder / "spark")}
    spark = session("benchmark of features", master=f"local[{CORES}]", options={**ours, **(options or {})})
    spark.sparkContext.setLogLevel("ERROR")  # the server warns of the large batches that fill tables
    try:
        yield spark
    finally:
        spark.sparkContext.setLogLevel("OFF")  # otherwise the connector logs that its server has gone
        spark.stop()


@contextmanager
def feature_fixture(folder: Path, *statements: str) -> Iterator[FeatureFixture]:
    """Start a server with a keyspace without commit log, run statements there, and start Spark."""
    no_log = f"ALTER KEYSPACE {KEYSPACE} WITH durable_writes = false"
    with embedded(folder / "cassandra", KEYSPACE, no_log, *statements) as server:
        place: dict[str, str | int] = {"host": ",".join(server.hosts), "port": server.port}
        options = {f"spark.cassandra.connection.{name}": value for name, value in place.items()}
        with spark_session(folder, options) as spark, server.session() as control:
            yield FeatureFixture(folder, spark, server, control)


def numbers(spark: SparkSession, rows: int) -> DataFrame:
    """Rows of ``number``, from 0."""
    return spark.range(0, rows, 1, 4 * CORES).withColumnRenamed("id", "number")


def id_of(number: Column) -> Column:
    """A pseudo-random id of 16 bytes from a number."""
    return F.unhex(F.concat(*(hash_digits(F.lit(seed).cast("long"), number) for seed in _IDS)))


def seconds_of(work: Callable[[], object]) -> float:
    """The seconds that a piece of work takes."""
    started = time.monotonic()
    work()
    return time.monotonic() - started
