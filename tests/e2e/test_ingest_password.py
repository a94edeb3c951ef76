"""An ingest into a Cassandra that wants a password."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from devstack.cassandra import DEFAULT_PASSWORD, DEFAULT_USER, Cassandra
from etl.cassandra import Control
from etl.cluster import Cluster
from etl.errors import UnreachableError
from jobs import ingest as job
from tests.support.trees import tree

SECRET = "hardly-guessed-7"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """A Cassandra that wants a password."""
    with Cassandra(tmp_path_factory.mktemp("guarded"), auth=True) as server:
        cluster = Cluster(tuple(server.hosts), server.port, username=DEFAULT_USER)
        with Control(cluster, password=DEFAULT_PASSWORD) as control:
            control.define(f"CREATE ROLE writer WITH PASSWORD = '{SECRET}' AND LOGIN = true AND SUPERUSER = true")
        yield server


def test_the_password_reaches_the_executors(guarded: Cassandra, tmp_path: Path) -> None:
    conf = {
        "spark.cassandra.connection.port": str(guarded.port),
        "spark.cassandra.auth.username": "writer",
        "spark.cassandra.auth.password": SECRET,
        "spark.ui.enabled": "false",
    }
    given = [text for name, value in conf.items() for text in ("--conf", f"{name}={value}")]
    program = str(Path(sys.executable).with_name("spark-submit"))
    options = ["--split-subdir=train", "--data-table=guarded.data", "--metadata-table=guarded.metadata", "--json"]
    command = [program, "--master", "local[2]", *given, job.__file__, str(tree(tmp_path, each=1)), *options]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["images"] == 3
    assert SECRET not in done.stdout + done.stderr


def test_a_wrong_password_is_reported_in_one_line_without_it(guarded: Cassandra) -> None:
    cluster = Cluster(tuple(guarded.hosts), guarded.port, username="writer")
    with pytest.raises(UnreachableError, match="refuses user 'writer'") as caught, Control(cluster, password="wrong-8"):
        pass
    assert "wrong-8" not in str(caught.value)
    with pytest.raises(UnreachableError, match=r"spark\.cassandra\.auth"), Control(replace(cluster, username=None)):
        pass
