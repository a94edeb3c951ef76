"""Which Cassandra a job uses, and its messages about it."""

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import SparkConf

from etl.errors import UnreachableError
from etl.tls import BUNDLE
from formats.local_node import LocalNode
from jobs import split
from jobs.command import HOST, PORT, USER, locate

RUNNING = LocalNode.of(["127.0.0.1", "127.0.0.2"], 9151, [os.getpid()])
ENDED = LocalNode(("127.0.0.1",), 9151, ((os.getpid(), "an earlier process"),))


def conf(**settings: str) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll([(f"spark.{name}", value) for name, value in settings.items()])


def test_without_configuration_a_job_uses_the_local_node_and_says_so() -> None:
    found = conf(master="local[2]")
    assert "imagestrata up" in locate(found, RUNNING)
    assert (found.get(HOST), found.get(PORT)) == ("127.0.0.1,127.0.0.2", "9151")


@pytest.mark.parametrize("node", [RUNNING, ENDED, None])
def test_a_configured_host_or_port_wins_over_the_local_node(node: LocalNode | None) -> None:
    for settings, address in (
        ({HOST: "10.0.0.1"}, ("10.0.0.1", "9042")),
        ({PORT: "9999"}, ("127.0.0.1", "9999")),
        ({HOST: "", PORT: "9999"}, ("127.0.0.1", "9999")),
        ({HOST: "10.0.0.1", PORT: "9999"}, ("10.0.0.1", "9999")),
    ):
        found = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        assert locate(found, node) == " (from Spark's configuration)"
        assert (found.get(HOST), found.get(PORT)) == address


@pytest.mark.parametrize("node", [RUNNING, ENDED, None])
def test_a_bundle_wins_over_the_local_node(node: LocalNode | None) -> None:
    found = SparkConf(loadDefaults=False).set(BUNDLE, "/etc/db.zip").set("spark.master", "spark://m:7077")
    assert locate(found, node) == " (from Spark's configuration)"
    assert found.get(HOST, None) is None


def test_without_configuration_and_local_node_it_is_the_default() -> None:
    found = conf()
    assert locate(found, None) == " (default)"
    assert (found.get(HOST), found.get(PORT)) == ("127.0.0.1", "9042")


def test_a_node_that_ended_is_refused_with_how_to_start_it() -> None:
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1 port 9151.*not running. Start it with `imagestrata up`"):
        locate(conf(), ENDED)


def test_a_job_that_can_do_without_cassandra_keeps_the_address_of_a_node_that_ended() -> None:
    found = conf()
    locate(found, ENDED, needs_cassandra=False)
    assert found.get(PORT) == "9151"  # not another server at the usual port


def test_executors_on_other_machines_need_a_configured_host() -> None:
    with pytest.raises(UnreachableError, match=f"Wanted {HOST} for executors of spark://m:7077"):
        locate(conf(master="spark://m:7077"), RUNNING)


def test_the_access_of_the_local_node_is_used_at_its_address_unless_another_is_configured(tmp_path: Path) -> None:
    (tmp_path / "jobs.conf").write_text(f"{USER} writer\nspark.cassandra.connection.ssl.enabled true\n")
    node = replace(RUNNING, access=str(tmp_path))
    for settings, user in (
        ({}, "writer"),
        ({HOST: "127.0.0.2", PORT: "9151"}, "writer"),
        ({HOST: "127.0.0.2", PORT: "9152"}, None),
        ({HOST: "10.0.0.1", PORT: "9151"}, None),
        ({USER: "me"}, "me"),
        ({"spark.cassandra.connection.ssl.enabled": "true"}, None),
    ):
        found = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        locate(found, node)
        assert found.get(USER, None) == user


@pytest.mark.parametrize("argv", [["-o", "o"], ["-d", "k.d", "-m", "k.m", "-o", "o"]])
def test_without_pyspark_a_job_says_what_to_install(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "py4j.protocol", None)
    handlers = logging.getLogger().handlers[:]
    try:
        code = split.main(argv)
    except SystemExit as stopped:
        code = stopped.code  # type: ignore[assignment]
    assert code == 1
    wanted = "split.py: Wanted the library pyspark. Found: it is not installed. Run: pip install 'imagestrata[spark]'"
    assert capsys.readouterr().err.splitlines()[-1] == wanted
    assert logging.getLogger().handlers == handlers  # or a later run would log to this one's standard error
