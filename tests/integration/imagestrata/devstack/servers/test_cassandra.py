"""The embedded Cassandra, with real nodes."""

import os
import re
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from imagestrata.devstack import java
from imagestrata.devstack.commands import main
from imagestrata.devstack.servers import ports, processes
from imagestrata.devstack.servers.cassandra import Cassandra
from tests.support.waiting import until


def test_cassandra_listens_on_the_loopback_alone(cassandra: Cassandra) -> None:
    assert cassandra.hosts == ["127.0.0.1"]
    pid = cassandra.nodes[0].pid
    assert pid is not None
    assert _listening_addresses(pid) <= {"127.0.0.1"}


def test_status_names_the_running_java_and_warns_when_it_is_old(
    cassandra: Cassandra, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "MAX_AGE", timedelta(days=36500))
    assert main(["status", "--data", str(cassandra.folder)]) == 0
    printed = capsys.readouterr()
    assert re.search(r"  Java 17[.\d]* \(.+\)  /", printed.out)
    assert printed.err == ""
    monkeypatch.setattr(java, "MAX_AGE", timedelta(0))
    assert main(["status", "--data", str(cassandra.folder)]) == 0
    assert re.match(r"warning: Java 17[.\d]* in /.* lacks all security updates since", capsys.readouterr().err)


def test_a_mutation_of_sixteen_mebibytes_is_accepted(cassandra: Cassandra, keyspace: str) -> None:
    blob = os.urandom(16 * 2**20)
    with cassandra.session() as cql:
        cql.execute(
            f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}}"
        )
        cql.execute(f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, data blob)")
        cql.execute(cql.prepare(f"INSERT INTO {keyspace}.t (id, data) VALUES (1, ?)"), (blob,))
        assert cql.execute(f"SELECT data FROM {keyspace}.t WHERE id = 1").one().data == blob
        cql.execute(f"DROP KEYSPACE {keyspace}")


def test_a_port_held_by_another_process_is_refused_and_its_holder_named(
    cassandra: Cassandra, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The fixture's node belongs to another folder.
    assert main(["up", "--port", str(cassandra.port), "--data", str(tmp_path)]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert f"port {cassandra.port}" in message
    assert f"java (pid {cassandra.nodes[0].pid})" in message
    assert main(["status", "--data", str(tmp_path)]) == 1
    assert cassandra.is_up()


def test_an_interrupted_start_leaves_no_process(tmp_path: Path) -> None:
    port = ports.free(["127.0.0.1"], 1)[0]
    command = [sys.executable, "-m", "imagestrata", "up", "--port", str(port), "--data", str(tmp_path)]
    root = Path(__file__).resolve().parents[5]
    child = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True)
    pid_file = tmp_path / "node1" / "pid"
    until(pid_file.exists, seconds=120)
    pid = int(pid_file.read_text().split()[0])
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=120)
    assert child.returncode == 130
    assert "interrupted" in said
    assert processes.start_time(pid) is None


def _listening_addresses(pid: int) -> set[str]:
    """The IPv4 addresses on which `pid` listens."""
    found = psutil.Process(pid).net_connections("tcp")
    return {one.laddr.ip.removeprefix("::ffff:") for one in found if one.status == psutil.CONN_LISTEN}
