"""Three nodes of Cassandra that require TLS and passwords, and jobs on a Spark master with two workers, whose Python
has only the project's zip.
"""

import json
import os
import random
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import spark_start
from tests.support.drills import faults, works
from tests.support.drills.drill import Drill, run
from tests.support.drills.world import World, ended, world

ROOT = Path(__file__).resolve().parents[2]
IMAGES = 120
FACTS = {"features": IMAGES, "corrected": 1, "wrong": 0, "deleted": IMAGES // 4}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("cluster"), images=IMAGES, secure=True) as made:
        yield made


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python with all the libraries of this one, but not the project."""
    venv.create(tmp_path / "venv", with_pip=False)
    libraries = sysconfig.get_paths()["purelib"]
    packages = Path(sysconfig.get_paths(vars={"base": str(tmp_path / "venv")})["purelib"])
    (packages / "libraries.pth").write_text(libraries + "\n")  # the .pth files in it are not processed
    python = tmp_path / "venv" / "bin" / "python"
    missing = subprocess.run(
        [python, "-c", "import pyspark, etl"], cwd="/", capture_output=True, text=True, check=False
    )
    assert "No module named 'etl'" in missing.stderr
    return python


def facts_of(cluster: World, keyspace: str, *options: str, python: Path | None = None) -> dict[str, object]:
    """What all jobs give, submitted with these options."""
    names = {} if python is None else {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    script = cluster.folder / "all_jobs.py"  # in a folder without the project
    script.write_bytes((ROOT / "tests" / "support" / "all_jobs.py").read_bytes())
    program = str(Path(sys.executable).with_name("spark-submit"))
    done = subprocess.run(
        [program, *options, str(script), str(cluster.tree), keyspace, str(cluster.folder / keyspace)],
        cwd=cluster.folder, env={**os.environ, **names}, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    facts: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert facts.items() >= FACTS.items()
    del facts["log_run"]
    return facts


def values_of(cluster: World, keyspace: str) -> list[tuple[object, ...]]:
    return sorted(cluster.rows(f"SELECT id, sharpness FROM {keyspace}.metadata_sharpness_v2"))


def test_all_jobs_give_the_same_on_a_cluster_as_in_one_process(cluster: World, bare_python: Path) -> None:
    properties = ["--properties-file", str(cluster.spark.submit_conf)]
    compiled = spark_start.options(spark_start.COMPILED)  # as users' expressions are, unlike those of other tests
    there = facts_of(cluster, "there", *properties, *compiled, python=bare_python)
    here = facts_of(cluster, "here", *properties, "--master", "local[2]")
    assert there == here
    assert values_of(cluster, "there") == values_of(cluster, "here")


@pytest.mark.slow  # Spark asks the master for a minute
def test_a_program_without_the_secret_is_not_accepted(cluster: World) -> None:
    script = cluster.folder / "stranger.py"
    script.write_text(
        "from pyspark.sql import SparkSession\nprint(SparkSession.builder.getOrCreate().range(9).count())"
    )
    program = [str(Path(sys.executable).with_name("spark-submit")), "--master", cluster.spark.master, str(script)]
    code, said = ended(cluster.start(program), seconds=200)
    assert code not in (0, None)
    assert "All masters are unresponsive" in said


@pytest.mark.parametrize(
    "drill", [Drill(works.INGEST, faults.WORKER), Drill(works.EPOCH, faults.ALL_NODES)], ids=lambda drill: drill.name
)
def test_nothing_is_lost_doubled_or_wrong(cluster: World, drill: Drill) -> None:
    outcome = run(cluster, drill, random.Random(5))
    assert not outcome.wrong
