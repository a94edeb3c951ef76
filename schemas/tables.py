"""Names and definitions of the tables in Cassandra.

The definitions are the ``.cql`` files beside this module. Names are checked before they are put into one of them,
values are never put there at all: they are bound.
"""

import re
from dataclasses import dataclass
from importlib import resources
from typing import Literal, get_args

from schemas.errors import IdentifierError

LabelType = Literal["int", "blob", "multi", "none"]
"""What a label is: a class number, a mask, an array of numbers (kept as a list in the metadata too), or nothing."""

LABEL_TYPES: tuple[LabelType, ...] = get_args(LabelType)
ClassNames = Literal["name", "number"]
"""Whether classes are numbered by name, or have numbers as names."""
_DATA_LABELS = {"int": "int", "blob": "blob", "multi": "blob", "none": None}  # the CQL type in the data table

_TABLE_PART = re.compile(r"[a-z][a-z0-9_]{0,47}")
_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_PART = re.compile(r"\$(\w+)")
_DATACENTER = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def check_keyspace(name: str) -> str:
    """The name itself, if Cassandra takes it as a keyspace; raises `IdentifierError` otherwise."""
    return _check(
        name, _TABLE_PART, "a keyspace name: a lower-case letter, then lower-case letters, digits or _, 48 at most"
    )


def check_column(name: str) -> str:
    """The name itself, if Cassandra takes it as a column; raises `IdentifierError` otherwise."""
    return _check(name, _COLUMN, "a column name: a letter, then letters, digits or _, 48 at most")


def _check(name: str, grammar: re.Pattern[str], wanted: str) -> str:
    if not grammar.fullmatch(name):
        hint = " Cassandra folds unquoted names to lower case." if grammar.fullmatch(name.lower()) else ""
        raise IdentifierError(f"Wanted {wanted}.{hint} Found: {name!r}")
    return name


@dataclass(frozen=True, slots=True)
class TableName:
    """A table as users name it: ``keyspace.table``."""

    keyspace: str
    table: str

    @classmethod
    def parse(cls, text: str) -> "TableName":
        """Read ``keyspace.table``; raises `IdentifierError` if either part is no unquoted lower-case CQL name."""
        keyspace, _, table = text.partition(".")
        wanted = "a table as keyspace.table, each a lower-case letter, then lower-case letters, digits or _, 48 at most"
        for part in (keyspace, table):
            if not _TABLE_PART.fullmatch(part):
                hint = " Cassandra folds unquoted names to lower case." if text != text.lower() else ""
                raise IdentifierError(f"Wanted {wanted}.{hint} Found: {text!r}")
        return cls(keyspace, table)

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.table}"

    @property
    def quoted(self) -> str:
        """The name as it stands in a CQL statement."""
        return f'"{self.keyspace}"."{self.table}"'


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns that other people's tables may call otherwise (`id` and `patch_id` are both in use)."""

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
    """How many copies each datacenter keeps (NetworkTopologyStrategy)."""

    factors: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, text: str, *, datacenter: str = "datacenter1") -> "Replication":
        """Read ``3`` (copies in ``datacenter``) or ``dc1:3,dc2:2``; raises `IdentifierError` if it is neither."""
        factors = []
        for item in text.split(","):
            name, colon, count = item.strip().rpartition(":")
            name = name if colon else datacenter
            if not _DATACENTER.fullmatch(name) or not count.isdecimal() or not 1 <= int(count) <= 99:
                raise IdentifierError(f"Wanted a replication as 3 or dc1:3,dc2:2, of 1 to 99 copies. Found: {text!r}")
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
    """The statement that creates a keyspace if it is not there."""
    return _definition("keyspace", keyspace=check_keyspace(keyspace), replication=replication.cql)


def create_data(table: TableName, columns: Columns, *, label_type: LabelType = "int") -> str:
    """The statement that creates a data table if it is not there."""
    kind = _DATA_LABELS[label_type]
    label = columns.label if kind else None
    return _definition("data", table=table.quoted, id=columns.id, label=label, label_type=kind, data=columns.data)


def create_metadata(table: TableName, columns: Columns, *, label_type: LabelType = "int") -> str:
    """The statement that creates a metadata table if it is not there."""
    labels = "labels" if label_type == "multi" else None
    return _definition("metadata", table=table.quoted, id=columns.id, label=columns.label, labels=labels)


def create_classes(keyspace: str) -> str:
    """The statement that creates a keyspace's table of class numbers if it is not there."""
    return _definition("classes", table=TableName.parse(f"{keyspace}.classes").quoted)


def create_quarantine(keyspace: str) -> str:
    """The statement that creates a keyspace's table of rejected files if it is not there."""
    return _definition("quarantine", table=TableName.parse(f"{keyspace}.quarantine").quoted)


def create_table_records(keyspace: str) -> str:
    """The statement that creates a keyspace's table of what its tables hold if it is not there."""
    return _definition("tables", table=TableName.parse(f"{keyspace}.tables").quoted)


def create_ingests(keyspace: str) -> str:
    """The statement that creates a keyspace's table of runs if it is not there."""
    return _definition("ingests", table=TableName.parse(f"{keyspace}.ingests").quoted)


def create_perceptual_hashes(keyspace: str) -> str:
    """The statement that creates a keyspace's table of perceptual hashes if it is not there."""
    return _definition("perceptual_hashes", table=TableName.parse(f"{keyspace}.perceptual_hashes").quoted)


def defined_columns(statement: str) -> dict[str, str]:
    """The columns that one of these statements defines, and their CQL types."""
    lines = re.finditer(r'^    (?!PRIMARY KEY)"?(\w+)"? ([\w<>]+)', statement, re.MULTILINE)
    return {found[1]: found[2] for found in lines}


def _definition(name: str, **parts: str | None) -> str:
    """A ``.cql`` file with its ``$parts`` filled in, without the lines of those that are None; names are checked."""
    text = resources.files("schemas").joinpath("cql", f"{name}.cql").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines(keepends=True) if all(parts[part] for part in _PART.findall(line)))
    return _PART.sub(lambda found: parts[found[1]] or "", "".join(lines))
