"""Migration of tables of earlier versions: only what is missing is added, so a killed run is finished by the next one.

The steps are in this order: tables and columns; a run whose write time is later than all writes, if none is recorded;
the record of what the tables hold; then the values of rows. Each is found again from what the tables lack.
"""

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control, check_columns
from etl.cassandra.tables import read_table
from etl.errors import TableError
from etl.ingest.plan import Tables
from etl.migration.adoption import examined
from etl.migration.filling import LACKS_CHECKSUM, LACKS_SINCE, Filling, fill
from etl.migration.plan import Definition, MigrationPlan, missing_definitions
from etl.secrets import secrets_on_executors
from etl.tables.metadata_table import MetadataTable, history_in, label_type_of
from etl.tables.runs import STARTED, recorded_runs, sequences_by_ingest
from etl.tables.sequence import Run, finish_run, take_lone_run
from etl.tables.table_records import (
    TableRecord,
    check_dataset,
    check_fits,
    check_pair,
    claim_tables,
    read_records,
)
from formats.checksums import COLUMN as CHECKSUM
from formats.sizes import counted
from schemas import Columns, TableName
from schemas.tables import create_history, create_metadata, create_shared, is_ingested

log = logging.getLogger(__name__)
KIND = "migrate"
"""The kind of runs that a migration records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """What a migration has done, or with ``dry_run`` would do, and what it leaves."""

    metadata_tables: list[str]
    steps: list[str]
    left: list[str]
    dry_run: bool
    seconds: float

    def __str__(self) -> str:
        if not self.steps:
            done = [f"{', '.join(self.metadata_tables)}: nothing to do"]
        elif self.dry_run:
            done = [*(f"would {step}" for step in self.steps), "nothing was changed (--dry-run)"]
        else:
            done = [*self.steps, f"migrated {', '.join(self.metadata_tables)} in {self.seconds:.1f} s"]
        return "\n".join([*self.left, *done])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A metadata table and its data table, and what they lack, but for definitions."""

    record: TableRecord
    is_recorded: bool
    has_runs: bool
    open_runs: tuple[Run, ...]  # those that killed migrations have not finished
    rows: int  # without the run since which an image is there
    checksums: int  # rows without a checksum

    @property
    def name(self) -> TableName:
        """The metadata table."""
        return self.record.metadata_table


def run(spark: SparkSession, *, plan: MigrationPlan) -> MigrationReport:
    """Bring tables into their current form. Raises `TableError` and `ConflictError`, before anything is changed, for
    tables that no ingest created, and `UnreachableError`.
    """
    begun = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(secrets_on_executors(spark))
        control = stack.enter_context(Control.from_spark(spark))
        names = _metadata_tables(control, plan)
        known = [_record(control, name, plan=plan) for name in names]
        definitions = _definitions(control, [record for record, _ in known], columns=plan.columns)
        pairs = [_examine(spark, control, record, is_recorded=is_there, plan=plan) for record, is_there in known]
        steps = [str(one) for one in definitions] + [step for pair in pairs for step in _steps(pair, plan=plan)]
        left = [line for pair in pairs for line in _left(pair, plan=plan)]
        if not plan.dry_run:
            for one in definitions:
                _define(control, one)
            for pair in pairs:
                left += _carry_out(spark, control, pair, plan=plan)
    return MigrationReport(
        metadata_tables=[str(name) for name in names],
        steps=steps,
        left=left,
        dry_run=plan.dry_run,
        seconds=time.monotonic() - begun,
    )


def _metadata_tables(control: Control, plan: MigrationPlan) -> list[TableName]:
    """The metadata tables to migrate. Raises `TableError` if no ingest created them."""
    if (name := plan.metadata_table) is not None:
        check_columns(control, name, columns=[plan.columns.id])
        if not is_ingested(control.columns(name) or {}):
            raise TableError(
                f"Wanted a metadata table that an ingest created. Found: {name}, which another tool created. It needs "
                "no migration: jobs read tables of other tools as they are, with --id-col, --label-col and --data-col."
            )
        return [name]
    keyspace = plan.keyspace or ""
    tables = [TableName(keyspace, name) for name in control.tables(keyspace)]
    if not (found := [table for table in tables if is_ingested(control.columns(table) or {})]):
        raise TableError(f"Wanted a keyspace with tables that an ingest created. Found: none in {keyspace}.")
    return sorted(found, key=str)


