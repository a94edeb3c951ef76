"""What each pair of tables holds: one dataset, with one label type and one numbering of its classes.

The records of a keyspace are one partition of its table ``tables``. An ingest decides on all of them in one lightweight
transaction: if two ingests start at the same time and do not fit together, one of them is refused.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

from etl.cassandra.control import Control
from etl.cassandra.registry import FEATURE_VIEW, label_views_of, registered_views
from etl.cassandra.transactions import TransactionRetries
from etl.errors import ConflictError
from schemas import IdentifierError, TableName
from schemas.tables import ClassNames, LabelType, history_of

_WORDS = {"name": "classes by name", "number": "classes by number", None: "classes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """What a metadata table and its data table hold."""

    metadata_table: TableName
    data_table: TableName
    dataset: str
    label_type: LabelType
    # "name" if classes are numbered by name, "number" if their names are the numbers. None if labels are not classes,
    # or the numbering is not known yet.
    numbering: ClassNames | None = None

    @property
    def content(self) -> str:
        """A short description of the contents."""
        labels = _WORDS[self.numbering] if self.label_type == "int" else f"labels of type {self.label_type}"
        return f"dataset {self.dataset!r}, {labels}"

    @property
    def pair(self) -> str:
        """Both tables."""
        return f"{self.data_table} and {self.metadata_table}"


def check_fits(wanted: TableRecord, /, *, known: Sequence[TableRecord]) -> None:
    """Raise `ConflictError`, which says what options would fit, unless an ingest fits the records of its keyspace. A
    pair of tables holds one dataset, one label type and one numbering. A data table belongs to one metadata table. A
    dataset has one numbering in all tables of a keyspace. A numbering that is not known yet fits.
    """
    for record in known:
        if record.metadata_table == wanted.data_table or record.data_table == wanted.metadata_table:
            raise ConflictError(
                f"Wanted to ingest into {wanted.data_table} as data table and {wanted.metadata_table} as metadata "
                f"table. Found: {record.data_table} is the data table of {record.metadata_table}. Set --data-table "
                f"{record.data_table} --metadata-table {record.metadata_table}, or use other tables."
            )
    for record in known:
        if record.metadata_table == wanted.metadata_table:
            _check_pair(wanted, record, known)
    for record in known:
        if record.metadata_table != wanted.metadata_table and record.data_table == wanted.data_table:
            raise ConflictError(
                f"Wanted a data table for {wanted.metadata_table}. Found: {wanted.data_table} belongs to "
                f"{record.metadata_table}, which holds {record.content}. Set --metadata-table {record.metadata_table}, "
                "or use another data table."
            )
    for record in known:
        if record.dataset == wanted.dataset and not _agree(record.numbering, wanted.numbering):
            own = f"--dataset {quote(f'{wanted.dataset}_by_{wanted.numbering}')}"
            if record.metadata_table == wanted.metadata_table:
                own += f" {_other_tables(wanted, known)}"
            raise ConflictError(
                f"Wanted to ingest {wanted.content}, into {wanted.pair}. Found: {record.pair} hold {record.content}, "
                f"and a dataset has one numbering. Set --class-names {record.numbering} to use it, or ingest into "
                f"another dataset and other tables: {own}."
            )


def _check_pair(wanted: TableRecord, record: TableRecord, known: Sequence[TableRecord]) -> None:
    if record.data_table != wanted.data_table:
        raise ConflictError(
            f"Wanted to ingest into {wanted.pair}. Found: {record.metadata_table} belongs to {record.data_table}. "
            f"Set --data-table {record.data_table}, or use another metadata table."
        )
    advice = f"Use other tables: {_other_tables(wanted, known)}"
    if record.dataset != wanted.dataset:
        advice += f"; or --dataset {quote(record.dataset)}, if these images belong to it"
    elif record.label_type == wanted.label_type:
        return
    raise ConflictError(
        f"Wanted to ingest {wanted.content}, into {wanted.pair}. Found: they hold {record.content}, and a pair of "
        f"tables holds one dataset with labels of one type. {advice}."
    )


def _agree(one: ClassNames | None, other: ClassNames | None) -> bool:
    return one is None or other is None or one == other


def _other_tables(wanted: TableRecord, known: Iterable[TableRecord]) -> str:
    """Options that name tables that no record has."""
    taken = {table for record in known for table in (record.data_table, record.metadata_table)}
    number = 2
    while taken & {_numbered(wanted.data_table, number), _numbered(wanted.metadata_table, number)}:
        number += 1
    data, metadata = _numbered(wanted.data_table, number), _numbered(wanted.metadata_table, number)
    return f"--data-table {data} --metadata-table {metadata}"


def _numbered(table: TableName, number: int) -> TableName:
    return replace(table, table=f"{table.table[:44]}_{number}")


def read_records(control: Control, *, keyspace: str) -> list[TableRecord]:
    """The records of the metadata tables of a keyspace, without those of tables that were dropped since."""
    if control.columns(TableName(keyspace, "tables")) is None:
        return []
    return _records(_rows(control, keyspace), control=control, keyspace=keyspace)


def record_of(control: Control, metadata_table: TableName) -> TableRecord | None:
    """What a metadata table and its data table hold; None if no ingest has recorded it."""
    records = read_records(control, keyspace=metadata_table.keyspace)
    return next((record for record in records if record.metadata_table == metadata_table), None)


def dataset_of(control: Control, metadata_table: TableName) -> str:
    """The dataset that a metadata table holds; its keyspace's name if no ingest has recorded it."""
    record = record_of(control, metadata_table)
    return metadata_table.keyspace if record is None else record.dataset


