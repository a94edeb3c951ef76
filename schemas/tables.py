"""Names and definitions of the tables in Cassandra.

The definitions are ``.cql`` files in this package. Names are checked before they are inserted into a statement. Values
are never inserted; they are bound.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Literal, get_args
from uuid import UUID

from schemas.errors import IdentifierError

# Label types: a class number, a mask, an array of numbers (also stored as a list in the metadata), or no label.
LabelType = Literal["int", "blob", "multi", "none"]

LABEL_TYPES: tuple[LabelType, ...] = get_args(LabelType)
# How classes get numbers: in the order of their names, or because their names are numbers.
ClassNames = Literal["name", "number"]
# The kinds of removed images in a history: deleted on request, or no longer in their source.
DELETED, PRUNED = "deleted", "pruned"
# Columns that tables of earlier versions may lack (metadata, `ingests`; histories). `imagestrata migrate` adds them.
_ADDED = {"since", "xxhash64", "ttl", "state", "newest"}
_ADDED_TO_HISTORY = {"format", "width", "height", "bytes", "xxhash64", "kept"}
MAX_NAME = 48  # the most characters in the name of a keyspace, table or column in Cassandra
# The most characters in the name of a new metadata table, so that the names of its other tables begin with it.
MAX_METADATA = MAX_NAME - len("_history")
_DIGITS = 8  # of a digest
_DATA_LABELS = {"int": "int", "blob": "blob", "multi": "blob", "none": None}  # the CQL type in the data table

_TABLE_PART = re.compile(r"[a-z][a-z0-9_]{0,47}")
_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_PART = re.compile(r"\$(\w+)")
_DATACENTER = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def check_keyspace(name: str) -> str:
    """Return a valid keyspace name unchanged. Raises `IdentifierError`."""
    return _check(
        name, _TABLE_PART, "a keyspace name: a lower-case letter, then lower-case letters, digits or _, 48 at most"
    )


def check_column(name: str) -> str:
    """Return a valid column name unchanged. Raises `IdentifierError`."""
    return _check(name, _COLUMN, "a column name: a letter, then letters, digits or _, 48 at most")


def _check(name: str, grammar: re.Pattern[str], wanted: str) -> str:
    if not grammar.fullmatch(name):
        hint = " Cassandra folds unquoted names to lower case." if grammar.fullmatch(name.lower()) else ""
        raise IdentifierError(f"Wanted {wanted}.{hint} Found: {name!r}")
    return name


@dataclass(frozen=True, slots=True)
class TableName:
    """A table name as users write it: ``keyspace.table``."""

    keyspace: str
    table: str

    @classmethod
    def parse(cls, text: str) -> "TableName":
        """Parse ``keyspace.table``. Raises `IdentifierError` unless both parts are unquoted lower-case CQL names."""
        keyspace, _, table = text.partition(".")
        wanted = "a table as keyspace.table, each a lower-case letter, then lower-case letters, digits or _, 48 at most"
        for part in (keyspace, table):
            if not _TABLE_PART.fullmatch(part):
                hint = " Cassandra folds unquoted names to lower case." if text != text.lower() else ""
                raise IdentifierError(f"Wanted {wanted}.{hint} Found: {text!r}")
        return cls(keyspace, table)

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.table}"

    def derived(self, suffix: str, *, longest: int = MAX_NAME) -> "TableName":
        """The name of a table that belongs to this one: its name with a suffix such as ``_history``. Raises
        `IdentifierError` if the suffix itself is too long.
        """
        whole = f"{self.table}{suffix}"
        if len(whole) > longest:  # cut, with a digest: tables of earlier versions may have longer names than new ones
            room = longest - len(suffix) - _DIGITS - 1
            if room < 1:
                raise IdentifierError(
                    f"Wanted a table name of at most {longest} characters. Found: {whole}, with {len(whole)}. Use a "
                    "shorter name for the view."
                )
            whole = f"{self.table[:room]}_{hashlib.sha256(whole.encode()).hexdigest()[:_DIGITS]}{suffix}"
        return TableName(self.keyspace, whole)

    @property
    def quoted(self) -> str:
        """The name for CQL statements."""
        return f'"{self.keyspace}"."{self.table}"'


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns that existing tables may name differently (both `id` and `patch_id` are in use)."""

    id: str = "id"
    label: str = "label"
    data: str = "data"

    def __post_init__(self) -> None:
        for name in (self.id, self.label, self.data):
            check_column(name)
        if len({self.id, self.label, self.data}) < 3:
            raise IdentifierError(f"Wanted three different columns. Found: {self.id!r}, {self.label!r}, {self.data!r}")


@dataclass(frozen=True, slots=True)
class Replication:
    """The number of replicas in each datacenter (NetworkTopologyStrategy)."""

    factors: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, text: str, *, datacenter: str = "datacenter1") -> "Replication":
        """Parse ``3`` (replicas in ``datacenter``) or ``dc1:3,dc2:2``. Raises `IdentifierError`."""
        factors = []
        for item in text.split(","):
            name, colon, count = item.strip().rpartition(":")
            name = name if colon else datacenter
            if not _DATACENTER.fullmatch(name) or not count.isdecimal() or not 1 <= int(count) <= 99:
                raise IdentifierError(f"Wanted a replication of 1 to 99, as 3 or dc1:3,dc2:2. Found: {text!r}")
            factors.append((name, int(count)))
        if len(dict(factors)) < len(factors):
            raise IdentifierError(f"Wanted each datacenter once in the replication. Found: {text!r}")
        return cls(tuple(factors))

    @property
    def cql(self) -> str:
        """The replication map as a CQL literal."""
        copies = "".join(f", '{name}': {count}" for name, count in self.factors)
        return "{'class': 'NetworkTopologyStrategy'" + copies + "}"


