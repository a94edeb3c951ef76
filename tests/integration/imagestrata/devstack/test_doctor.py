"""The doctor with real servers."""

import json
from pathlib import Path

import pytest

from formats.stores.storage import Storage
from imagestrata.cli import main
from imagestrata.devstack import doctor
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.devstack.servers.s3 import S3
from imagestrata.service.tokens import Tokens
from tests.support.dataset_servers import ServerInThread


def test_servers_that_answer_are_ok_and_their_clocks_agree(
    cassandra: Cassandra,
    s3: S3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("IMAGESTRATA_TOKEN", raising=False)
    with ServerInThread(tmp_path / "root") as server:
        places = ["--hosts", cassandra.hosts[0], "--port", str(cassandra.port)]
        main(["doctor", *places, "--s3-endpoint", s3.endpoint, "--url", server.url, "--json"])
    told = {check["name"]: check["state"] for check in json.loads(capsys.readouterr().out)}
    for name in ("Cassandra", "S3", "dataset service"):
        assert told[name] == "ok"
        assert told[f"clock of {name}"] == "ok"
    assert told["token of dataset service"] == "ok"


def test_the_service_must_accept_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Tokens(Storage(tmp_path)).create("ci", "read")
    with ServerInThread(tmp_path) as server:
        found = {text: doctor.token(server.url, text) for text in (made, "wrong", None)}
        elsewhere = doctor.token(f"{server.url}/nowhere", made)
        file = tmp_path / "token"
        file.write_text(f"{made}\n")
        monkeypatch.setenv("IMAGESTRATA_TOKEN", "wrong")
        doctor.main(["--url", server.url, "--token-file", str(file)])
    assert "token of dataset service: accepted" in capsys.readouterr().out
    assert (found[made].state, found[made].found) == ("ok", "accepted")
    assert (found["wrong"].state, found["wrong"].found) == ("error", "refused")
    assert (found[None].state, found[None].found) == ("error", "none, and the service needs one")
    assert elsewhere.state == "error"
