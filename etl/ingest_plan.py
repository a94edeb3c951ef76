"""What an ingest is asked to do: its options, checked before anything starts."""

import os
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from schemas import Columns, TableName
from schemas.tables import Replication, create_classes, create_data, create_metadata, create_quarantine, defined_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPlan:
    """The options of one ingest.

    ``source`` is the folder, ``splits`` its split folders (none: class folders lie in the folder itself). ``dataset``
    is the keyspace of the metadata table unless it is named. ``create`` makes keyspaces and tables that are missing,
    with ``replication`` (one copy unless it says otherwise). ``overwrite`` takes rows over from other sources.
    ``ingest_id`` carries an interrupted ingest on. Raises ValueError for options that cannot be.
    """

    source: str
    data_table: TableName
    metadata_table: TableName
    splits: tuple[str, ...] = ()
    dataset: str = ""
    columns: Columns = field(default_factory=Columns)
    create: bool = True
    overwrite: bool = False
    ingest_id: uuid.UUID | None = None
    replication: str | None = None

    def __post_init__(self) -> None:
        if not self.dataset:
            object.__setattr__(self, "dataset", self.metadata_table.keyspace)
        self._check_folders()
        self._check_tables()
        if not self.dataset.isprintable():
            raise ValueError(f"Wanted a dataset name of printable characters. Found: {self.dataset!r}")
        if self.replication is not None:
            Replication.parse(self.replication)
            if not self.create:
                raise ValueError("Wanted --replication where keyspaces may be created. Found: --no-create as well.")
        if self.ingest_id is not None and self.ingest_id.version != 1:
            raise ValueError(
                "Wanted the ingest id of an earlier run, a time-based UUID (version 1). "
                f"Found: {self.ingest_id}, version {self.ingest_id.version}"
            )

    def _check_folders(self) -> None:
        for split in self.splits:
            if split in {"", ".", ".."} or "/" in split:
                raise ValueError(f"Wanted the name of a folder directly in {self.source}. Found: {split!r}")
        if len(set(self.splits)) < len(self.splits):
            raise ValueError(f"Wanted each split folder once. Found: {', '.join(self.splits)}")
        for folder in [self.source, *(os.path.join(self.source, split) for split in self.splits)]:
            if not os.path.isdir(folder):
                found = "a file" if os.path.exists(folder) else "nothing there"
                raise ValueError(f"Wanted a folder at {os.path.abspath(folder)!r}. Found: {found}.")

    def _check_tables(self) -> None:
        if self.data_table == self.metadata_table:
            raise ValueError(f"Wanted two tables, for data and for metadata. Found: {self.data_table} for both.")
        for table in (self.data_table, self.metadata_table):
            if table in {self.classes_table, self.quarantine_table}:
                raise ValueError(f"Wanted a table of another name: {table} is kept for our own notes. Found: {table}")
        fixed = defined_columns(create_metadata(self.metadata_table, Columns())).keys() - {"id", "label"}
        taken = fixed & {self.columns.id.lower(), self.columns.label.lower()}
        if taken:
            raise ValueError(
                f"Wanted id and label columns that the metadata table has no other use for. Found: {', '.join(taken)}"
            )

    @property
    def root(self) -> bytes:
        """The folder's real path, as raw bytes."""
        return os.fsencode(os.path.realpath(self.source))

    @property
    def source_name(self) -> str:
        """The folder as rows name it: the ``file://`` address of its real path."""
        return Path(os.path.realpath(self.source)).as_uri()

    @property
    def split_names(self) -> list[bytes]:
        """The split folders' raw names; one empty name where there are none."""
        return [os.fsencode(split) for split in self.splits] or [b""]

    @property
    def classes_table(self) -> TableName:
        """Where class numbers are."""
        return TableName(self.metadata_table.keyspace, "classes")

    @property
    def quarantine_table(self) -> TableName:
        """Where rejected files are told."""
        return TableName(self.metadata_table.keyspace, "quarantine")

    @property
    def definitions(self) -> Mapping[TableName, str]:
        """The four tables of an ingest, each with the statement that creates it."""
        return {
            self.data_table: create_data(self.data_table, self.columns),
            self.metadata_table: create_metadata(self.metadata_table, self.columns),
            self.classes_table: create_classes(self.metadata_table.keyspace),
            self.quarantine_table: create_quarantine(self.metadata_table.keyspace),
        }


def new_ingest_id() -> uuid.UUID:
    """A time-based UUID with a random node (RFC 9562, 6.10): it tells when, not on which machine."""
    return uuid.uuid1(node=secrets.randbits(48) | 1 << 40, clock_seq=secrets.randbits(14))


def ingest_time(ingest_id: uuid.UUID) -> datetime:
    """The time inside a time-based UUID, to the millisecond, as Cassandra keeps it; a resumed run writes the same."""
    milliseconds = (ingest_id.time - 0x01B21DD213814000) // 10_000
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
