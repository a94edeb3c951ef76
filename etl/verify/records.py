"""What is recorded of the tables that are verified: their contents, their runs, and the numbers of classes."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from etl.ingest.class_agreement import ClassAgreement, counts_of
from etl.ingest.destination import fitting_record
from etl.ingest.listed_images import ListedImages
from etl.ingest.plan import IngestPlan
from etl.ingest.stale_rows import splits_of
from etl.ingest.writing.image_rows import METADATA_COLUMNS
from etl.tables.class_numbers import class_names, take_numbers
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import recorded_runs
from etl.tables.table_records import read_records
from etl.verify.comparison import Rules
from etl.verify.expected import Expectation
from etl.verify.plan import VerifyPlan
from formats.sizes import counted
from schemas import TableName

LOST_NUMBER = "class number lost"
CHANGED_NUMBER = "class number changed"
OF_CLASSES = (LOST_NUMBER, CHANGED_NUMBER)
"""The kinds of problems of the table of classes."""

_LISTED = {"label", "or_label", "or_split", "path", "source"}
"""The columns that a source determines without reading images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What is recorded of two tables."""

    table: MetadataTable
    # What their rows say about the numbers of classes; None unless classes are numbered by name.
    agreement: ClassAgreement | None
    rules: Rules  # what follows for the comparison of rows

    def class_problems(self) -> dict[str, list[str]]:
        """The problems of the table of classes by kind, a line for each class."""
        if self.agreement is None:
            return {}
        agreement, lost = self.agreement, []
        classes, dataset = TableName(self.table.name.keyspace, "classes"), _text(self.table.dataset)
        for name, number in agreement.lost.items():
            lost.append(f"{name!r} (expected {number}, as in its {counted(agreement.rows[name], 'row')}, found null)")
        for name, numbers in agreement.doubtful.items():
            rows = f"{counted(agreement.rows[name], 'row')} with {', '.join(map(str, numbers))}"
            lost.append(f"{name!r} ({rows}: restore the table from a backup)")
        changed = []
        for name, number in agreement.changed.items():
            if name not in agreement.single:
                update = f"UPDATE {classes} SET label = {number} WHERE dataset = {dataset}"
                changed.append(
                    f"{name!r} (expected {number}, as in its {counted(agreement.rows[name], 'row')}, found "
                    f"{agreement.known[name]}; to correct it: {update} AND name = {_text(name)};)"
                )
        return {kind: lines for kind, lines in zip(OF_CLASSES, (lost, changed), strict=True) if lines}

    def restore(self) -> int:
        """Restore the numbers of classes that lost them, as far as their rows agree on one. Returns how many."""
        lost, table = {} if self.agreement is None else self.agreement.lost, self.table
        if lost:
            keyspace = table.name.keyspace
            take_numbers(table.control, keyspace=keyspace, dataset=table.dataset, names=lost, lost=lost)
        return len(lost)

    def blocks(self, names: Collection[str]) -> bool:
        """Whether images of these classes cannot be written again, because the numbers of their classes are wrong."""
        if self.agreement is None:
            return False
        return not {*self.agreement.doubtful, *self.agreement.changed}.difference(self.agreement.single).isdisjoint(
            names
        )


def stored_columns(table: MetadataTable, /) -> list[str]:
    """The columns of the metadata table that are compared, as far as it has them."""
    there, label = table.fields, table.columns.label
    wanted = [label if name == "label" else name for name in (*METADATA_COLUMNS, "ingest_id")]
    is_other = {label: "int", "labels": "frozen<list<int>>"}
    return [name for name in wanted if name in there and there[name] == is_other.get(name, there[name])]


def records_of(table: MetadataTable, *, plan: VerifyPlan, metadata: DataFrame) -> Records:
    """Read what is recorded of the tables. ``metadata`` has rows of `problems.stored_metadata`. Runs Spark."""
    control, keyspace, record = table.control, table.name.keyspace, table.record
    label_type = table.label_type(plan.data_table) if record is None else record.label_type
    columns = {"label" if name == plan.columns.label else name for name in stored_columns(table)}
    is_ours = record is not None or plan.ingest is not None or label_type == "int"
    if is_ours and plan.columns.label in (control.columns(plan.data_table) or {}):
        columns.add("data_label")
    if record is None:  # a column of this name is another tool's
        columns.discard("xxhash64")
    agreement = None
    if record is not None and record.label_type == "int" and record.numbering == "name":
        counts = counts_of(metadata)  # before the numbers: an ingest takes them before it writes
        known = class_names(control, keyspace=keyspace, dataset=record.dataset)
        agreement = ClassAgreement.of(counts, known=known)
    # not those of the opened table: a run that has begun since may have written some of the rows
    runs = [run for run in recorded_runs(control, table.name) if run.writes_images]
    ingests: dict[str, frozenset[str]] = {}
    for run in runs:
        if run.ingest_id is not None:
            ingests[str(run.ingest_id)] = ingests.get(str(run.ingest_id), frozenset()) | {run.source}
    rules = Rules(
        data_table=str(plan.data_table),
        metadata_table=str(table.name),
        label=plan.columns.label,
        columns=frozenset(columns),
        dataset=None if record is None else record.dataset,
        label_type=label_type,
        numbering=None if record is None else record.numbering,
        numbers={} if agreement is None else agreement.numbers,
        ingests={ingest: sources - {""} for ingest, sources in ingests.items()},
        first_run=min((run.clock for run in runs), default=None),
    )
    return Records(table=table, agreement=agreement, rules=rules)


def with_source(
    records: Records, ingest: IngestPlan, *, plan: VerifyPlan, images: ListedImages
) -> tuple[Rules, Expectation]:
    """What follows for the comparison with a source. Raises `EtlError` for classes that do not fit the tables."""
    control = records.table.control
    numbers = dict(records.rules.numbers)
    names = images.counts.classes
    if ingest.source.label_type == "int":
        keyspace = ingest.tables.metadata.keyspace
        known = class_names(control, keyspace=keyspace, dataset=ingest.dataset)
        recorded = read_records(control, keyspace=keyspace)
        _, own = fitting_record(plan=ingest, names=names, classes=known, known=recorded)
        numbers |= own if own is not None else {name: number for name, number in known.items() if name not in numbers}
    expectation = Expectation.of(
        ingest, images, numbers={name: numbers[name] for name in names if name in numbers}, check=plan.check
    )
    rules = replace(
        records.rules,
        numbers=numbers,
        source=ingest.source_name,
        splits=splits_of(ingest.source, found=images.counts.images_by_split) if ingest.source.splits else frozenset(),
        compared=_compared(ingest, expectation=expectation),
    )
    return rules, expectation


def _compared(plan: IngestPlan, *, expectation: Expectation) -> frozenset[str]:
    """The columns that the source determines, as far as the kind of check shows them."""
    columns = set(_LISTED)
    if plan.source.group_column is not None:
        columns.add("group_id")
    if expectation.has_sizes:
        columns.add("bytes")
    if expectation.preparation is not None:
        columns |= {"format", "width", "height", "bytes", "sha256", "data_label"}
        columns |= {"labels"} if plan.source.label_type == "multi" else set()
    if plan.source.label_type == "int":
        columns.add("data_label")
    return frozenset(columns)


def _text(value: str) -> str:
    """A text as CQL writes it."""
    return "'" + value.replace("'", "''") + "'"
