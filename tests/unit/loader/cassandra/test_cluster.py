"""Where a split is read from: with a cluster, with its options, and with neither."""

import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import loader
from formats import local_node
from formats.local_node import LocalNode, hosts_of_script
from loader import Access, Cluster, OptionError, UnreachableError, sources
from tests.support.split_folders import image_ids, write_split_folder


def place(hosts: Any = None, port: int | None = None) -> tuple[tuple[str, ...], int]:
    found = Cluster(hosts=hosts, port=port, access=Access())
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


def read_source(split: loader.Split, *, batch_size: int = 2, **options: Any) -> None:
    with loader.CassandraSource(split, batch_size=batch_size, **options) as source:
        next(source.epoch(0))


def read_in_lightning(split: loader.Split, *, cluster: Cluster | None = None, **options: Any) -> None:
    from loader.lightning import ClassificationData

    make: Any = partial(read_source, split, **options)
    data = ClassificationData(make, make, batch_size=2, size=8, cluster=cluster)
    data.trainer = SimpleNamespace(global_rank=0, world_size=1)  # type: ignore[assignment]
    data.setup("fit")


@pytest.mark.parametrize(
    "read",
    [
        read_source,
        read_in_lightning,
        lambda split, **where: loader.ImageDataset(split, **where)[0],
        lambda split, **where: split.to_arrow(metadata=True, **where),
        lambda split, **where: split.show(1, **where),
    ],
    ids=["CassandraSource", "ClassificationData", "ImageDataset", "to_arrow", "show"],
)
def test_all_that_reads_tables_takes_a_cluster_or_its_options(read: Callable[..., Any], tmp_path: Path) -> None:
    folder = write_split_folder(tmp_path / "split", [(image_ids(4), [0] * 4)], metadata_table="ks.metadata")
    split = loader.open_split(folder, cache=tmp_path / "cache")
    cluster = Cluster(hosts=["127.0.0.1"], port=1, access=Access())
    for where in ({"cluster": pickle.loads(pickle.dumps(cluster))}, {"hosts": "127.0.0.1", "port": 1}):
        with pytest.raises(UnreachableError, match=r"Wanted Cassandra at 127\.0\.0\.1 port 1\. Found: nothing listens"):
            read(split, **where)
    both = r"Wanted cluster, or hosts and port\. Found: both\. .*: loader\.Cluster\(hosts=\.\.\., port=\.\.\.\)\."
    with pytest.raises(OptionError, match=both):
        read(split, cluster=cluster, hosts="127.0.0.1", port=1)
    with pytest.raises(OptionError, match=r"Wanted cluster as loader\.Cluster\(\.\.\.\)\. Found: str"):
        read(split, cluster="127.0.0.1")


def test_a_cluster_that_is_filled_in_is_not_replaced() -> None:
    from loader.lightning import ClassificationData

    cluster = Cluster(hosts=["127.0.0.1"], port=1, access=Access())
    make = partial(loader.CassandraSource, cluster=cluster)
    with pytest.raises(OptionError, match="Wanted cluster here, or filled in in train and val"):
        ClassificationData(make, make, batch_size=2, size=8, cluster=cluster)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({}, ("127.0.0.1", 1, "ONE")),
        ({"batch_size": 1}, ("127.0.0.1", 1, "ONE")),
        ({"hosts": "127.0.0.2"}, ("127.0.0.2", 1, "ONE")),
        ({"port": 2, "consistency": "TWO"}, ("127.0.0.1", 2, "TWO")),
        ({"cluster": Cluster(hosts="127.0.0.3", access=Access())}, ("127.0.0.3", 9042, None)),
    ],
)
def test_a_source_begins_again_in_its_cluster_or_with_changes(
    changes: dict[str, Any], place: tuple[str, int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    monkeypatch.setattr(sources, "readers_of", lambda _, cluster, **more: read.append(cluster))
    folder = write_split_folder(tmp_path / "split", [(image_ids(4), [0] * 4)])
    split = loader.open_split(folder, cache=tmp_path / "cache")
    cluster = Cluster(hosts="127.0.0.1", port=1, access=Access(), consistency="ONE")
    with loader.CassandraSource(split, cluster=cluster, batch_size=2) as source:
        found = pickle.loads(pickle.dumps(source)).again(**changes)
        assert (found.hosts, found.port) == ((place[0],), place[1])
        assert read[-1].consistency == place[2]
        with pytest.raises(OptionError, match="Wanted cluster, or hosts"):
            source.again(cluster=cluster, hosts="127.0.0.2")
