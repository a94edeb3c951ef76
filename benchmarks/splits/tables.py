"""The figure of rows in Cassandra: our job over the tables, compared with the pandas baseline."""

import os
import shutil
import time
from typing import Any

from pyspark.sql import functions as F

from benchmarks.harness.cassandra import embedded
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.recount import Contents, contents, split_contents
from benchmarks.harness.results import Row, tell
from benchmarks.splits.caches import CLASSES, metadata, plant
from benchmarks.splits.commands import prove_pandas
from benchmarks.splits.figures import FIGURES
from benchmarks.splits.fixture import RATIOS, SplitFixture
from benchmarks.splits.processes import call
from benchmarks.splits.sizes import Sizes
from etl.cassandra.tables import uuid_text
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import Columns, TableName
from schemas.tables import create_data, create_metadata, create_shared

NUMBERS = (3,)
KEYSPACE = "bench"
DATA, METADATA = TableName(KEYSPACE, "data"), TableName(KEYSPACE, "metadata")
_FORMAT = "org.apache.spark.sql.cassandra"
_LONG_SECONDS = 300.0
_QUIET_SECONDS = 300.0
_KEPT_SECONDS = 8.0
"""The connector keeps a session for five seconds after its last use."""
# Writing is not measured: rows in batches, and no commit log.
_FAST = {
    "spark.cassandra.output.batch.grouping.key": "replica_set",
    "spark.cassandra.output.batch.size.rows": "30",
    "spark.cassandra.output.concurrent.writes": "16",
}


def rows_of_tables(fixture: SplitFixture, sizes: Sizes) -> dict[int, Row]:
    """Start a server, fill the tables, measure alternately, and end the server."""
    tell("server")
    tables = [create_data(DATA, Columns()), create_metadata(METADATA, Columns()), create_shared("classes", KEYSPACE)]
    no_log = f"ALTER KEYSPACE {KEYSPACE} WITH durable_writes = false"
    with embedded(fixture.folder / "cassandra", KEYSPACE, no_log, *tables) as server:
        fixture.spark.conf.set("spark.cassandra.connection.host", ",".join(server.hosts))
        fixture.spark.conf.set("spark.cassandra.connection.port", str(server.port))
        with server.session() as control:
            insert = control.prepare(f"INSERT INTO {KEYSPACE}.classes (dataset, name, label) VALUES (?, ?, ?)")
            for number in range(CLASSES):
                control.execute(insert, (KEYSPACE, f"class {number}", number))
            known = fill(fixture, sizes.tables)
            settle(control)
        row = _measure(fixture, server, known, sizes)
        time.sleep(_KEPT_SECONDS)
    return {3: row}


def fill(fixture: SplitFixture, rows: int) -> Contents:
    """Write rows to the metadata table, with all columns that an ingest writes."""
    tell(f"{rows:,} rows into Cassandra")
    cache = plant(fixture.spark, fixture.folder / "cache-tables", rows=rows)
    frame = metadata(fixture.spark, rows=rows, tasks=8).select(
        uuid_text("id").alias("id"),
        "label",
        F.concat(F.lit("class "), F.col("label")).alias("or_label"),
        F.lit("train").alias("or_split"),
        F.concat(F.lit("class "), F.col("label"), F.lit("/"), F.hex("id"), F.lit(".jpg")).alias("path"),
        F.lit("JPEG").alias("format"),
        F.lit(500).alias("width"),
        F.lit(375).alias("height"),
        F.lit(110_000).cast("long").alias("bytes"),
        F.unhex(F.sha2("id", 256)).alias("sha256"),
        F.lit("file:///data").alias("source"),
        F.current_timestamp().alias("ingested_at"),
    )
    pictures = frame.select("id", "label", F.lit(b"").alias("data"))  # for the job's check that some ids exist
    for name, rows_of_table in ((METADATA, frame), (DATA, pictures)):
        table = {"keyspace": name.keyspace, "table": name.table}
        rows_of_table.write.format(_FORMAT).options(**table, **_FAST).mode("append").save()
    known = contents(cache.files)
    shutil.rmtree(cache.folder)
    return known


def settle(control: Any) -> None:
    """Wait until the server has nothing left to compact."""
    deadline = time.monotonic() + _QUIET_SECONDS
    quiet = 0
    while quiet < 3 and time.monotonic() < deadline:
        quiet = 0 if list(control.execute("SELECT * FROM system_views.sstable_tasks")) else quiet + 1
        time.sleep(1)
    os.sync()


def _measure(fixture: SplitFixture, server: Cassandra, known: Contents, sizes: Sizes) -> Row:
    """Measure our job and the pandas baseline alternately, after a warm-up run of each."""
    pickled = fixture.folder / "split.pickle"

    def measure_ours() -> float:
        run = fixture.ours((DATA, METADATA), rows=known.rows)
        split_contents(fixture.out, len(RATIOS), known=known)
        return run.seconds

    def measure_pandas() -> float:
        fixture.tidy()
        answer = call("splits.frames:split_table", str(pickled), server.hosts[0], server.port, KEYSPACE).answer
        prove_pandas(answer, known)
        pickled.unlink()
        return float(answer["seconds"])

    contenders = {"ours": measure_ours, "pandas": measure_pandas}
    in_turn(1 if sizes.warm else 0, contenders)
    runs = in_turn(
        sizes.table_pairs, contenders, told=lambda name, seconds: f"{name}: {seconds:.1f} s", enough=_LONG_SECONDS
    )
    note = f"{known.rows:,} rows of 12 columns, the server on the same 2 cores; ours with positions, Parquet and "
    note += "report, Spark started before; pandas with ids as UUID objects and a pickle, imports done before; in "
    note += "seconds"
    if (pairs := len(runs["ours"])) < sizes.table_pairs:
        note += f"; {pairs} pairs instead of {sizes.table_pairs}, which would take too long"
    return FIGURES.ratio_row(3, *runs.values(), note=note)