def check_dataset(control: Control, metadata_table: TableName, *, dataset: str) -> None:
    """Raise `ConflictError` if a metadata table is recorded to hold another dataset."""
    record = record_of(control, metadata_table)
    if record is not None and record.dataset != dataset:
        raise ConflictError(
            f"Wanted dataset {record.dataset!r}, which {metadata_table} holds. Found: {dataset!r}. "
            f"Set --dataset {quote(record.dataset)}, or use the tables of {dataset!r}."
        )


def check_pair(control: Control, *, data_table: TableName, metadata_table: TableName) -> None:
    """Raise `ConflictError` if a data table and a metadata table are recorded, and not as a pair."""
    for record in read_records(control, keyspace=metadata_table.keyspace):
        is_data, is_metadata = record.data_table == data_table, record.metadata_table == metadata_table
        if is_data != is_metadata:
            raise ConflictError(
                f"Wanted a data table and its metadata table. Found: {data_table} and {metadata_table}, but "
                f"{record.data_table} belongs to {record.metadata_table}. Name both of them."
            )


def check_values_table(control: Control, metadata: TableName, values: TableName) -> None:
    """Raise `ConflictError` if the table for the values of a view is one of another metadata table: a view
    ``val_label`` of ``metadata`` and a view ``label`` of ``metadata_val`` would share theirs.
    """
    keyspace = metadata.keyspace
    for record in read_records(control, keyspace=keyspace):
        other = record.metadata_table
        if other == metadata or not values.table.startswith((other.table, record.data_table.table)):
            continue
        taken = {other, record.data_table}
        names: list[Callable[[TableName], TableName]] = [history_of]
        for kind in (FEATURE_VIEW, label_views_of(other)):
            names += [view.table_of for view in registered_views(control, keyspace=keyspace, kind=kind)]
        for name in names:
            with suppress(IdentifierError):  # too long: there is no such table
                taken.add(name(other))
        if values in taken:
            raise ConflictError(
                f"Wanted another name of the view: its values for {metadata} would be in {values}. Found: a table of "
                f"{other} with this name."
            )


def claim_tables(control: Control, wanted: TableRecord, /) -> None:
    """Record what the tables of an ingest hold, unless that is recorded. Tables and ``tables`` are there. Raises
    `ConflictError` as `check_fits` does, `UnreachableError`.
    """
    keyspace = wanted.metadata_table.keyspace
    table = TableName(keyspace, "tables").quoted
    names = "keyspace_name, metadata_table, table_id, data_table, dataset, label_type, numbering"
    insert = f"INSERT INTO {table} ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)"
    update = f"UPDATE {table} SET version = ? WHERE keyspace_name = ? IF version = ?"
    retries = TransactionRetries(f"Wanted to record in {keyspace}.tables at {control.cluster} what {wanted.pair} hold.")
    while True:
        rows = _rows(control, keyspace)
        known = _records(rows, control=control, keyspace=keyspace)
        check_fits(wanted, known=known)
        if wanted in known:
            return
        version = rows[0].version if rows else None
        made = control.tables(keyspace).get(wanted.metadata_table.table)
        content = (str(wanted.data_table), wanted.dataset, wanted.label_type, wanted.numbering)
        statements: list[tuple[str, tuple[Any, ...]]] = [
            (insert, (keyspace, wanted.metadata_table.table, made, *content)),
            (update, ((version or 0) + 1, keyspace, version)),
        ]
        if made is not None and control.apply(statements):  # a node may not know of a new table yet
            return
        retries.wait()


def _rows(control: Control, keyspace: str) -> list[Any]:
    query = f"SELECT * FROM {TableName(keyspace, 'tables').quoted} WHERE keyspace_name = ?"
    return control.execute(query, (keyspace,), is_serial=True)


def _records(rows: Iterable[Any], *, control: Control, keyspace: str) -> list[TableRecord]:
    there = control.tables(keyspace)
    return [
        TableRecord(
            metadata_table=TableName(keyspace, row.metadata_table),
            data_table=TableName.parse(row.data_table),
            dataset=row.dataset,
            label_type=row.label_type,
            numbering=row.numbering,
        )
        for row in rows
        if row.table_id == there.get(row.metadata_table)
    ]
