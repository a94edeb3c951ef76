"""The doctor beside real servers."""

import json
from pathlib import Path

import pytest

from imagestrata.cli import main
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.devstack.servers.s3 import S3
from tests.support.dataset_servers import ServerInThread


def test_servers_that_answer_are_ok_and_their_clocks_agree(
    cassandra: Cassandra, s3: S3, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServerInThread(tmp_path / "root") as server:
        places = ["--hosts", cassandra.hosts[0], "--port", str(cassandra.port)]
        main(["doctor", *places, "--s3-endpoint", s3.endpoint, "--url", server.url, "--json"])
    told = {check["name"]: check["state"] for check in json.loads(capsys.readouterr().out)}
    for name in ("Cassandra", "S3", "dataset service"):
        assert told[name] == "ok"
        assert told[f"clock of {name}"] == "ok"
