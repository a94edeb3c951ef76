"""The clients of the fake: `FakeControl` for the driver's queries, `FakeSession` for a task's rows.

A job is a coroutine that stops before each of its writes, so that a history can kill it there or run another job.
"""

import re
import time
import uuid
from collections.abc import Generator, Sequence
from types import SimpleNamespace
from typing import Any

from etl.cassandra.control import Control
from schemas import TableName
from tests.support.histories.store import Store, as_objects

_IF = re.compile(r"(.*) IF (NOT EXISTS|EXISTS|\w+ = \?)$")
_TRANSACTIONS = 1 << 50  # write times of transactions; no other write has a later one


class Step:
    """A point between two writes of a job."""

    def __await__(self) -> Generator["Step", None, None]:
        yield self


class FakeSession:
    """A `TaskSession` on a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def prepare(self, query: str) -> str:
        """The statement itself."""
        return query

    async def read(self, prepared: str, image: uuid.UUID, *, about: str) -> tuple[Any, ...] | None:
        """The first row of a query."""
        return next(iter(await self.read_all(prepared, image, about=about)), None)

    async def read_all(self, prepared: str, image: uuid.UUID, *, about: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        # No step: between its read and its write of an image, a run does not see what another one writes. Only a
        # lightweight transaction for each image would mend that.
        return [tuple(row.values()) for row in self._store.select(prepared, (image,))]

    async def write(self, rows: Sequence[tuple[str, Sequence[Any]]], *, about: str) -> None:
        """Write rows together, after a step."""
        await Step()
        for statement, values in rows:
            self._store.write(statement, values)


class FakeControl(Control):
    """A `Control` on a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.cluster: Any = "a fake"
        self._transactions = _TRANSACTIONS

    @property
    def located(self) -> Any:
        return self.cluster

    def execute(self, query: str, values: Sequence[Any] = (), *, is_serial: bool = False) -> list[Any]:
        if "toUnixTimestamp" in query:
            return [SimpleNamespace(milliseconds=time.time_ns() // 1_000_000)]
        if query.startswith("SELECT"):
            return as_objects(self.store.select(query, values))
        self.store.write(query, values)
        return []

    def apply(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> bool:
        parts = [(_IF.match(query), query, values) for query, values in statements]
        if not all(found is None or self._holds(found[2], query, values) for found, query, values in parts):
            return False
        self._transactions += 1
        for found, query, values in parts:
            if found is not None and "?" in found[2]:
                values = values[:-1]
            self.store.write(found[1] if found else query, values, time=self._transactions)
        return True

    def _holds(self, condition: str, query: str, values: Sequence[Any]) -> bool:
        insert = re.match(r"INSERT INTO (\S+) \((.*?)\)", query)
        if insert:
            names = [name.strip() for name in insert[2].split(",")]
            where, table = dict(zip(names, values, strict=True)), insert[1]
        else:
            found = re.match(r"(?:UPDATE|DELETE FROM) (\S+) .*?WHERE (.*) IF", query)
            assert found is not None, query
            names = [one.partition(" =")[0] for one in found[2].split(" AND ")]
            given = values[query[: found.start(2)].count("?") :]
            where, table = dict(zip(names, given, strict=False)), found[1]
        key = self.store.tables[table.replace('"', "")].key
        where = {name: value for name, value in where.items() if name in key}
        rows = [row for row in self.store.rows(table.replace('"', "")) if all(row[n] == v for n, v in where.items())]
        if condition.endswith("EXISTS"):
            return bool(rows) == (condition == "EXISTS")
        return bool((rows[0][condition.removesuffix(" = ?")] if rows else None) == values[-1])

    def define(self, statement: str) -> None:
        self.store.define(statement)

    def tables(self, keyspace: str) -> dict[str, Any]:
        names = [TableName.parse(name) for name in self.store.tables]
        return {one.table: one.table for one in names if one.keyspace == keyspace}

    def columns(self, table: TableName) -> dict[str, str] | None:
        found = self.store.tables.get(str(table))
        return dict(found.columns) if found else None

    def key(self, table: TableName) -> list[str]:
        return sorted(self.store.tables[str(table)].key)