def _record(control: Control, name: TableName, *, plan: MigrationPlan) -> tuple[TableRecord, bool]:
    """What a metadata table holds, and whether that is recorded; otherwise, its numbering is not known yet. Raises
    `ConflictError`, and `TableError` if its data table is not known.
    """
    known = read_records(control, keyspace=name.keyspace)
    data = plan.data_table
    for record in known:
        if record.metadata_table == name:
            check_dataset(control, name, dataset=plan.dataset or record.dataset)
            check_pair(control, data_table=data or record.data_table, metadata_table=name)
            return record, True
    if data is None or (fields := control.columns(data)) is None:
        raise TableError(
            f"Wanted the data table of {name}, which no ingest has recorded. Found: "
            f"{'none' if data is None else f'no table {data}'}. Run `imagestrata migrate -m {name} -d KEYSPACE.TABLE` "
            "with the table that has its images. Nothing was changed."
        )
    wanted = TableRecord(
        metadata_table=name,
        data_table=data,
        dataset=plan.dataset or name.keyspace,
        label_type=label_type_of(fields.get(plan.columns.label), control.columns(name) or {}),
    )
    if data.keyspace != name.keyspace:
        known += [one for one in read_records(control, keyspace=data.keyspace) if one.data_table == data]
    check_fits(wanted, known=known)
    return wanted, False


def _definitions(control: Control, records: Sequence[TableRecord], *, columns: Columns) -> list[Definition]:
    wanted = {}
    for record in records:
        name, keyspace = record.metadata_table, record.metadata_table.keyspace
        wanted[name] = create_metadata(name, columns, label_type=record.label_type)
        if (history := history_in(control, name)) is not None:
            wanted[history] = create_history(name)
        for shared in ("classes", "quarantine", "tables", "ingests"):
            wanted[TableName(keyspace, shared)] = create_shared(shared, keyspace)
    return missing_definitions({table: control.columns(table) for table in wanted}, wanted)


def _examine(
    spark: SparkSession, control: Control, record: TableRecord, *, is_recorded: bool, plan: MigrationPlan
) -> Pair:
    """Find what is missing in a pair of tables. Reads its metadata with Spark; writes nothing."""
    name = record.metadata_table
    if not is_recorded:
        record = examined(spark, control, wanted=record, columns=plan.columns)
        check_fits(record, known=read_records(control, keyspace=name.keyspace))
    runs = TableName(name.keyspace, "ingests")
    there = control.columns(runs) or {}
    query = f"SELECT sequence FROM {runs.quoted} WHERE table_name = ? LIMIT 1"
    begun = recorded_runs(control, name) if "newest" in there else []  # no migration begins before it adds that column
    (counts,) = (
        _rows(spark, control, name, columns=plan.columns)
        .agg(F.count_if(F.expr(LACKS_SINCE)).alias("rows"), F.count_if(F.expr(LACKS_CHECKSUM)).alias("checksums"))
        .collect()
    )
    return Pair(
        record=record,
        is_recorded=is_recorded,
        has_runs=bool(there) and bool(control.execute(query, (name.table,), is_serial=True)),
        open_runs=tuple(
            Run(table=name, sequence=one.sequence, clock=one.clock)
            for one in begun
            if one.kind == KIND and one.state == STARTED
        ),
        rows=counts["rows"],
        checksums=counts["checksums"],
    )


def _rows(spark: SparkSession, control: Control, name: TableName, *, columns: Columns) -> DataFrame:
    """The columns of rows that say what they lack."""
    there = control.columns(name) or {}
    added = [one for one in ("since", CHECKSUM) if one in there]
    rows = read_table(spark, name, columns=[columns.id, "ingest_id", "sha256", "bytes", *added])
    rows = rows.withColumnRenamed(columns.id, "id")
    return rows.withColumns({one: F.lit(None) for one in ("since", CHECKSUM) if one not in there})


