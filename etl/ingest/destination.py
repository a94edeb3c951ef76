"""The tables that an ingest writes to, and its class numbers."""

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote

from etl.cassandra.control import Control
from etl.errors import ConflictError, SourceError, TableError
from etl.ingest.plan import IngestPlan, Tables
from etl.pictures.plan import MASK_FRAME
from etl.sources.labels.values import class_numbers
from etl.tables.class_numbers import class_names, take_numbers
from etl.tables.current_form import check_current, not_migrated
from etl.tables.runs import expiring, recorded_runs
from etl.tables.sequence import Run, take_run
from etl.tables.table_records import TableRecord, check_fits, claim_tables, read_records
from formats.sizes import counted
from schemas import Columns, TableName
from schemas.tables import (
    MAX_METADATA,
    Replication,
    create_history,
    create_keyspace,
    defined_columns,
    history_of,
    lacking,
)

log = logging.getLogger(__name__)
OTHER_TOOLS = (
    "You cannot append to tables that other tools created. You can read and split them with cache_rows.py, split.py, "
    "shard.py and the loader, with --id-col, --label-col and --data-col."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The tables of an ingest, with what they contain already."""

    record: TableRecord  # of the tables once the ingest has begun
    names: frozenset[str]  # the class names of the source
    order: Sequence[str]  # the same by their numbers, if the source has such names
    known: Mapping[str, int]  # the classes of the dataset that have numbers already
    numbers: Mapping[str, int] | None  # the numbers if the names are numbers; None if classes get numbers by name

    def begin(self, control: Control, *, plan: IngestPlan, kind: str, ingest_id: uuid.UUID) -> "StartedRun":
        """Record the contents of the tables, which must exist, register the run, and assign class numbers. Raises
        `ConflictError` if a concurrent run makes this one impossible, and `EtlError` for clocks that differ too much.
        """
        claim_tables(control, self.record)
        run = take_run(
            control,
            table=self.record.metadata_table,
            kind=kind,
            dataset=self.record.dataset,
            source=plan.source_name,
            ingest_id=ingest_id,
            ttl=plan.ttl or None,
        )
        log.info("this is %s", run)
        numbers = self.numbers
        if numbers is None:
            keyspace, dataset = self.record.metadata_table.keyspace, self.record.dataset
            taken = take_numbers(control, keyspace=keyspace, dataset=dataset, names=self.names, order=self.order)
            numbers = {name: taken[name] for name in self.names}
        return StartedRun(run, numbers)


@dataclass(frozen=True, slots=True)
class StartedRun:
    """The position of a run in the sequence, and its class numbers by name."""

    run: Run
    numbers: Mapping[str, int]


def check_fits_early(control: Control, *, plan: IngestPlan) -> None:
    """Raise `ConflictError` before the source is listed, if the tables have another dataset or label type."""
    wanted = _record(plan)
    keyspace, of_pictures = wanted.metadata_table.keyspace, wanted.data_table.keyspace
    known = read_records(control, keyspace=keyspace)
    if of_pictures != keyspace:
        others = read_records(control, keyspace=of_pictures)
        known += [record for record in others if record.data_table == wanted.data_table]
    check_fits(wanted, known=known)


def find_destination(
    control: Control, *, plan: IngestPlan, names: Collection[str], order: Sequence[str] = ()
) -> Destination:
    """Check that an ingest of these classes matches the contents of the tables. Writes nothing. Raises `ConflictError`,
    `SourceError`, and `TableError` for tables that have rows and no record.
    """
    keyspace = plan.tables.metadata.keyspace
    known_classes = class_names(control, keyspace=keyspace, dataset=plan.dataset)
    has_rows = not is_empty(control, plan=plan)  # before the records: another ingest makes one before it writes rows
    known = read_records(control, keyspace=keyspace)
    record, numbers = fitting_record(plan=plan, names=names, classes=known_classes, known=known)
    if all(one.metadata_table != record.metadata_table for one in known):
        if has_rows:
            raise not_migrated(
                f"{record.metadata_table} has rows and no record of what it holds: it is of an earlier version, or "
                "restored from a backup",
                metadata=record.metadata_table,
                more=f" -d {record.data_table}"
                + ("" if record.dataset == keyspace else f" --dataset {quote(record.dataset)}"),
            )
        if not plan.overwrite and _has_rows(control, record.data_table, columns=plan.columns):
            raise ConflictError(
                f"Wanted an empty data table for {record.metadata_table}, which has no rows. Found: images in "
                f"{record.data_table}, of another metadata table or of an interrupted ingest. Use other tables, "
                "with --data-table and --metadata-table, or set --overwrite to write into this one."
            )
    return Destination(
        record=record,
        names=frozenset(names),
        order=order,
        known=known_classes,
        numbers=numbers,
    )


def fitting_record(
    *, plan: IngestPlan, names: Collection[str], classes: Collection[str], known: Sequence[TableRecord]
) -> tuple[TableRecord, Mapping[str, int] | None]:
    """The record of tables with images of these classes, and the class numbers if the names are numbers. Raises
    `ConflictError` and `SourceError` if the tables hold something else, such as classes with another numbering.
    """
    record = _record(plan)
    numbers: Mapping[str, int] | None = {}
    if plan.source.label_type == "int":
        numbers = class_numbers(names, plan=plan.source)
        if numbers is not None and classes:
            raise SourceError(
                f"Wanted class names, because {plan.tables.classes} numbers the classes of {plan.dataset!r} by name. "
                f"Found: numbers in {plan.source.labels or plan.source.address}, which mean something else. Pass a "
                "table of names with --labels, or use another --dataset and other tables, with --data-table and "
                "--metadata-table. If they are the names of these classes, set --class-names name."
            )
        record = replace(record, numbering="name" if numbers is None else "number")
    check_fits(record, known=known)
    return record, numbers


def _record(plan: IngestPlan) -> TableRecord:
    return TableRecord(
        metadata_table=plan.tables.metadata,
        data_table=plan.tables.data,
        dataset=plan.dataset,
        label_type=plan.source.label_type,
    )


_OURS = {"source", "ingest_id", "sha256"}  # columns of a metadata table that only an ingest creates


def check_tables(control: Control, *, plan: IngestPlan) -> None:
    """Raise `TableError`, with all problems, unless the tables have the right columns or can be created."""
    absent, differing = [], []
    metadata, records = plan.tables.metadata, plan.tables.records
    for table, statement in plan.tables.definitions.items():
        found, defined = control.columns(table), defined_columns(statement)
        if found is None:
            if plan.create and table == metadata and len(table.table) > MAX_METADATA:
                raise TableError(
                    f"Wanted a name of at most {MAX_METADATA} characters for a new metadata table, because its other "
                    f"tables are named after it. Found: {table.table}, with {len(table.table)}. Use a shorter name."
                )
            absent += [] if plan.create else [table]
            continue
        if table == metadata and not _OURS & found.keys():
            missing = ", ".join(name for name in defined if name not in {*found, *lacking(found, statement)})
            raise TableError(
                f"Wanted tables that an ingest created. Found: {table}, which another tool created (it has no "
                f"{missing}). {OTHER_TOOLS} Use other tables here; the ingest creates them."
            )
        differing += [f"no column {name} {kind} in {table}" for name, kind in defined.items()
                      if name not in {*found, *lacking(found, statement)}]  # fmt: skip
        differing += [f"{name} {found[name]} instead of {kind} in {table}" for name, kind in defined.items()
                      if found.get(name, kind) != kind]  # fmt: skip
        if not differing:
            check_current(table, found, definition=statement, metadata=metadata)
    if not absent and not differing:
        return
    mend = "Use other tables, or leave out --no-create."
    if differing:
        mend = f"Use other tables, with --data-table and --metadata-table. {OTHER_TOOLS}"
    elif all(table in records for table in absent):
        mend = f"Leave out --no-create, or create them: {' '.join(_one_line(records[table]) for table in absent)}"
    found_wrong = "; ".join([*(f"no table {table}" for table in absent), *differing])
    raise TableError(f"Wanted tables that an ingest can write to. Found: {found_wrong}. {mend}")


def _one_line(statement: str) -> str:
    return " ".join(line.strip() for line in statement.splitlines() if not line.startswith("--"))


def create_tables(control: Control, *, plan: IngestPlan) -> None:
    """Create the keyspaces and tables that are missing."""
    there = {row.keyspace_name for row in control.schema("SELECT keyspace_name FROM system_schema.keyspaces")}
    for keyspace in sorted({plan.tables.data.keyspace, plan.tables.metadata.keyspace} - there):
        replication = Replication.parse(plan.replication or "1", datacenter=control.datacenter)
        log.info("create keyspace %s with %s", keyspace, replication.cql)
        control.define(create_keyspace(keyspace, replication))
    _create(control, plan.tables.definitions)
    if plan.keep_replaced:
        control.create_table(*plan.tables.kept)


def check_ttl(control: Control, *, plan: IngestPlan) -> None:
    """Raise `ConflictError` if the images of this source expire, and the plan says nothing of a time to live, or if it
    continues an ingest with another one.
    """
    metadata = plan.tables.metadata
    runs = [run for run in recorded_runs(control, metadata) if run.writes_images]
    continued = next((run for run in runs if run.ingest_id == plan.ingest_id), None)
    if plan.ingest_id is not None and continued is not None and continued.ttl != (plan.ttl or 0):
        known, given = (f"--ttl {ttl or 'none'}" for ttl in (continued.ttl, plan.ttl))
        raise ConflictError(
            f"Wanted {known}, with which ingest {plan.ingest_id} has begun. Found: {given}. Set {known}, or use "
            f"--resume with {given} instead of --ingest-id: it writes images again that have another end."
        )
    last = next((run for run in runs if run.source == plan.source_name), None)
    if last is not None and last.ttl and plan.ttl is None:
        raise ConflictError(
            f"Wanted --ttl for {plan.source_name}, whose images in {metadata} expire. Found: run {last.sequence} had "
            f"--ttl {last.ttl}, and this one has none. Set --ttl {last.ttl}, or --ttl none for images that do not "
            "expire."
        )


def check_mask_frame(control: Control, *, plan: IngestPlan) -> None:
    """Raise `ConflictError` if the last run of this source took its masks for another frame than this one."""
    metadata, name, frame = plan.tables.metadata, plan.source.name, plan.recode.mask_frame
    if plan.source.label_type != "blob" or frame is None:
        return
    runs = (run for run in recorded_runs(control, metadata) if run.writes_images)
    options = (run.source.removeprefix(f"{name}?").split("&") for run in runs if run.source.startswith(f"{name}?"))
    frames = (option.partition("=")[2] for one in options for option in one if option.startswith(MASK_FRAME))
    last = next(frames, frame)
    if last != frame:
        raise ConflictError(
            f"Wanted --mask-frame {last}, with which masks of {name} are in {metadata}. Found: --mask-frame {frame}. "
            f"Set --mask-frame {last}. If it is wrong for these images, add --overwrite to --mask-frame {frame}, which "
            "also replaces those of them that the tables have."
        )


def create_records(control: Control, *, tables: Tables) -> None:
    """Create the tables of records unless they exist."""
    _create(control, tables.records)


def _create(control: Control, definitions: Mapping[TableName, str]) -> None:
    for table, statement in definitions.items():
        control.create_table(table, statement)


def create_history_table(control: Control, *, plan: IngestPlan) -> None:
    """Create the history of the metadata table unless it exists. Raises `TableError` if it must not be created."""
    history, statement = history_of(plan.tables.metadata), create_history(plan.tables.metadata)
    if not plan.create and control.columns(history) is None:
        raise TableError(
            f"Wanted the table {history}, to keep the labels and hashes of images that this ingest replaces. Found: "
            f"no such table. Leave out --no-create, or create it: {_one_line(statement)}"
        )
    control.create_table(history, statement)


def check_kept_table(control: Control, *, plan: IngestPlan) -> None:
    """Raise `TableError` unless the table of replaced bytes has the right columns or can be created, and
    `ConflictError` if images of these tables expire. Does nothing for a plan that does not keep replaced bytes.
    """
    if not plan.keep_replaced:
        return
    metadata, (table, statement) = plan.tables.metadata, plan.tables.kept
    if ttls := expiring(recorded_runs(control, metadata)):
        raise ConflictError(
            f"Wanted --keep-replaced for images that do not expire. Found: {counted(len(ttls), 'ingest')} into "
            f"{metadata} with --ttl."
        )
    found = control.columns(table)
    if found is None and not plan.create:
        raise TableError(
            f"Wanted the table {table}, for --keep-replaced. Found: no such table. Leave out --no-create, or create "
            f"it: {_one_line(statement)}"
        )
    if found is not None and found != defined_columns(statement):
        has = ", ".join(f"{name} {kind}" for name, kind in sorted(found.items()))
        raise TableError(
            f"Wanted {table} to be free for the replaced bytes of {plan.tables.data}. Found: a table with the columns "
            f"{has}. Use another data table."
        )


def is_empty(control: Control, *, plan: IngestPlan) -> bool:
    """Whether the metadata table has no rows."""
    return not _has_rows(control, plan.tables.metadata, columns=plan.columns)


def _has_rows(control: Control, table: TableName, *, columns: Columns) -> bool:
    if control.columns(table) is None:
        return False
    return bool(control.execute(f'SELECT "{columns.id}" FROM {table.quoted} LIMIT 1'))
