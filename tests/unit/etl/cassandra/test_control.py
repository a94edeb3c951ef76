"""Failing connections to Cassandra."""

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

import cassandra
import pytest
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown

from etl.cassandra import control as control_module
from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.errors import TableError, UnreachableError
from formats.retries import Retries


def test_an_unreachable_cassandra_is_reported_in_one_line() -> None:
    cluster = Cluster(("127.0.0.1",), 9)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1 port 9\.") as caught, Control(cluster):
        pass
    assert str(caught.value).startswith("Wanted Cassandra at 127.0.0.1 port 9. Found: connection refused. Start one")


class _Session:
    """Answers a query after some failures, and records it in a list."""

    def __init__(self, *failures: Exception, happened: list[object] | None = None) -> None:
        self._failures = list(failures)
        self._happened = [] if happened is None else happened

    def prepare(self, query: str) -> SimpleNamespace:
        return SimpleNamespace(bind=lambda values: query)

    def execute(self, bound: object, host: object = None) -> list[str]:
        if self._failures:
            raise self._failures.pop(0)
        self._happened.append(bound)
        return ["a row"]

    def execute_async(self, bound: object) -> SimpleNamespace:
        return SimpleNamespace(result=partial(self.execute, bound))

    def get_pool_state(self) -> dict[object, object]:
        return {}


def test_a_query_is_repeated_while_nodes_fail_and_not_if_it_is_refused() -> None:
    control = Control(Cluster(("127.0.0.1",), 9))
    outage = [
        cassandra.ReadFailure("INCOMPATIBLE_SCHEMA"),
        cassandra.Unavailable("one of two"),
        NoHostAvailable("", {}),
    ]
    control._session = _Session(*outage)
    assert control.execute("SELECT") == ["a row"]
    control._session = _Session(cassandra.InvalidRequest("no viable alternative"))
    with pytest.raises(TableError, match="no viable alternative"):
        control.execute("SELECT 2")


def test_queries_that_are_sent_together_are_repeated_while_nodes_fail() -> None:
    control = Control(Cluster(("127.0.0.1",), 9))
    control._session = _Session(ConnectionShutdown("closed"), cassandra.Unavailable("one of two"))
    assert list(control.execute_all("SELECT", [(1,), (2,)])) == [["a row"], ["a row"]]
    control._session = _Session(cassandra.InvalidRequest("no viable alternative"))
    with pytest.raises(TableError, match="no viable alternative"):
        list(control.execute_all("SELECT 2", [(1,)]))


def _agreeing(answers: Sequence[object]) -> tuple[Control, list[object]]:
    """A session whose nodes give these answers to whether they agree, and what happens, in order."""
    control, left = Control(Cluster(("127.0.0.1",), 9)), list(answers)
    happened: list[object] = []

    def agreement(wait_time: float) -> object:
        happened.append(left.pop(0))
        if isinstance(happened[-1], Exception):
            raise happened[-1]
        return happened[-1]

    control._session = _Session(happened=happened)
    control._driver = SimpleNamespace(
        control_connection=SimpleNamespace(wait_for_schema_agreement=agreement),
        metadata=SimpleNamespace(all_hosts=list),
    )
    return control, happened


def test_a_table_is_created_when_all_nodes_agree_and_they_agree_again_after_it() -> None:
    closed = ConnectionShutdown("closed")  # a node that goes away does not end the wait
    control, happened = _agreeing([False, True, closed, False, True])
    control.define("CREATE")
    assert happened == [False, True, "CREATE", closed, False, True]


def test_tables_are_listed_when_all_nodes_agree() -> None:
    control, happened = _agreeing([False, True])
    assert (control.schema("SELECT"), happened) == (["a row"], [False, True, "SELECT"])


def test_nodes_that_never_agree_are_an_error_before_anything_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "_SCHEMA_RETRIES", Retries(seconds=0.0))  # in place of 100 s
    control, happened = _agreeing([False])
    with pytest.raises(UnreachableError, match="to agree on their tables"):
        control.define("CREATE")
    assert happened == [False]


def test_a_query_is_repeated_for_longer_while_nodes_have_different_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "_OUTAGE_RETRIES", Retries(seconds=0.0))
    control = Control(Cluster(("127.0.0.1",), 9))
    control._session = _Session(*(cassandra.ReadFailure("INCOMPATIBLE_SCHEMA from /127.0.0.2") for _ in range(2)))
    assert control.execute("SELECT") == ["a row"]
    control._session = _Session(cassandra.Unavailable("one of two"))
    with pytest.raises(UnreachableError, match="one of two"):
        control.execute("SELECT 2")
