"""A node on the command line from start to end, including a kill."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from formats.local_node import LocalNode
from imagestrata.devstack import NodeError
from imagestrata.devstack.commands import main
from imagestrata.devstack.servers import ports
from imagestrata.devstack.servers.cassandra import Cassandra, connect


def test_a_second_node_starts_stops_and_keeps_its_writes_when_killed(
    cassandra: Cassandra, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more node, used on the command line: started twice, kill -9, log-in, stopped twice."""
    # Compiled for a quick start.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    data = tmp_path / "data with space"
    port = ports.free(["127.0.0.1"], 1)[0]
    arguments = ["--data", str(data)]
    try:
        assert main(["up", "--port", str(port), "--auth", *arguments]) == 0
        assert "started in" in capsys.readouterr().out
        server = Cassandra(data, auth=True)
        assert server.port == port != cassandra.port
        pid = server.nodes[0].pid

        assert main(["up", "--port", str(port), "--auth", *arguments]) == 0
        assert "is already running" in capsys.readouterr().out
        assert server.nodes[0].pid == pid
        assert main(["status", *arguments]) == 0
        note = LocalNode.find(data / "node.json")
        assert note is not None
        assert (note.hosts, note.port, note.is_running) == (("127.0.0.1",), port, True)

        with pytest.raises(NodeError), session_refused(), connect(["127.0.0.1"], port, timeout_s=0):
            pass
        ids = _write_until_killed(server)
        assert main(["status", *arguments]) == 1
        assert not note.is_running

        assert main(["up", "--port", str(port), "--auth", *arguments]) == 0
        with server.session() as cql:
            found = {row.id for row in cql.execute("SELECT id FROM durable.t")}
        assert len(ids) > 50
        assert set(ids) <= found

        assert LocalNode.find(data / "node.json") != note
        assert main(["down", *arguments]) == 0
        assert LocalNode.find(data / "node.json") is None
        assert main(["down", *arguments]) == 0
        assert "was not running" in capsys.readouterr().out
        assert not ports.is_held(port, "127.0.0.1")
        assert cassandra.is_up()
    finally:
        main(["clean-data", *arguments])
    assert not data.exists()


@contextmanager
def session_refused() -> Iterator[None]:
    """Ignore the driver's long messages about a required log-in."""
    import logging

    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _write_until_killed(server: Cassandra) -> list[uuid.UUID]:
    """Write from several requests, kill -9 the node meanwhile, and return the ids whose writes were acknowledged."""
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