def _steps(pair: Pair, *, plan: MigrationPlan) -> list[str]:
    steps = []
    if not pair.has_runs:
        steps.append(f"record a run on {pair.name}, later than all writes to it")
    if pair.open_runs:
        steps.append(f"finish {counted(len(pair.open_runs), 'interrupted migration')} of {pair.name}")
    if not pair.is_recorded:
        steps.append(f"record that {pair.record.pair} hold {pair.record.content}")
    if pair.rows:
        steps.append(f"fill in since of {counted(pair.rows, 'row')} of {pair.name}")
    if pair.checksums and plan.checksums:
        steps.append(f"read {counted(pair.checksums, 'image')} of {pair.name} and store their checksums")
    return steps


def _left(pair: Pair, *, plan: MigrationPlan) -> list[str]:
    if plan.checksums or not pair.checksums:
        return []
    return [
        f"left: {counted(pair.checksums, 'row')} of {pair.name} have no checksum, so that trainings read them from a "
        "quorum; --checksums reads their images once and stores them"
    ]


def _define(control: Control, definition: Definition) -> None:
    log.info("%s", definition)
    try:
        control.define(definition.statement)
    except TableError:
        if not {*definition.columns} <= (control.columns(definition.table) or {}).keys():  # added by another run
            raise


def _after_drops(control: Control, name: TableName) -> int:
    """The first write time, in microseconds, after columns were dropped that the table has again; 0 if none were."""
    query = "SELECT dropped_time FROM system_schema.dropped_columns WHERE keyspace_name = ? AND table_name = ?"
    times = [row.dropped_time.replace(tzinfo=UTC) for row in control.schema(query, (name.keyspace, name.table))]
    begun = datetime(1970, 1, 1, tzinfo=UTC)
    return max(((time - begun) // timedelta(milliseconds=1) * 1000 + 1000 for time in times), default=0)


def _carry_out(spark: SparkSession, control: Control, pair: Pair, *, plan: MigrationPlan) -> list[str]:
    """Add what is missing in a pair of tables, and return what it leaves out. Raises `TableError` if rows lack
    ``since`` after that.
    """
    columns, record = plan.columns, pair.record
    taken = list(pair.open_runs)
    if not pair.has_runs:
        table = MetadataTable.open(spark, control, pair.name, columns=columns)
        taken.append(take_lone_run(table, kind=KIND, dataset=record.dataset))
    if not pair.is_recorded:
        claim_tables(control, record)
    left = []
    if pair.rows or (pair.checksums and plan.checksums):
        rows = _rows(spark, control, pair.name, columns=columns)
        wanted = f"{LACKS_SINCE} OR {LACKS_CHECKSUM}" if plan.checksums else LACKS_SINCE
        filling = Filling(
            cluster=control.located,
            tables=Tables(record.data_table, pair.name, columns, record.label_type),
            runs={str(one): run for one, run in sequences_by_ingest(recorded_runs(control, pair.name)).items()},
            checksums=plan.checksums,
            earliest=_after_drops(control, pair.name),
        )
        done = fill(rows.where(wanted), filling=filling)
        log.info("%s: filled in since of %s rows, %s checksums", pair.name, f"{done.rows:,}", f"{done.checksums:,}")
        if missed := rows.where(LACKS_SINCE).count():
            raise TableError(
                f"Wanted since in all rows of {pair.name}. Found: {counted(missed, 'row')} without it, which a job of "
                "an earlier version has written in the meantime. End such jobs, and run this again."
            )
        if done.unlike:
            left.append(
                f"left: {counted(done.unlike, 'row')} of {pair.name} without a checksum, because the stored image is "
                "missing or has another SHA-256; verify.py names them"
            )
    for one in taken:
        finish_run(control, one)
    return left
