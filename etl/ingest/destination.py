"""Where an ingest writes to: its tables, what they may hold, and the numbers of its classes."""

import logging
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from etl.cassandra.class_numbers import class_names, take_numbers
from etl.cassandra.control import Control
from etl.cassandra.table_records import TableRecord, check_fits, claim_tables, read_records
from etl.errors import ConflictError, SourceError, TableError
from etl.ingest.old_tables import OTHER_TOOLS, examine
from etl.ingest.plan import IngestPlan, Tables
from etl.ingest.sequence import Run, take_run
from etl.sources.labels import all_integers, class_numbers_of, warn_of_integers
from schemas import Columns, TableName
from schemas.tables import Replication, create_keyspace, defined_columns

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The tables of an ingest, after a look at what is there."""

    record: TableRecord
    """What they hold once the ingest has begun."""
    names: frozenset[str]
    """The names of its classes."""
    known: Mapping[str, int]
    """The classes that the dataset has numbered by name before."""
    numbers: Mapping[str, int] | None
    """Their numbers, if the names are numbers; None if they are to be numbered by name."""
    latest_write: int
    """The latest write, in microseconds, to rows that no run has recorded; 0 if there are none."""

    def begin(self, control: Control, *, plan: IngestPlan, kind: str, ingest_id: uuid.UUID) -> "StartedRun":
        """Record what the tables hold, take a place in the sequence of their runs, and take class numbers.

        The tables are there. Raises `ConflictError` if another run began at the same time and this one does not fit,
        `EtlError` for clocks that disagree, `UnreachableError`.
        """
        claim_tables(control, self.record)
        run = take_run(
            control,
            table=self.record.metadata_table,
            kind=kind,
            dataset=self.record.dataset,
            source=plan.source_name,
            ingest_id=ingest_id,
            after=self.latest_write,
        )
        log.info("this is %s", run)
        return StartedRun(run, number_classes(control, plan=plan, names=self.names, numbers=self.numbers))


@dataclass(frozen=True, slots=True)
class StartedRun:
    """The place of a run in its sequence, and its class numbers by name."""

    run: Run
    numbers: Mapping[str, int]


def check_fits_early(control: Control, *, plan: IngestPlan) -> None:
    """Raise `ConflictError` if a source need not be listed: the tables hold another dataset or other labels."""
    wanted = _record(plan)
    keyspace, of_pictures = wanted.metadata_table.keyspace, wanted.data_table.keyspace
    known = read_records(control, keyspace=keyspace)
    if of_pictures != keyspace:
        others = read_records(control, keyspace=of_pictures)
        known += [record for record in others if record.data_table == wanted.data_table]
    check_fits(wanted, known=known)


def find_destination(spark: SparkSession, control: Control, *, plan: IngestPlan, names: Collection[str]) -> Destination:
    """Look whether an ingest of these classes fits what the tables hold; writes nothing.

    Tables with rows and without a record are read whole, once: Spark runs. Raises `ConflictError`, `SourceError` and
    `TableError` for what does not fit.
    """
    is_numbered = plan.source.label_type == "int"
    known_classes = class_names(control, keyspace=plan.tables.metadata.keyspace, dataset=plan.dataset)
    numbers = own_numbers(plan=plan, names=names, known=known_classes) if is_numbered else {}
    record = _record(plan)
    if is_numbered:
        record = replace(record, numbering="name" if numbers is None else "number")
    known = read_records(control, keyspace=record.metadata_table.keyspace)
    check_fits(record, known=known)
    written = 0
    if all(one.metadata_table != record.metadata_table for one in known):
        if not is_empty(control, plan=plan):
            log.info("look at the rows of %s, which no ingest has recorded", record.metadata_table)
            old = examine(spark, control, wanted=record, columns=plan.columns)
            check_fits(record, known=[*known, old.record])
            written = old.latest_write
        elif not plan.overwrite and _has_rows(control, record.data_table, columns=plan.columns):
            raise ConflictError(
                f"Wanted a data table for {record.metadata_table}, which has no rows. Found: pictures in "
                f"{record.data_table}, of another metadata table or of an ingest that did not end. Use other tables, "
                "with --data-table and --metadata-table, or say --overwrite to write into this one."
            )
    return Destination(
        record=record, names=frozenset(names), known=known_classes, numbers=numbers, latest_write=written
    )


def _record(plan: IngestPlan) -> TableRecord:
    return TableRecord(
        metadata_table=plan.tables.metadata,
        data_table=plan.tables.data,
        dataset=plan.dataset,
        label_type=plan.source.label_type,
    )


_OURS = {"source", "ingest_id", "sha256"}
"""Columns of a metadata table that only an ingest makes."""


def check_tables(control: Control, *, plan: IngestPlan) -> None:
    """Raise `TableError`, with all that is wrong, unless the tables are there as we write them, or may be created."""
    absent, differing = [], []
    for table, statement in plan.tables.definitions.items():
        found = control.columns(table)
        if found is None:
            absent += [] if plan.create else [table]
            continue
        missing = [name for name in defined_columns(statement) if name not in found]
        if table == plan.tables.metadata and not _OURS & found.keys():
            raise TableError(
                f"Wanted tables that an ingest made. Found: {table}, which another tool made (it has no "
                f"{', '.join(missing)}). {OTHER_TOOLS} Use other tables here, which the ingest creates itself."
            )
        for name, kind in defined_columns(statement).items():
            if name not in found:
                differing.append(f"no column {name} {kind} in {table}")
            elif found[name] != kind:
                differing.append(f"{name} {found[name]} instead of {kind} in {table}")
    if not absent and not differing:
        return
    mend = "Name others, or leave out --no-create."
    records = plan.tables.records
    if differing:
        mend = f"Use other tables, with --data-table and --metadata-table. {OTHER_TOOLS}"
    elif all(table in records for table in absent):  # tables of a version that had none
        mend = f"Leave out --no-create, or create them: {' '.join(_one_line(records[table]) for table in absent)}"
    found_wrong = "; ".join([*(f"no table {table}" for table in absent), *differing])
    raise TableError(f"Wanted tables that an ingest can write to. Found: {found_wrong}. {mend}")


def _one_line(statement: str) -> str:
    return " ".join(line.strip() for line in statement.splitlines() if not line.startswith("--"))


def create_tables(control: Control, *, plan: IngestPlan) -> None:
    """Create the keyspaces and tables that are missing."""
    there = {row.keyspace_name for row in control.execute("SELECT keyspace_name FROM system_schema.keyspaces")}
    for keyspace in sorted({plan.tables.data.keyspace, plan.tables.metadata.keyspace} - there):
        replication = Replication.parse(plan.replication or "1", datacenter=control.datacenter)
        log.info("create keyspace %s with %s", keyspace, replication.cql)
        control.define(create_keyspace(keyspace, replication))
    _create(control, plan.tables.definitions)


def create_records(control: Control, *, tables: Tables) -> None:
    """Create the tables of what is recorded, where an earlier version has made none."""
    _create(control, tables.records)


def _create(control: Control, definitions: Mapping[TableName, str]) -> None:
    for table, statement in definitions.items():
        if control.columns(table) is None:
            log.info("create table %s", table)
            control.define(statement)


def is_empty(control: Control, *, plan: IngestPlan) -> bool:
    """Whether there is no metadata row yet, of any source."""
    return not _has_rows(control, plan.tables.metadata, columns=plan.columns)


def _has_rows(control: Control, table: TableName, *, columns: Columns) -> bool:
    if control.columns(table) is None:
        return False
    return bool(control.execute(f'SELECT "{columns.id}" FROM {table.quoted} LIMIT 1'))


def own_numbers(*, plan: IngestPlan, names: Collection[str], known: Collection[str]) -> dict[str, int] | None:
    """The numbers of classes whose names are numbers; None if they are to be numbered by name.

    ``known`` are the names that the dataset has numbered before. Raises `SourceError` for a name that should be a
    number and is none, and for numbers where classes have been numbered by name.
    """
    wanted = plan.source.class_names
    tables = plan.tables
    if wanted is None and (plan.source.labels or "").lower().endswith(".txt"):
        wanted = "number"
    if wanted is None and all_integers(names):
        if plan.source.has_numbers:
            wanted = "number"
        else:
            warn_of_integers(names)
    if wanted == "number":
        if known:
            raise SourceError(
                f"Wanted classes by name: {tables.classes} has numbered those of {plan.dataset!r}. Found: numbers in "
                f"{plan.source.address}, which mean something else. Give a table of names with --labels, or make it "
                "another --dataset in other tables, with --data-table and --metadata-table."
            )
        return class_numbers_of(names)
    return None


def number_classes(
    control: Control, *, plan: IngestPlan, names: Collection[str], numbers: Mapping[str, int] | None
) -> Mapping[str, int]:
    """The number of each class name: those of `own_numbers`, or taken from the table of classes, which is there."""
    if numbers is not None:
        return numbers
    numbers = take_numbers(control, keyspace=plan.tables.metadata.keyspace, dataset=plan.dataset, names=names)
    return {name: numbers[name] for name in names}