def create_keyspace(keyspace: str, replication: Replication) -> str:
    """The statement that creates a keyspace unless it exists."""
    return _definition("keyspace", keyspace=check_keyspace(keyspace), replication=replication.cql)


def create_data(table: TableName, columns: Columns, *, label_type: LabelType = "int") -> str:
    """The statement that creates a data table unless it exists."""
    kind = _DATA_LABELS[label_type]
    label = columns.label if kind else None
    return _definition("data", table=table.quoted, id=columns.id, label=label, label_type=kind, data=columns.data)


def create_metadata(table: TableName, columns: Columns, *, label_type: LabelType = "int") -> str:
    """The statement that creates a metadata table unless it exists."""
    labels = "labels" if label_type == "multi" else None
    return _definition("metadata", table=table.quoted, id=columns.id, label=columns.label, labels=labels)


def create_shared(name: Literal["classes", "quarantine", "tables", "ingests", "registry"], keyspace: str) -> str:
    """The statement that creates a table, of class numbers and so on, that all tables of a keyspace share."""
    return _definition(name, table=TableName.parse(f"{keyspace}.{name}").quoted)


def history_of(metadata: TableName) -> TableName:
    """The table with the replaced and removed states of a metadata table's images."""
    return metadata.derived("_history")


def create_history(metadata: TableName) -> str:
    """Return the statement that creates the history of a metadata table unless it exists."""
    return _definition("history", table=history_of(metadata).quoted)


def kept_of(data: TableName) -> TableName:
    """The table with the bytes of a data table's images that later runs replaced."""
    return data.derived("_history")


def create_kept(data: TableName, *, label_type: LabelType) -> str:
    """The statement that creates the table of a data table's replaced bytes unless it exists."""
    kind = "blob" if label_type in ("blob", "multi") else None
    return _definition("kept", table=kept_of(data).quoted, label_type=kind)


def create_feature_values(table: TableName, fields: Mapping[str, str]) -> str:
    """The statement that creates the table of a feature view's values unless it exists. ``fields`` has their CQL
    types.
    """
    return _definition("feature_values", table=table.quoted, fields=",\n    ".join(_typed(fields)))


def create_label_values(table: TableName) -> str:
    """The statement that creates the table of a label view's labels, without versions, unless it exists."""
    return _definition("label_values", table=table.quoted)


def label_bucket(image: UUID) -> int:
    """Return the partition of an image in a table of labels: the first 12 bits of its id."""
    return image.int >> 116


def create_vectors(table: TableName, length: int) -> str:
    """The statement that creates a table of vectors of this length unless it exists."""
    return _definition("vectors", table=table.quoted, length=str(int(length)))


def create_vector_index(table: TableName) -> str:
    """Return the statement that creates the index of a table of vectors unless it exists."""
    options = "{'similarity_function': 'cosine'}"
    index = f"CREATE CUSTOM INDEX IF NOT EXISTS {table.table}_ann ON {table.quoted} (vector)"
    return f"{index} USING 'StorageAttachedIndex' WITH OPTIONS = {options}"


def drop_vector_index(table: TableName) -> str:
    """Return the statement that removes the index of a table of vectors if it exists."""
    return f"DROP INDEX IF EXISTS {table.keyspace}.{table.table}_ann"


def defined_columns(statement: str) -> dict[str, str]:
    """The columns that one of these statements defines, with their CQL types."""
    lines = re.finditer(r'^    (?!PRIMARY KEY)"?(\w+)"? ([\w<>]+)', statement, re.MULTILINE)
    return {found[1]: found[2] for found in lines}


def is_ingested(found: Mapping[str, str]) -> bool:
    """Whether an ingest has created the metadata table with these columns and CQL types, now or in an earlier version.
    Tables of other tools lack some of them.
    """
    fixed = defined_columns(create_metadata(TableName("any", "any"), Columns()))
    varying = ("id", "label", "since", "xxhash64")
    return all(found.get(name) == kind for name, kind in fixed.items() if name not in varying)


def lacking(found: Collection[str], statement: str) -> dict[str, str]:
    """The columns that a table of an earlier version with these columns lacks, with their CQL types; ``statement``
    defines the table.
    """
    defined = defined_columns(statement)
    added = _ADDED_TO_HISTORY if "kept" in defined else _ADDED
    return {name: kind for name, kind in defined.items() if name in added and name not in found}


def add_columns(table: TableName, columns: Mapping[str, str]) -> str:
    """The statement that adds columns to a table."""
    return f"ALTER TABLE {table.quoted} ADD ({', '.join(_typed(columns))})"


def _typed(columns: Mapping[str, str]) -> list[str]:
    """Columns with their CQL types, for a statement."""
    return [f'"{check_column(name)}" {kind}' for name, kind in columns.items()]


def _definition(name: str, **parts: str | None) -> str:
    """Fill in the ``$parts`` of a ``.cql`` file and drop the lines of parts that are None. Names are checked."""
    text = resources.files("schemas").joinpath("cql", f"{name}.cql").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines(keepends=True) if all(parts[part] for part in _PART.findall(line)))
    return _PART.sub(lambda found: parts[found[1]] or "", "".join(lines))
