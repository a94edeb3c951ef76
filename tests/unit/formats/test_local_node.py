"""The file by which jobs and trainings find the Cassandra of `imagestrata up`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from formats import local_node
from formats.local_node import LocalNode
from schemas import FormatVersionError, SchemaError

ROOT = Path(__file__).resolve().parents[3]
RUNNING_WITHOUT_ACCESS = LocalNode.of(["127.0.0.1"], 9151, [os.getpid()])


def test_a_note_comes_back_as_it_was_written(tmp_path: Path) -> None:
    node = LocalNode.of(["127.0.0.1", "127.0.0.2"], 9151, [os.getpid()])
    node.write(tmp_path / "node.json")
    assert LocalNode.find(tmp_path / "node.json") == node
    assert node.is_running
    assert str(node) == "127.0.0.1,127.0.0.2 port 9151"


def test_without_a_note_there_is_no_node(tmp_path: Path) -> None:
    assert LocalNode.find(tmp_path / "node.json") is None
    (tmp_path / "deps.zip").touch()
    assert LocalNode.find(tmp_path / "deps.zip" / "node.json") is None


def test_the_note_is_in_the_folder_that_imagestrata_up_uses(tmp_path: Path) -> None:
    from imagestrata.devstack.commands import DATA

    assert local_node.PLACE.parent == DATA == ROOT / "build" / "cassandra"


def test_without_a_checkout_data_are_in_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_node.data_folder(ROOT) == ROOT / "build"
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", "/me")
    assert local_node.data_folder(tmp_path) == Path("/me/.local/share/imagestrata")
    monkeypatch.setenv("XDG_DATA_HOME", "/data/me")
    assert local_node.data_folder(tmp_path / "deps.zip") == Path("/data/me/imagestrata")


def test_a_node_that_ended_does_not_run_even_if_its_pid_is_used_again() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        node = LocalNode.of(["127.0.0.1"], 9042, [child.pid])
        assert node.is_running
        child.kill()
    assert not node.is_running
    assert not LocalNode(("127.0.0.1",), 9042, ((os.getpid(), "1"),)).is_running


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "hosts": ["h"], "port": "x", "processes": []}']
)
def test_a_damaged_note_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "node.json").write_text(text)
    with pytest.raises(SchemaError, match=str(tmp_path / "node.json")):
        LocalNode.find(tmp_path / "node.json")


def test_a_note_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text('{"format": 2}')
    with pytest.raises(FormatVersionError, match="format 2"):
        LocalNode.find(tmp_path / "node.json")


def test_the_access_of_a_role_is_read_from_the_folder_in_the_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reader.env").write_text("IMAGESTRATA_USERNAME=reader\nIMAGESTRATA_CA='/a b/ca.pem'\n")
    (tmp_path / "jobs.conf").write_text("spark.cassandra.auth.username writer\nspark.x /a b/c\n")
    LocalNode.of(["127.0.0.1", "127.0.0.2"], 9151, [os.getpid()], tmp_path).write(tmp_path / "node.json")
    monkeypatch.setattr(local_node, "PLACE", tmp_path / "node.json")
    node = LocalNode.at(["127.0.0.2"], 9151)
    assert node is not None
    assert node.variables("reader") == {"IMAGESTRATA_USERNAME": "reader", "IMAGESTRATA_CA": "/a b/ca.pem"}
    assert node.properties == {"spark.cassandra.auth.username": "writer", "spark.x": "/a b/c"}
    for hosts, port in ((["127.0.0.3"], 9151), (["127.0.0.1"], 9152), (["10.0.0.1"], 9151)):
        assert LocalNode.at(hosts, port) is None
    assert RUNNING_WITHOUT_ACCESS.variables("reader") == RUNNING_WITHOUT_ACCESS.properties == {}
