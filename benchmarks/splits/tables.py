"""The figure of rows that lie in Cassandra: our job over the tables beside the pandas way."""

import os
import shutil
import time
from contextlib import ExitStack
from typing import Any

from pyspark.sql import functions as F

from benchmarks.harness.command import tell
from benchmarks.harness.results import Row
from benchmarks.splits.caches import CLASSES, metadata, plant
from benchmarks.splits.commands import prove_pandas
from benchmarks.splits.figures import FIGURES
from benchmarks.splits.processes import call
from benchmarks.splits.recount import Contents, contents, split_contents
from benchmarks.splits.sizes import Sizes
from benchmarks.splits.stage import RATIOS, SplitStage
from etl.cassandra.tables import uuid_text
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import Columns, TableName
from schemas.tables import Replication, create_classes, create_data, create_keyspace, create_metadata

NUMBERS = (3,)
KEYSPACE = "bench"
DATA, METADATA = TableName(KEYSPACE, "data"), TableName(KEYSPACE, "metadata")
_FORMAT = "org.apache.spark.sql.cassandra"
_FEW_PAIRS, _LONG_SECONDS = 3, 300.0
_QUIET_SECONDS = 300.0
_KEPT_SECONDS = 8.0
"""The connector keeps a session for five."""
# Nothing here is about writing: rows in batches, and no commit log.
_FAST = {
    "spark.cassandra.output.batch.grouping.key": "replica_set",
    "spark.cassandra.output.batch.size.rows": "30",
    "spark.cassandra.output.concurrent.writes": "16",
}


def rows_of_tables(stage: SplitStage, sizes: Sizes) -> dict[int, Row]:
    """Start a server, fill the tables, measure in turn, end it."""
    with ExitStack() as stack:
        tell("server")
        server = Cassandra(stage.folder / "cassandra")
        stack.callback(server.clean)
        server.start()  # not tied to this thread: such a server is compiled for a quick start, not for speed
        stage.spark.conf.set("spark.cassandra.connection.host", ",".join(server.hosts))
        stage.spark.conf.set("spark.cassandra.connection.port", str(server.port))
        with server.session() as control:
            control.execute(create_keyspace(KEYSPACE, Replication.parse("1")))
            control.execute(f"ALTER KEYSPACE {KEYSPACE} WITH durable_writes = false")
            control.execute(create_data(DATA, Columns()))
            control.execute(create_metadata(METADATA, Columns()))
            control.execute(create_classes(KEYSPACE))
            insert = control.prepare(f"INSERT INTO {KEYSPACE}.classes (dataset, name, label) VALUES (?, ?, ?)")
            for number in range(CLASSES):
                control.execute(insert, (KEYSPACE, f"class {number}", number))
            known = fill(stage, sizes.tables)
            settle(control)
        row = _measure(stage, server, known, sizes)
        time.sleep(_KEPT_SECONDS)
    return {3: row}


def fill(stage: SplitStage, rows: int) -> Contents:
    """Write so many rows to the metadata table, with all columns that an ingest writes."""
    tell(f"{rows:,} rows into Cassandra")
    cache = plant(stage.spark, stage.folder / "cache-tables", rows=rows)
    frame = metadata(stage.spark, rows=rows, tasks=8).select(
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
    pictures = frame.select("id", "label", F.lit(b"").alias("data"))  # the job looks whether some are there
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


def _measure(stage: SplitStage, server: Cassandra, known: Contents, sizes: Sizes) -> Row:
    """Our job and the pandas way in turn, once before it counts."""
    pairs, warm = sizes.table_pairs, 1 if sizes.warm else 0
    pickled = stage.folder / "split.pickle"
    ours: list[float] = []
    others: list[float] = []

    def measure_ours() -> None:
        run = stage.ours((DATA, METADATA), rows=known.rows)
        if not ours:
            split_contents(stage.out, len(RATIOS), known=known)
        ours.append(run.seconds)
        tell(f"{len(ours) - warm}: ours: {ours[-1]:.1f} s")

    def measure_pandas() -> None:
        stage.tidy()
        answer = call("splits.frames:split_table", str(pickled), server.hosts[0], server.port, KEYSPACE).answer
        prove_pandas(answer, known)
        pickled.unlink()
        others.append(answer["seconds"])
        tell(f"{len(others) - warm}: pandas: {others[-1]:.1f} s")

    started = time.monotonic()
    for turn in range(warm + pairs):
        if turn >= warm + _FEW_PAIRS and time.monotonic() - started > _LONG_SECONDS:
            tell("no more of these pairs: they take long")
            break
        for work in (measure_ours, measure_pandas) if turn % 2 == 0 else (measure_pandas, measure_ours):
            work()
    note = f"{known.rows:,} rows of 12 columns, the server on the same 2 cores; ours with positions, Parquet and "
    note += (
        "report, Spark started before; pandas with ids as UUID objects and a pickle, imports done before; in seconds"
    )
    if len(ours) < warm + pairs:
        note += f"; {len(ours) - warm} pairs instead of {pairs}, which would take too long"
    return FIGURES.ratio_row(3, ours[warm:], others[warm:], note=note)
