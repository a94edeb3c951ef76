"""The options of an ingest, validated before anything starts."""

import os
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from etl.pictures.plan import Check, Recode
from etl.sources.plan import SourcePlan, is_local
from schemas import Columns, TableName
from schemas.names import hidden_character
from schemas.tables import (
    LabelType,
    Replication,
    create_data,
    create_kept,
    create_metadata,
    create_shared,
    defined_columns,
    history_of,
    kept_of,
)

MAX_TTL = 630_720_000  # the longest time to live that Cassandra accepts, in seconds: 20 years
OWN_TABLES = ("classes", "quarantine", "tables", "ingests", "registry")
"""Reserved names of tables in the keyspace of a metadata table."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The number of files that may be rejected, or their share of all listed files."""

    count: int | None = None
    percent: float | None = None

    @classmethod
    def parse(cls, text: str) -> "Tolerance":
        """Parse ``N`` or ``P%``. Raises ValueError."""
        number, sign, rest = text.partition("%")
        try:
            if sign and not rest and 0 <= float(number) <= 100:
                return cls(percent=float(number))
            if not sign and int(number) >= 0:
                return cls(count=int(number))
        except ValueError:
            pass
        raise ValueError(f"Wanted a number of files, or a percentage such as 0.5%. Found: {text!r}")

    def allowed(self, files: int) -> int:
        """The number of files that may be rejected, out of ``files``."""
        if self.count is not None:
            return self.count
        return files if self.percent is None else int(files * self.percent / 100)

    def limit(self, files: int) -> str:
        """The limit in words, such as ``at most 1% of 30 files rejected, which is none``."""
        allowed = self.allowed(files)
        if self.percent is None:
            return f"at most {allowed:,} of {files:,} files rejected"
        return (
            f"at most {self.percent:g}% of {files:,} files rejected, which is {f'{allowed:,}' if allowed else 'none'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPlan:
    """The options of one ingest.

    Images are read from ``source`` and written to two tables, or to files in the folder ``target``. ``dataset``
    defaults to the keyspace of the metadata table. ``create`` creates missing keyspaces and tables, with
    ``replication`` (default: one replica). ``overwrite`` replaces rows from other sources. ``resume`` skips images that
    exist already; an ``ingest_id`` continues that ingest, and also skips them. ``recode`` is how images are converted,
    ``check`` how they are checked, and ``tolerance`` how many may be rejected. ``list_stale`` lists the stale rows of
    this source; ``prune`` removes them, and ``prune_count`` confirms their number. ``restore_deleted`` takes images in
    that were deleted from the tables on request. ``keep_replaced`` keeps the bytes that images of other bytes replace.
    ``ttl`` is the number of seconds after which the images expire: 0 for never, None if nothing was said.
    Raises ValueError for invalid options.
    """

    source: SourcePlan
    data_table: TableName | None = None
    metadata_table: TableName | None = None
    target: str | None = None
    dataset: str = ""
    columns: Columns = field(default_factory=Columns)
    create: bool = True
    overwrite: bool = False
    resume: bool = False
    ingest_id: uuid.UUID | None = None
    replication: str | None = None
    recode: Recode = field(default_factory=Recode)
    check: Check = "header"
    tolerance: Tolerance = field(default_factory=Tolerance)
    list_stale: bool = False
    prune: bool = False
    prune_count: int | None = None
    restore_deleted: bool = False
    keep_replaced: bool = False
    ttl: int | None = None

    def __post_init__(self) -> None:
        if self.target is None:
            if self.data_table is None or self.metadata_table is None:
                raise ValueError("Wanted a data table and a metadata table, or a folder to write to. Found: neither.")
            if not self.dataset:
                object.__setattr__(self, "dataset", self.metadata_table.keyspace)
            self._check_tables(self.data_table, self.metadata_table)
        else:
            self._check_target(self.target)
        if (hidden := hidden_character(self.dataset)) is not None:
            raise ValueError(f"Wanted a dataset name of printable characters. Found: {hidden} in {self.dataset!r}")
        if self.replication is not None:
            Replication.parse(self.replication)
            if not self.create:
                raise ValueError("Wanted --replication or --no-create. Found: both.")
        if self.ingest_id is not None and self.ingest_id.version != 1:
            raise ValueError(
                "Wanted the ingest id of an earlier run, a time-based UUID (version 1). "
                f"Found: {self.ingest_id}, version {self.ingest_id.version}"
            )
        if self.ingest_id is not None:
            object.__setattr__(self, "resume", True)
        self.recode.check_labels(self.source.label_type)
        if self.ttl is not None and not 0 <= self.ttl <= MAX_TTL:
            raise ValueError(f"Wanted a --ttl of at most {MAX_TTL:,} seconds (20 years). Found: {self.ttl:,}")
        if self.ttl and self.keep_replaced:
            raise ValueError("Wanted --keep-replaced for images that do not expire. Found: --ttl.")
        if self.prune_count is not None and not self.prune:
            raise ValueError("Wanted --prune with --prune-count. Found: --prune-count alone.")

    def _check_target(self, target: str) -> None:
        if is_local(target):
            object.__setattr__(self, "target", os.path.abspath(target))
            if os.path.exists(target) and not os.path.isdir(target):
                raise ValueError(f"Wanted a folder or nothing at {os.path.abspath(target)!r}. Found: a file.")
        if self.data_table is not None or self.metadata_table is not None:
            raise ValueError("Wanted two tables, or a folder to write to. Found: both.")
        with_tables = {
            "--replication": self.replication,
            "--no-create": not self.create,
            "--class-names": self.source.class_names,
            "--list-stale": self.list_stale,
            "--prune": self.prune,
            "--ttl": self.ttl is not None,
            "--restore-deleted": self.restore_deleted,
            "--keep-replaced": self.keep_replaced,
            **{f"--{name}-col": value != name for name, value in asdict(self.columns).items()},
        }
        for name in (name for name, value in with_tables.items() if value):
            raise ValueError(f"Wanted {name} with tables. Found: --target-dir.")
        if self.ingest_id is not None:
            raise ValueError("Wanted --resume to continue an ingest into a folder. Found: --ingest-id.")

    def _check_tables(self, data: TableName, metadata: TableName) -> None:
        if data == metadata:
            raise ValueError(f"Wanted two tables, for data and for metadata. Found: {data} for both.")
        for table in (data, metadata):
            if table in {TableName(metadata.keyspace, name) for name in OWN_TABLES}:
                raise ValueError(f"Wanted another table name, because {table} is reserved. Found: {table}")
        if self.keep_replaced and (kept := kept_of(data)) in (metadata, history_of(metadata)):
            raise ValueError(f"Wanted {kept} for replaced bytes of {data}. Found: a table of {metadata} of this name.")
        fixed = defined_columns(create_metadata(metadata, Columns(), label_type="multi")).keys() - {"id", "label"}
        taken = fixed & {self.columns.id.lower(), self.columns.label.lower()}
        if taken:
            raise ValueError(
                "Wanted names for the id and label columns that no other metadata column has. "
                f"Found: {', '.join(taken)}"
            )

    @property
    def tables(self) -> "Tables":
        """The tables of an ingest whose target is not a folder."""
        assert self.data_table is not None
        assert self.metadata_table is not None
        return Tables(self.data_table, self.metadata_table, self.columns, self.source.label_type)

    @property
    def source_name(self) -> str:
        """The name of the source in rows, with the conversion of its images if there is one."""
        return self.source.name + (f"?{options}" if (options := str(self.recode)) else "")


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of an ingest."""

    data: TableName
    metadata: TableName
    columns: Columns
    label_type: LabelType

    @property
    def classes(self) -> TableName:
        """The table of class numbers."""
        return TableName(self.metadata.keyspace, "classes")

    @property
    def quarantine(self) -> TableName:
        """The table of rejected files."""
        return TableName(self.metadata.keyspace, "quarantine")

    @property
    def kept(self) -> tuple[TableName, str]:
        """The table of replaced bytes, with the statement that creates it."""
        return kept_of(self.data), create_kept(self.data, label_type=self.label_type)

    @property
    def records(self) -> Mapping[TableName, str]:
        """The tables of records and of runs, each with the statement that creates it."""
        keyspace = self.metadata.keyspace
        return {
            TableName(keyspace, "tables"): create_shared("tables", keyspace),
            TableName(keyspace, "ingests"): create_shared("ingests", keyspace),
        }

    @property
    def definitions(self) -> Mapping[TableName, str]:
        """All tables, each with the statement that creates it."""
        return {
            self.data: create_data(self.data, self.columns, label_type=self.label_type),
            self.metadata: create_metadata(self.metadata, self.columns, label_type=self.label_type),
            self.classes: create_shared("classes", self.metadata.keyspace),
            self.quarantine: create_shared("quarantine", self.metadata.keyspace),
            **self.records,
        }
