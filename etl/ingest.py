"""The verbs of an ingest: which tables, which files, which are in the way, what became of them."""

import logging
import math
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from etl.cassandra import Control, uuid_bytes
from etl.errors import ConflictError, TableError
from etl.image_writer import OUTCOMES, WriteOrder, write_images
from etl.ingest_plan import IngestPlan
from schemas.tables import Replication, create_keyspace, defined_columns

log = logging.getLogger(__name__)

_TASK_ROWS = 5_000
_TASK_BYTES = 512 << 20
_SHOWN = 5


def check_tables(control: Control, *, plan: IngestPlan) -> None:
    """Raise `TableError`, with all that is wrong, unless the tables are there as we write them, or may be created."""
    wrong = []
    for table, statement in plan.definitions.items():
        found = control.columns(table)
        if found is None:
            if not plan.create:
                wrong.append(f"no table {table}")
            continue
        for name, kind in defined_columns(statement).items():
            if name not in found:
                wrong.append(f"no column {name} {kind} in {table}")
            elif found[name] != kind:
                wrong.append(f"{name} {found[name]} instead of {kind} in {table}")
    if wrong:
        mend = "Name others, or add the columns." if plan.create else "Name others, or leave out --no-create."
        raise TableError(f"Wanted tables that an ingest can write to. Found: {'; '.join(wrong)}. {mend}")


def create_tables(control: Control, *, plan: IngestPlan) -> None:
    """Create the keyspaces and tables that are missing."""
    there = {row.keyspace_name for row in control.execute("SELECT keyspace_name FROM system_schema.keyspaces")}
    for keyspace in sorted({plan.data_table.keyspace, plan.metadata_table.keyspace} - there):
        replication = Replication.parse(plan.replication or "1", datacenter=control.datacenter)
        log.info("create keyspace %s with %s", keyspace, replication.cql)
        control.define(create_keyspace(keyspace, replication))
    for table, statement in plan.definitions.items():
        if control.columns(table) is None:
            log.info("create table %s", table)
            control.define(statement)


def is_empty(control: Control, *, plan: IngestPlan) -> bool:
    """Whether there is no metadata row yet, of any source."""
    table = plan.metadata_table
    if control.columns(table) is None:
        return True
    return not control.execute(f'SELECT "{plan.columns.id}" FROM {table.quoted} LIMIT 1')


def task_count(*, rows: int, size: int, cores: int) -> int:
    """How many tasks write so many rows of so many bytes: whole rounds over the cores, none too large."""
    wanted = max(1, math.ceil(rows / _TASK_ROWS), math.ceil(size / _TASK_BYTES))
    return max(1, min(rows, math.ceil(wanted / cores) * cores))


def known_images(metadata: DataFrame, *, plan: IngestPlan) -> DataFrame:
    """Metadata rows as id (16 bytes), label, or_split, bytes, sha256, source, ingest_id, whatever the table's names."""
    return metadata.select(
        uuid_bytes(plan.columns.id).alias("id"),
        F.col(plan.columns.label).alias("label"),
        "or_split",
        "bytes",
        "sha256",
        "source",
        "ingest_id",
    )


def in_the_way(files: DataFrame, *, known: DataFrame, source: str) -> DataFrame:
    """The files whose ids are taken by images of another source: or_split, path, source."""
    others = known.where(~F.col("source").eqNullSafe(source)).select("id", "source")
    return files.where(F.col("reason").isNull()).join(others, on="id", how="inner").select("or_split", "path", "source")


def refuse(conflicts: DataFrame, *, plan: IngestPlan) -> None:
    """Raise `ConflictError`, with their number and the first few, if any file is in the way."""
    count = conflicts.count()
    if not count:
        return
    first = conflicts.orderBy("or_split", "path").limit(_SHOWN).collect()
    more = ", ..." if count > _SHOWN else ""
    shown = ", ".join(f"{bytes(row.path).decode('utf-8', 'backslashreplace')} from {row.source}" for row in first)
    raise ConflictError(
        f"Wanted to write images from {plan.source_name} to {plan.metadata_table}. Found: {count:,} of them there "
        f"already from another source: {shown}{more}. Name another --dataset, or --overwrite."
    )


def already_there(known: DataFrame, *, files: DataFrame, ingest_id: str) -> DataFrame:
    """The files that an interrupted run of the same ingest has written, as the rows of `OUTCOMES`."""
    done = known.where(F.col("ingest_id") == ingest_id).join(files.select("id"), on="id", how="left_semi")
    return done.select(
        "id",
        "label",
        "or_split",
        "bytes",
        "sha256",
        F.lit("already there").alias("stage"),
        F.lit(None).cast("string").alias("reason"),
    )


def write(files: DataFrame, *, order: WriteOrder, tasks: int) -> DataFrame:
    """Write the files, spread evenly over so many tasks; gives the rows of `OUTCOMES`."""
    spread = files.repartition(tasks, "id").sortWithinPartitions("or_split", "path")
    return spread.select("id", "or_split", "path", "bytes", "reason").mapInArrow(
        partial(write_images, order=order), OUTCOMES
    )


def tally(outcomes: DataFrame, *, seeds: tuple[int, int]) -> DataFrame:
    """Rows, bytes and two sums of row hashes, by or_split, stage and kind of reason."""
    return outcomes.groupBy("or_split", "stage", F.substring_index("reason", ": ", 1).alias("kind")).agg(
        F.count("*").alias("files"),
        F.sum("bytes").alias("bytes"),
        *(_hash_sum(seed).alias(name) for seed, name in zip(seeds, ("first", "second"), strict=True)),
    )


def _hash_sum(seed: int) -> Column:
    """The sum of row hashes, exact: a sum of longs wraps or fails, as Spark is configured."""
    return F.sum(F.xxhash64(F.lit(seed).cast("long"), "id", "label", "sha256").cast("decimal(20,0)"))
