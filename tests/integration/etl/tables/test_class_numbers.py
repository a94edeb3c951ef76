"""Class numbers: known names keep their number, and concurrent runs agree."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.tables.class_numbers import class_names, take_numbers
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas.tables import Replication, create_keyspace, create_shared
from tests.support.services import fresh_name

KEYSPACE = fresh_name("numbers")


@pytest.fixture(scope="module")
def cluster(cassandra: Cassandra) -> Cluster:
    cluster = Cluster(tuple(cassandra.hosts), cassandra.port)
    with Control(cluster) as control:
        control.define(create_keyspace(KEYSPACE, Replication.parse("1", datacenter=control.datacenter)))
        control.define(create_shared("classes", KEYSPACE))
    return cluster


def test_class_numbers_start_in_code_point_order_and_never_change(cluster: Cluster) -> None:
    with Control(cluster) as control:
        assert class_names(control, keyspace=KEYSPACE, dataset="d") == {}
        first = take_numbers(control, keyspace=KEYSPACE, dataset="d", names=["b", "B", "é", "e\u0301", "c d", "b"])
        assert first == {"B": 0, "b": 1, "c d": 2, "e\u0301": 3, "é": 4}
        second = take_numbers(control, keyspace=KEYSPACE, dataset="d", names=["a", "b", "z"])
        assert second == {**first, "a": 5, "z": 6}
        assert class_names(control, keyspace=KEYSPACE, dataset="d") == second
        assert take_numbers(control, keyspace=KEYSPACE, dataset="other", names=["z"]) == {"z": 0}
        names = ["a", "b", "z", "y"]
        ordered = take_numbers(control, keyspace=KEYSPACE, dataset="other", names=names, order=["y", "z", "b"])
        assert ordered == {"z": 0, "y": 1, "b": 2, "a": 3}
        assert class_names(control, keyspace="nowhere", dataset="d") == {}


def test_many_and_long_names_take_several_batches(cluster: Cluster) -> None:
    names = [f"{i:05d}" for i in range(250)] + [f"{i:04d}{'ü' * 120}" for i in range(150)]
    with Control(cluster) as control:
        taken = take_numbers(control, keyspace=KEYSPACE, dataset="many", names=names)
    assert taken == {name: label for label, name in enumerate(sorted(names))}


def test_concurrent_runs_agree_and_leave_no_gaps(cluster: Cluster) -> None:
    shared = [f"class {i:03d}" for i in range(150)]
    start = Barrier(4)

    def one_run(number: int) -> dict[str, int]:
        with Control(cluster) as control:
            start.wait()
            return take_numbers(control, keyspace=KEYSPACE, dataset="race", names=[*shared, f"only {number}"])

    with ThreadPoolExecutor(4) as threads:
        runs = list(threads.map(one_run, range(4)))
    with Control(cluster) as control:
        final = class_names(control, keyspace=KEYSPACE, dataset="race")
    assert sorted(final.values()) == list(range(154))
    for taken in runs:
        assert taken.items() <= final.items()


def test_existing_numbers_without_a_stored_total_are_kept(cluster: Cluster) -> None:
    with Control(cluster) as control:
        control.execute(f"INSERT INTO {KEYSPACE}.classes (dataset, name, label) VALUES (?, ?, ?)", ("old", "x", 7))
        assert take_numbers(control, keyspace=KEYSPACE, dataset="old", names=["a"]) == {"x": 7, "a": 8}
