"""A Cassandra of `imagestrata up --secure`: who may do what, and what its files show to others."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import loader
from etl.errors import TableError, UnreachableError
from formats import local_node
from formats.errors import FormatsError
from formats.local_node import LocalNode
from imagestrata.devstack.servers.cassandra import DEFAULT_PASSWORD, DEFAULT_USER, Cassandra
from imagestrata.registry import control_at

REPLICATION = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    with Cassandra(tmp_path_factory.mktemp("secure") / "node", secure=True) as server:
        yield server


@pytest.fixture
def node(secure: Cassandra, monkeypatch: pytest.MonkeyPatch) -> LocalNode:
    """The note by which commands find it."""
    monkeypatch.setattr(local_node, "PLACE", secure.folder / local_node.NAME)
    found = LocalNode.find()
    assert found is not None
    return found


def test_only_the_owner_can_read_its_files(secure: Cassandra) -> None:
    assert secure.access is not None
    assert stat.S_IMODE(secure.folder.stat().st_mode) == stat.S_IMODE(secure.access.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in secure.access.iterdir()} == {0o600}


def test_commands_and_trainings_find_the_access_of_their_role(secure: Cassandra, node: LocalNode) -> None:
    with control_at(None, None, access=loader.Access()) as control:
        control.define(f"CREATE KEYSPACE held WITH replication = {REPLICATION}")
        control.define("CREATE TABLE held.t (id int PRIMARY KEY)")
        assert control.cluster.username == "writer"
    for cluster in (loader.Cluster(), loader.Cluster(hosts="127.0.0.1", port=secure.port)):
        assert cluster.access.username == "reader"
    with control_at(["127.0.0.1"], secure.port, access=loader.Cluster().access) as control:
        assert control.execute("SELECT id FROM held.t") == []
        with pytest.raises(TableError, match=r"Found: User reader has no MODIFY permission on <table held\.t>"):
            control.execute("INSERT INTO held.t (id) VALUES (1)")
        with pytest.raises(TableError, match="no CREATE permission"):
            control.define(f"CREATE KEYSPACE other WITH replication = {REPLICATION}")


def test_another_port_or_another_user_gets_no_access_of_the_node(node: LocalNode) -> None:
    assert loader.Cluster(hosts="127.0.0.1", port=node.port + 1).access == loader.Access()
    assert loader.Cluster(username="me", password="mine").access.username == "me"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"ca": None, "certificate": None, "key": None}, "requires TLS"),
        ({"certificate": None, "key": None}, "requires a client certificate"),
        ({"username": None, "password": None}, "no user"),
        ({"username": DEFAULT_USER, "password": DEFAULT_PASSWORD}, "refuses user 'cassandra'"),
        ({"password": "wrong"}, "refuses user 'writer'"),
    ],
)
def test_without_certificate_or_password_nobody_gets_in(
    node: LocalNode, change: dict[str, str | None], found: str
) -> None:
    names = {name.removeprefix("IMAGESTRATA_").lower(): value for name, value in node.variables("writer").items()}
    access = loader.Access(**{**names, **change})
    with pytest.raises(UnreachableError, match=found), control_at(node.hosts, node.port, access=access):
        pass


def test_it_starts_again_with_the_same_roles(secure: Cassandra, node: LocalNode) -> None:
    assert secure.stop()
    again = Cassandra.existing(secure.folder)
    assert again is not None
    again.start(tied=True)
    with again.session() as cql:
        assert {row.role for row in cql.execute("SELECT role FROM system_auth.roles")} == {"admin", "writer", "reader"}


def test_another_user_is_told_why_it_cannot_read_the_access(tmp_path: Path) -> None:
    LocalNode.of(["127.0.0.1"], 9042, [os.getpid()], tmp_path / "gone").write(tmp_path / "node.json")
    node = LocalNode.find(tmp_path / "node.json")
    assert node is not None
    with pytest.raises(FormatsError, match=r"gone/reader\.env.*No such file.*Run as the user who started it"):
        node.variables("reader")
