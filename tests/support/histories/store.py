"""A fake of Cassandra for histories: cells with write times, tombstones and times to live, in tables by key.

It runs the statements that the code under test prepares. Of two values of a cell, the one with the later write time
wins; at the same time a removal wins, and then the larger value.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

_NAME = re.compile(r'"?(\w+)"?')
_CREATE = re.compile(r"CREATE TABLE IF NOT EXISTS (\S+) \((.*?)\n\)( WITH .*)?$", re.DOTALL)
_ADD = re.compile(r"ALTER TABLE (\S+) ADD \(?(.+?)\)?$")
_TYPED = re.compile(r'"?(\w+)"? (\w+)')
_INSERT = re.compile(
    r"INSERT INTO (\S+) \((.*?)\) VALUES \([?, ]+\)( IF NOT EXISTS)?( USING TIMESTAMP \?)?( AND TTL \?)?$"
)
_UPDATE = re.compile(r"UPDATE (\S+) SET (.*?) WHERE (.*?)(?: IF (.*))?$")
_DELETE = re.compile(r"DELETE FROM (\S+)( USING TIMESTAMP \?)? WHERE (.*?)( IF EXISTS)?$")
_TIME = re.compile(r'WRITETIME\("?(\w+)"?\) AS (\w+)')
_TTL = re.compile(r'TTL\("?(\w+)"?\)')
_SELECT = re.compile(r"SELECT (.*?) FROM (\S+)(?: WHERE (.*?))?(?: LIMIT (\d+))?$")


@dataclass(order=True)
class Cell:
    """A value, or None for a tombstone, and the write time that it has."""

    time: int
    value: Any = None
    expires: float | None = None


@dataclass
class Row:
    """The cells of a row. A row exists if it was inserted, or has a value, after it was last removed."""

    cells: dict[str, Cell] = field(default_factory=dict)
    inserted: Cell | None = None
    removed: int = -1

    def put(self, name: str, cell: Cell) -> None:
        """Write a cell, unless a later one is there."""
        old = self.cells.get(name)
        if old is None or _rank(cell) >= _rank(old):
            self.cells[name] = cell

    def value(self, name: str, now: float) -> Any:
        """The value of a column; None if it has none."""
        cell = self.cells.get(name)
        return cell.value if cell is not None and self.is_alive(cell, now) else None

    def is_there(self, now: float) -> bool:
        """Whether a query finds the row."""
        if self.inserted is not None and self.is_alive(self.inserted, now):
            return True
        return any(cell.value is not None and self.is_alive(cell, now) for cell in self.cells.values())

    def is_alive(self, cell: Cell, now: float) -> bool:
        """Whether a cell of this row is neither removed nor expired."""
        return cell.time > self.removed and (cell.expires is None or now < cell.expires)


def _rank(cell: Cell) -> tuple[Any, ...]:
    return cell.time, cell.value is None, repr(cell.value)


@dataclass
class Table:
    """A table: its columns, its key, and those of its columns that are one value for a partition."""

    columns: dict[str, str]
    key: list[str]  # the partition key first
    partition: int
    statics: set[str]
    descending: bool
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    shared: dict[tuple[Any, ...], Row] = field(default_factory=dict)  # static columns by partition
    removed: dict[tuple[Any, ...], int] = field(default_factory=dict)  # when partitions were removed

    @classmethod
    def parse(cls, body: str, options: str) -> "Table":
        """Read the columns and the key of a CREATE TABLE statement."""
        columns: dict[str, str] = {}
        statics: set[str] = set()
        key, partition = [""], 1
        for line in (line.strip().rstrip(",") for line in body.splitlines() if line.strip()):
            if line.startswith("PRIMARY KEY"):
                inner = line.removeprefix("PRIMARY KEY").strip()[1:-1]
                first = re.match(r"\(([^)]*)\)", inner)
                key = [found[1] for found in _NAME.finditer(inner)]
                partition = len(first[1].split(",")) if first else 1
                continue
            found = _NAME.match(line)
            assert found is not None
            kind = line[found.end() :].strip()
            name = found[1]
            if kind.endswith(" PRIMARY KEY"):
                key = [name]
            if kind.endswith(" STATIC"):
                statics.add(name)
            columns[name] = kind.removesuffix(" PRIMARY KEY").removesuffix(" STATIC")
        return cls(columns, key, partition, statics, "DESC" in options)

    def row(self, key: tuple[Any, ...]) -> Row:
        """The row of a key, which is added if it is missing."""
        return self.rows.setdefault(key, Row(removed=self.removed.get(key[: self.partition], -1)))

    def remove(self, key: tuple[Any, ...], *, time: int) -> None:
        """Remove a row, or a partition."""
        if len(key) < len(self.key):
            self.removed[key] = max(time, self.removed.get(key, -1))
        for one in [one for one in self.rows if one[: len(key)] == key] if len(key) < len(self.key) else [key]:
            self.row(one).removed = max(time, self.row(one).removed)


class Store:
    """The tables of a cluster. ``now`` is its time in seconds, for rows that expire."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.now = 0.0

    def define(self, statement: str) -> None:
        """Create a table, or add a column."""
        text = "\n".join(line for line in statement.splitlines() if not line.startswith("--")).strip().rstrip(";")
        if found := _CREATE.match(text):
            self.tables.setdefault(_plain(found[1]), Table.parse(found[2], found[3] or ""))
        elif found := _ADD.match(text):
            self.tables[_plain(found[1])].columns.update(_TYPED.findall(found[2]))
        else:
            raise AssertionError(f"Wanted a definition. Found: {text}")

    def write(self, statement: str, values: Sequence[Any], *, time: int = -1) -> None:
        """Run an INSERT, UPDATE or DELETE. ``time`` is its write time if the statement has none."""
        values = list(values)
        if found := _INSERT.match(statement):
            names = _names(found[2])
            ttl = values.pop() if found[5] else 0
            expires = self.now + ttl if ttl else None
            at = values.pop() if found[4] else time
            self._put(_plain(found[1]), dict(zip(names, values, strict=True)), at, expires, inserts=True)
        elif found := _UPDATE.match(statement):
            names = [one.partition("=")[0].strip().strip('"') for one in found[2].split(",")]
            where = _conditions(found[3], values[len(names) :])
            self._put(_plain(found[1]), {**where, **dict(zip(names, values, strict=False))}, time, None, inserts=False)
        elif found := _DELETE.match(statement):
            at = values.pop(0) if found[2] else time
            table, where = self.tables[_plain(found[1])], _conditions(found[3], values)
            table.remove(tuple(where[name] for name in table.key if name in where), time=at)
        else:
            raise AssertionError(f"Wanted a write. Found: {statement}")

    def _put(self, name: str, values: Mapping[str, Any], time: int, expires: float | None, *, inserts: bool) -> None:
        assert time >= 0, f"Wanted a write time for {name}"
        table = self.tables[name]
        assert values.keys() <= table.columns.keys(), (name, values.keys() - table.columns.keys())
        partition = tuple(values[one] for one in table.key[: table.partition])
        own = {one: value for one, value in values.items() if one not in table.key and one not in table.statics}
        for one in values.keys() & table.statics:
            table.shared.setdefault(partition, Row()).put(one, Cell(time, values[one]))
        if not own and not inserts:
            return
        row = table.row(tuple(values[one] for one in table.key))
        if inserts and (row.inserted is None or row.inserted.time <= time):
            row.inserted = Cell(time, True, expires)
        for one, value in own.items():
            row.put(one, Cell(time, value, expires if value is not None else None))

    def select(self, statement: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        """Run a SELECT of columns, with equal values of columns as conditions; rows in the order of the key. It may
        ask for the write time of a column alone, and for the time to live of columns.
        """
        time = _TIME.search(statement)
        found = _SELECT.match(statement.replace(time[0], time[1]) if time else statement)
        assert found is not None, statement
        name = _plain(found[2])
        where = _conditions(found[3], values) if found[3] else {}
        rows = [row for row in self.rows(name) if all(row.get(one) == value for one, value in where.items())]
        rows = rows[: int(found[4])] if found[4] else rows
        if time:
            table = self.tables[name]
            cells = [table.rows[tuple(row[one] for one in table.key)].cells.get(time[1]) for row in rows]
            return [{time[2]: None if cell is None or cell.value is None else cell.time} for cell in cells]
        wanted = list(self.tables[name].columns) if found[1] == "*" else _names(found[1])
        return [{one: self._of(name, row, one) for one in wanted} for row in rows]

    def _of(self, name: str, row: Mapping[str, Any], wanted: str) -> Any:
        """A column of a row, or its time to live."""
        found = _TTL.match(wanted)
        if found is None:
            return row[wanted]
        key = tuple(row[one] for one in self.tables[name].key)
        cell = self.tables[name].rows[key].cells.get(found[1])
        return None if cell is None or cell.expires is None else int(cell.expires - self.now)

    def ends(self, name: str) -> dict[tuple[Any, ...], set[float]]:
        """When the rows that exist and their values expire, by their keys; infinity for never."""
        found = {}
        for key, row in self.tables[name].rows.items():
            cells = [*(one for one in row.cells.values() if one.value is not None), row.inserted]
            alive = [one.expires for one in cells if one is not None and row.is_alive(one, self.now)]
            if alive:
                found[key] = {math.inf if one is None else one for one in alive}
        return found

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """The rows of a table that exist, with all columns; one of nulls for a partition of static columns alone."""
        table = self.tables[name]
        keys = sorted((key for key, row in table.rows.items() if row.is_there(self.now)), key=repr)
        keys.sort(key=lambda key: _sortable(key[table.partition :]), reverse=table.descending)
        for key in keys:
            yield self._row(table, key, table.rows[key])
        for partition in table.shared.keys() - {key[: table.partition] for key in keys}:
            yield self._row(table, (*partition, *(None,) * (len(table.key) - table.partition)), Row())

    def _row(self, table: Table, key: tuple[Any, ...], row: Row) -> dict[str, Any]:
        shared = table.shared.get(key[: table.partition], Row())
        found = {one: (shared if one in table.statics else row).value(one, self.now) for one in table.columns}
        return found | dict(zip(table.key, key, strict=True))


def as_objects(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Rows with their columns as attributes, as the driver returns them."""
    return [SimpleNamespace(**row) for row in rows]


def _sortable(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value if isinstance(value, int) else repr(value) for value in values)


def _plain(name: str) -> str:
    return name.replace('"', "")


def _names(text: str) -> list[str]:
    return [one.strip().strip('"') for one in text.split(",")]


def _conditions(text: str, values: Sequence[Any]) -> dict[str, Any]:
    names = [one.partition("=")[0].strip().strip('"') for one in text.split(" AND ")]
    return dict(zip(names, values, strict=False))
