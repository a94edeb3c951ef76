"""The options of a migration, and the statements that it needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from etl.errors import TableError
from schemas import Columns, TableName
from schemas.tables import add_columns, defined_columns, lacking


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan:
    """The options of one migration: of ``metadata_table``, or of all tables in ``keyspace`` that ingests created.
    ``data_table`` and ``dataset`` are for a metadata table without a record; the dataset is its keyspace by default.
    ``checksums`` reads the images that have none. ``dry_run`` changes nothing. Raises ValueError for options that
    contradict each other.
    """

    metadata_table: TableName | None = None
    keyspace: str | None = None
    data_table: TableName | None = None
    dataset: str | None = None
    columns: Columns = field(default_factory=Columns)
    checksums: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if (self.metadata_table is None) == (self.keyspace is None):
            found = "neither" if self.keyspace is None else "both"
            raise ValueError(f"wanted -m KS.TABLE, or -k KEYSPACE for all of its tables. Found: {found}")
        if self.metadata_table is None and (self.data_table is not None or self.dataset is not None):
            raise ValueError("wanted -d and --dataset with -m KS.TABLE, the metadata table. Found: -k")
        if self.data_table is not None and self.data_table == self.metadata_table:
            raise ValueError(f"wanted two tables, for data and for metadata. Found: {self.data_table} for both")


@dataclass(frozen=True, slots=True)
class Definition:
    """A statement that creates a table or adds columns to it."""

    table: TableName
    statement: str
    columns: tuple[str, ...] = ()  # that it adds; none if it creates the table

    def __str__(self) -> str:
        if not self.columns:
            return f"create the table {self.table}"
        return f"add {', '.join(self.columns)} to {self.table}"


def missing_definitions(
    found: Mapping[TableName, Mapping[str, str] | None], wanted: Mapping[TableName, str]
) -> list[Definition]:
    """The statements that bring tables into the form of ``wanted``, the statements that define them. ``found`` has
    their columns, None for a table that does not exist. Raises `TableError` for all columns that no earlier version
    lacked, or that have another type: no ingest created them.
    """
    definitions, differing = [], []
    for table, statement in wanted.items():
        columns = found[table]
        if columns is None:
            definitions.append(Definition(table, statement))
            continue
        added = lacking(columns, statement)
        for name, kind in defined_columns(statement).items():
            if name not in {*columns, *added}:
                differing.append(f"no column {name} {kind} in {table}")
            elif columns.get(name, kind) != kind:
                differing.append(f"{name} {columns[name]} instead of {kind} in {table}")
        if added:
            definitions.append(Definition(table, add_columns(table, added), tuple(added)))
    if differing:
        raise TableError(
            f"Wanted tables that an ingest created. Found: {'; '.join(differing)}. If your columns have other names, "
            "set --id-col, --label-col and --data-col. Nothing was changed."
        )
    return definitions
