"""The embedded Cassandra, with real nodes."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devstack import DevstackError, NodeError, PortError, ports, processes
from devstack.__main__ import main
from devstack.cassandra import Cassandra, release_version


def test_fixture_answers_on_the_loopback_alone(cassandra: Cassandra) -> None:
    assert cassandra.hosts == ["127.0.0.1"]
    assert release_version("127.0.0.1", cassandra.port).startswith("5.")
    pid = cassandra.nodes[0].pid
    assert pid is not None
    assert _listening_addresses(pid) <= {"127.0.0.1"}


def test_settings_make_acknowledged_writes_durable(cassandra: Cassandra) -> None:
    wanted = {
        "commitlog_sync": "group",
        "commitlog_sync_group_window": "15ms",
        "disk_failure_policy": "stop",
        "commit_failure_policy": "stop",
        "auto_snapshot": "false",
        "concurrent_writes": "256",
    }
    with cassandra.session() as cql:
        found = {row.name: row.value for row in cql.execute("SELECT name, value FROM system_views.settings")}
    assert {name: found.get(name) for name in wanted} == wanted
    assert cassandra.log.stat().st_size > 0


def test_a_mutation_of_sixteen_mebibytes_is_accepted(cassandra: Cassandra) -> None:
    blob = os.urandom(16 * 2**20)
    with cassandra.session() as cql:
        cql.execute(
            "CREATE KEYSPACE IF NOT EXISTS devstack_large WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
        )
        cql.execute("CREATE TABLE IF NOT EXISTS devstack_large.t (id int PRIMARY KEY, data blob)")
        cql.execute(cql.prepare("INSERT INTO devstack_large.t (id, data) VALUES (1, ?)"), (blob,))
        assert cql.execute("SELECT data FROM devstack_large.t WHERE id = 1").one().data == blob
        cql.execute("DROP KEYSPACE devstack_large")


def test_foreign_port_is_refused_naming_its_holder(cassandra: Cassandra, tmp_path: Path, capsys) -> None:
    # The fixture's node is a stranger for another folder.
    assert main(["up", "--port", str(cassandra.port), "--data", str(tmp_path)]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert f"port {cassandra.port}" in message
    assert f"java (pid {cassandra.nodes[0].pid})" in message
    assert main(["status", "--data", str(tmp_path)]) == 1
    assert cassandra.is_up()


def test_listener_on_every_address_counts_as_foreign(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as stranger:
        port = stranger.getsockname()[1]
        assert ports.holds(os.getpid(), port, "127.0.0.1")
        with pytest.raises(PortError, match=f"port {port} .*pid {os.getpid()}"):
            Cassandra(tmp_path, port=port).start()
    assert not ports.is_held(port, "127.0.0.1")


def test_pid_file_never_names_a_strangers_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    # A pid that was given anew: same number, another start time.
    pid_file.write_text(f"{os.getpid()} 1\n")
    assert processes.recall(pid_file) is None
    assert processes.end(pid_file, timeout_s=1) is False
    pid_file.write_text("nonsense")
    assert processes.recall(pid_file) is None
    child = subprocess.Popen(["sleep", "60"])
    processes.remember(child.pid, pid_file)
    assert processes.recall(pid_file) == child.pid
    assert processes.end(pid_file, timeout_s=10) is True
    assert processes.start_time(child.pid) is None
    child.wait()


LINGERING = """
import ctypes, socket, threading, time
held = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: (print(held.getsockname()[1], flush=True), time.sleep(60))).start()
ctypes.CDLL(None).syscall(60, 0)  # the first thread alone exits
"""


def test_sockets_are_told_of_a_process_that_opens_and_closes_files() -> None:
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            for descriptor in [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]:
                os.close(descriptor)

    busy = threading.Thread(target=churn)
    busy.start()
    try:
        with socket.socket() as one:
            inode = os.readlink(f"/proc/self/fd/{one.fileno()}").removeprefix("socket:[").removesuffix("]")
            assert all(inode in ports.sockets(os.getpid()) for _ in range(100))
    finally:
        done.set()
        busy.join()


def test_a_process_runs_until_its_last_thread_has_let_go_of_its_ports(tmp_path: Path) -> None:
    """Threads of a process that is killed end one after another; a restart must not find the port held."""
    child = subprocess.Popen([sys.executable, "-c", LINGERING], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        processes.remember(child.pid, tmp_path / "pid")
        deadline = time.monotonic() + 10
        while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert ports.is_held(port, "127.0.0.1")
        assert processes.recall(tmp_path / "pid") == child.pid
        assert processes.end(tmp_path / "pid", timeout_s=10, by=signal.SIGKILL) is True
        assert not ports.is_held(port, "127.0.0.1")
    finally:
        child.kill()
        child.communicate()


def test_bad_arguments_are_refused_before_anything_starts(tmp_path: Path) -> None:
    for arguments in (["up", "--port", "80"], ["up", "--nodes", "4"], ["up", "--heap", "1"], ["sideways"], []):
        with pytest.raises(SystemExit) as refused:
            main(arguments)
        assert refused.value.code == 2
    with pytest.raises(NodeError, match="1 to 3 nodes"):
        Cassandra(tmp_path, nodes=0)


def test_data_of_other_settings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"nodes": 3, "port": 9042, "storage_port": 19042, "auth": false}')
    with pytest.raises(NodeError, match=r"1 node without log-in .* Found: data of 3 nodes"):
        Cassandra(tmp_path)
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(DevstackError, match=r"cluster\.json"):
        Cassandra(tmp_path)


def test_second_node_side_by_side_up_down_and_killed(
    cassandra: Cassandra, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One extra node for all that a life on the command line brings: up twice, kill -9, log-in, down twice."""
    # Compiled for a quick start.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    data = tmp_path / "data with space"
    port = ports.free(["127.0.0.1"], 1)[0]
    arguments = ["--data", str(data)]
    try:
        assert main(["up", "--port", str(port), "--auth", *arguments]) == 0
        assert "up after" in capsys.readouterr().out
        server = Cassandra(data, auth=True)
        assert server.port == port != cassandra.port
        pid = server.nodes[0].pid

        assert main(["up", "--port", str(port), "--auth", *arguments]) == 0
        assert "was up" in capsys.readouterr().out
        assert server.nodes[0].pid == pid
        assert main(["status", *arguments]) == 0

        with pytest.raises(NodeError), session_refused():
            release_version("127.0.0.1", port, timeout_s=0)
        ids = _write_until_killed(server)
        assert main(["status", *arguments]) == 1

        assert main(["up", "--port", str(port), "--auth", *arguments]) == 0
        with server.session() as cql:
            found = {row.id for row in cql.execute("SELECT id FROM durable.t")}
        assert len(ids) > 50
        assert set(ids) <= found

        assert main(["down", *arguments]) == 0
        assert main(["down", *arguments]) == 0
        assert "was not up" in capsys.readouterr().out
        assert not ports.is_held(port, "127.0.0.1")
        assert cassandra.is_up()
    finally:
        main(["clean-data", *arguments])
    assert not data.exists()


