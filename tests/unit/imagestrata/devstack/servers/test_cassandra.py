"""The embedded Cassandra: what is refused before a node starts."""

import json
import os
import socket
from pathlib import Path

import pytest

from imagestrata.devstack import DevstackError, NodeError, PortError
from imagestrata.devstack.commands import main
from imagestrata.devstack.servers import ports
from imagestrata.devstack.servers.cassandra import Cassandra, check_room
from imagestrata.devstack.servers.node import Node, Settings


def test_bad_arguments_are_refused_before_anything_starts(tmp_path: Path) -> None:
    for arguments in (["up", "--port", "80"], ["up", "--nodes", "4"], ["up", "--heap", "512"], ["down", "--port", "1"]):
        with pytest.raises(SystemExit) as refused:
            main(arguments)
        assert refused.value.code == 2
    with pytest.raises(NodeError, match="1 to 3 nodes"):
        Cassandra(tmp_path, nodes=0)


def test_acknowledged_writes_are_on_the_disk_by_default(tmp_path: Path) -> None:
    alone = Settings(nodes=1, port=9042, storage_port=7000, auth=False)
    found = json.loads(Node(tmp_path, 0, alone, 512, {}, ()).yaml())
    assert (found["commitlog_sync"], found["commitlog_sync_group_window"]) == ("group", "15ms")
    assert (found["disk_failure_policy"], found["commit_failure_policy"]) == ("stop", "stop")


def test_a_full_disk_is_named_before_a_node_starts(tmp_path: Path) -> None:
    check_room(tmp_path, 250_000_000, nodes=1)
    with pytest.raises(NodeError, match=rf"Wanted 750 MB of free space .* {tmp_path}\. Found: 250 MB\. Free some"):
        check_room(tmp_path, 250_000_000, nodes=3)


def test_data_of_other_settings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"nodes": 3, "port": 9042, "storage_port": 19042, "auth": false}')
    with pytest.raises(NodeError, match=r"1 node without log-in .* Found: data of 3 nodes"):
        Cassandra(tmp_path)
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(DevstackError, match=r"cluster\.json"):
        Cassandra(tmp_path)


def test_listener_on_every_address_counts_as_foreign(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as stranger:
        port = stranger.getsockname()[1]
        assert ports.holds(os.getpid(), port, "127.0.0.1")
        with pytest.raises(PortError, match=f"port {port} .*pid {os.getpid()}"):
            Cassandra(tmp_path, port=port).start()
    assert not ports.is_held(port, "127.0.0.1")
