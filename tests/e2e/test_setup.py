"""The set-up as users see it: make targets, a second run, and plain spark-submit in the result."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from imagestrata.devstack.environment import Environment
from imagestrata.devstack.servers.cassandra import Cassandra

ROOT = Path(__file__).resolve().parents[2]


def test_a_second_set_up_finds_all_steps_ready() -> None:
    asked, current = Environment().installed()
    if not current:
        pytest.skip("this environment was not made by the set-up, or the locks changed since")
    options = [f"--extra={name}" for name in asked.extras] + [f"--group={name}" for name in asked.groups]
    command = [sys.executable, "-m", "imagestrata.devstack.environment", *options]
    env = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}  # of this run
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 6
    assert all(re.search(r" ready .* \d\.\d s$", line) for line in lines), done.stderr


SCRIPT = """
import sys
from pyspark.sql import SparkSession

def where(rows):
    import etl, schemas
    import os
    for _ in rows:
        yield (os.getpid(), os.getppid(), etl.__name__ + schemas.__name__)

if __name__ == "__main__":
    spark = SparkSession.builder.appName("set-up").getOrCreate()
    import etl, schemas
    found = spark.sparkContext.parallelize(range(4), 4).mapPartitions(where).collect()
    table = spark.read.format("org.apache.spark.sql.cassandra").options(keyspace=sys.argv[1], table="t").load()
    rows = sorted(table.collect())
    zone = spark.conf.get("spark.sql.session.timeZone")
    print("RESULT", spark.sparkContext.master, zone, {name for _, _, name in found}, [tuple(row) for row in rows])
    spark.stop()
"""


def test_spark_submit_finds_connector_defaults_and_packages_on_executors(
    cassandra: Cassandra, keyspace: str, tmp_path: Path
) -> None:
    with cassandra.session() as cql:
        cql.execute(
            f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}}"
        )
        cql.execute(f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, name text)")
        for number, name in ((1, "one"), (2, "two")):
            cql.execute(f"INSERT INTO {keyspace}.t (id, name) VALUES (%s, %s)", (number, name))
    script = tmp_path / "a script.py"
    script.write_text(SCRIPT)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "JAVA"))}
    env["PATH"] = f"{sys.prefix}/bin:{env['PATH']}"
    env.pop("PYTHONPATH", None)
    # The quick compiler, because four JVMs live for seconds.
    env["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1"
    command = ["spark-submit", "--master", "local-cluster[2,1,1024]", "--driver-memory", "512m"]
    command += ["--conf", f"spark.cassandra.connection.port={cassandra.port}"]
    done = subprocess.run(
        [*command, str(script), keyspace], cwd="/", env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "RESULT local-cluster[2,1,1024] UTC {'etlschemas'} [(1, 'one'), (2, 'two')]" in done.stdout
    # The user should read the job's lines, so Spark's start-up remarks are hidden. Java's own cannot be.
    remarks = {line for line in done.stderr.splitlines() if "WARN" in line or "INFO" in line}
    assert remarks <= {"WARNING: Using incubator modules: jdk.incubator.vector"}


def make(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    # Without the variables of an outer make, such as `make test-e2e PYTHON=...`, which change what make prints.
    theirs = ("MAKE", "MFLAGS")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHON" and not k.startswith(theirs)}
    return subprocess.run(
        ["make", "-C", str(ROOT), "--no-print-directory", *arguments],
        cwd="/",
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("target", "wanted"),
    [("setup", "Python 3.11, 3.12 or 3.13"), ("demo", "Python 3.11, 3.12 or 3.13"), ("test-spark3", "Python 3.11")],
)
@pytest.mark.parametrize("version", ["3.10.13", "3.14.2", None])
def test_make_refuses_another_python_in_one_line(tmp_path: Path, target: str, wanted: str, version: str | None) -> None:
    """The only Python on PATH is of another version, or there is none."""
    for tool in ("make", "bash", "sh", "env"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    if version:
        major = version.rpartition(".")[0]
        for name in ("python3", f"python{major}"):
            script = f"#!/bin/bash\n[ $1 = --version ] && echo Python {version} && exit 0\nexit 1\n"
            (tmp_path / name).write_text(script)
            (tmp_path / name).chmod(0o755)
    done = make(target, "VENV=build/no-such-environment", PATH=str(tmp_path))
    assert done.returncode != 0
    error = done.stderr.splitlines()[0]
    found = f"Python {version}" if version else "no python3"
    assert error.startswith(f"error: wanted {wanted}. Found: {found}. Run 'make PYTHON=/path/to/python "), done.stderr
    assert len(done.stderr.splitlines()) == 2  # make's own line


def test_make_demo_refuses_bad_options_before_it_sets_anything_up() -> None:
    done = make("demo", "PORT=abc", f"PYTHON={sys.executable}")
    assert done.returncode == 2
    ours, end = done.stderr.splitlines()  # make prints the other line
    assert "--port: wanted a port from 1024 to 65535." in ours
    assert end.startswith("make: ***")


def test_make_passes_paths_with_spaces_on() -> None:
    done = make("--dry-run", "demo", "DATA=/my data/tree")
    assert 'imagestrata demo --data "/my data/tree"' in done.stdout
