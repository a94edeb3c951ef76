"""Where a split is read from without hosts."""

import os
from pathlib import Path
from typing import Any

import pytest

from formats import local_node
from formats.local_node import LocalNode, hosts_of_script
from loader import Access, OptionError, UnreachableError
from loader.cassandra.cluster import Cluster

OTHERS: dict[str, Any] = dict.fromkeys(("connections", "client", "username", "password", "datacenter"))


def place(hosts: Any = None, port: int | None = None) -> tuple[tuple[str, ...], int]:
    found = Cluster.checked(hosts=hosts, port=port, access=Access(), consistency="LOCAL_QUORUM", **OTHERS)
    return found.hosts, found.port


@pytest.fixture(autouse=True)
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of this checkout's file, which does not exist yet."""
    monkeypatch.setattr(local_node, "PLACE", tmp_path / "node.json")
    return tmp_path / "node.json"


def test_without_hosts_it_is_the_node_of_the_note(note: Path) -> None:
    LocalNode.of(["127.0.0.1", "127.0.0.2"], 9151, [os.getpid()]).write(note)
    assert place() == (("127.0.0.1", "127.0.0.2"), 9151)


def test_given_hosts_and_ports_win_over_the_note(note: Path) -> None:
    LocalNode.of(["127.0.0.1"], 9151, [os.getpid()]).write(note)
    assert place("db1") == (("db1",), 9042)
    assert place(["db1"], 9999) == (("db1",), 9999)
    assert place(None, 9042) == (("127.0.0.1",), 9042)


def test_without_hosts_and_note_the_loader_refuses_and_scripts_take_this_machine(note: Path) -> None:
    with pytest.raises(OptionError, match=r"^No Cassandra is configured\. Start one with `imagestrata up`, or pass"):
        place()
    assert hosts_of_script(None) == ("127.0.0.1",)
    LocalNode.of(["127.0.0.1"], 9151, [os.getpid()]).write(note)
    assert hosts_of_script(None) is None
    assert hosts_of_script(("db1",)) == ("db1",)


def test_a_node_that_ended_is_refused_with_how_to_start_it(note: Path) -> None:
    LocalNode(("127.0.0.1",), 9151, ((os.getpid(), "an earlier process"),)).write(note)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1 port 9151.*not running. Start it with `imagestrata up`"):
        place()
    assert place("db1") == (("db1",), 9042)
    assert place(None, 9999) == (("127.0.0.1",), 9999)


def test_an_address_is_described_with_the_note_that_names_it(note: Path) -> None:
    LocalNode.of(["127.0.0.1"], 9151, [os.getpid()]).write(note)
    assert local_node.described(("127.0.0.1",), 9151).endswith("(started by `imagestrata up`)")
    assert local_node.described(("127.0.0.1",), 9042) == "127.0.0.1 port 9042"
