"""Statements of tasks while nodes do not know a new table yet."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from acsylla.errors import CassErrorLibRequestTimedOut, CassErrorServerInvalidQuery, CassErrorServerSyntaxError

from etl.cassandra import task_sessions
from etl.cassandra.cluster import Cluster
from etl.cassandra.task_sessions import TaskSession
from etl.errors import TableError, UnreachableError

_UNKNOWN = CassErrorServerInvalidQuery("Invalid query: table data does not exist")


class _Session:
    """Fails as it is told, and then prepares and writes."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)

    async def create_prepared(self, query: str) -> SimpleNamespace:
        await self.execute(query)
        return SimpleNamespace(bind=lambda values: values)

    async def execute(self, _: object) -> None:
        if self._failures:
            raise self._failures.pop(0)


def _run(action: str, *failures: Exception) -> Any:
    session = TaskSession(_Session(*failures), Cluster(("127.0.0.1",), 9))
    if action == "prepare":
        return asyncio.run(session.prepare("INSERT"))
    return asyncio.run(session.write([(SimpleNamespace(bind=lambda values: values), ())], about="a row"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_sessions, "_FIRST_PAUSE", 0.0)


@pytest.mark.parametrize("action", ["prepare", "write"])
def test_a_table_that_a_node_does_not_know_yet_is_asked_for_again(action: str) -> None:
    _run(action, *[_UNKNOWN] * 9, CassErrorLibRequestTimedOut("Request timed out"))


@pytest.mark.parametrize("action", ["prepare", "write"])
def test_a_table_that_no_node_ever_knows_is_an_error(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_sessions, "_NEW_TABLE_SECONDS", -1.0)
    with pytest.raises(TableError, match="table data does not exist"):
        _run(action, *[_UNKNOWN] * 9)


def test_a_statement_that_no_node_accepts_is_refused_at_once() -> None:
    with pytest.raises(TableError, match="no viable alternative"):
        _run("prepare", CassErrorServerSyntaxError("no viable alternative"))


def test_an_outage_while_a_statement_is_prepared_ends_after_some_attempts() -> None:
    _run("prepare", *[CassErrorLibRequestTimedOut("Request timed out")] * 3)
    with pytest.raises(UnreachableError, match="Request timed out"):
        _run("prepare", *[CassErrorLibRequestTimedOut("Request timed out")] * 4)
