"""`imagestrata plan --measure` on a real table, near and far."""

import json
from pathlib import Path

import pytest

from imagestrata.cli import main
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.devstack.servers.delay import DelayProxy
from tests.support.pictures import write_table
from tests.support.split_folders import image_ids, write_split_folder


def test_a_plan_begins_with_what_two_ranks_read(
    cassandra: Cassandra, keyspace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = image_ids(300)
    write_table(f"{keyspace}.blobs", dict.fromkeys(ids, bytes(3000)), hosts=cassandra.hosts, port=cassandra.port)
    folder = write_split_folder(tmp_path / "split", [(ids, [0, 1] * 150)], data_table=f"{keyspace}.blobs")
    usual = ["plan", "--split", str(folder), "--gpus", "2", "--seconds", "1", "--json"]
    with DelayProxy(cassandra.port, rtt=0.05) as proxy:
        assert main([*usual, "--measure", "127.0.0.1", "--port", str(proxy.port)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measured"]["image_bytes"] == found["plan"]["image_bytes"] == 3000
    assert 0.05 <= found["measured"]["round_trip"] < 0.5
    assert found["plan"]["cluster"] == found["measured"]["rate"] > 0
    assert main([*usual, "--measure", "127.0.0.1", "--port", str(cassandra.port), "--rtt", "300ms"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["round_trip"] == 0.3
    assert main(["plan", "--split", str(folder), "--measure", "127.0.0.1", "--port", "1"]) == 1
    assert "Wanted Cassandra at 127.0.0.1" in capsys.readouterr().err