def test_up_interrupted_leaves_no_process(tmp_path: Path) -> None:
    port = ports.free(["127.0.0.1"], 1)[0]
    command = [sys.executable, "-m", "devstack", "up", "--port", str(port), "--data", str(tmp_path)]
    root = Path(__file__).resolve().parent.parent
    child = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True)
    pid_file = tmp_path / "node1" / "pid"
    _wait_for(pid_file.exists, timeout_s=30)
    pid = int(pid_file.read_text().split()[0])
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "interrupted" in said
    assert processes.start_time(pid) is None


@contextmanager
def session_refused() -> Iterator[None]:
    """What the driver says at length about a log-in that is wanted is not of interest."""
    import logging

    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _write_until_killed(server: Cassandra) -> list[uuid.UUID]:
    """Write from several requests at once, kill -9 the node meanwhile; the ids whose writes were acknowledged."""
    acknowledged: list[uuid.UUID] = []
    with session_refused(), server.session() as cql:
        cql.execute(
            "CREATE KEYSPACE IF NOT EXISTS durable WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
        )
        cql.execute("CREATE TABLE IF NOT EXISTS durable.t (id uuid PRIMARY KEY, data blob)")
        insert = cql.prepare("INSERT INTO durable.t (id, data) VALUES (?, ?)")
        blob = os.urandom(2000)
        killed = False
        deadline = time.monotonic() + 30
        while not killed and time.monotonic() < deadline:
            ids = [uuid.uuid4() for _ in range(32)]
            futures = [(one, cql.execute_async(insert, (one, blob))) for one in ids]
            if len(acknowledged) > 300:
                killed = server.kill()
            for one, future in futures:
                try:
                    future.result()
                except Exception:
                    continue
                acknowledged.append(one)
    assert killed
    return acknowledged


def _wait_for(condition, *, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def _listening_addresses(pid: int) -> set[str]:
    """The IPv4 addresses on which `pid` listens."""
    own = ports.sockets(pid)
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in own:
                packed = bytes.fromhex(fields[1].partition(":")[0][-8:])[::-1]
                addresses.add(socket.inet_ntoa(packed))
    return addresses
