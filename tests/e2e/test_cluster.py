"""The jobs on executors that are separate processes, where the project is not installed: shipped as a zip."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from formats import open_split
from imagestrata.devstack import packaging
from imagestrata.devstack.servers.cassandra import Cassandra
from tests.support.pictures import picture

ROOT = Path(__file__).resolve().parents[2]


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


def test_ingest_and_split_run_from_the_zip_alone(
    cassandra: Cassandra, keyspace: str, bare_python: Path, tmp_path: Path
) -> None:
    for number, name in enumerate(("ant", "bee")):
        (tmp_path / "tree" / name).mkdir(parents=True)
        for each in range(6):
            (tmp_path / "tree" / name / f"{each}.png").write_bytes(picture(number))
    deps = tmp_path / "deps.zip"
    tables = ("--data-table", f"{keyspace}.data", "--metadata-table", f"{keyspace}.metadata")
    packaging.write_archive(deps)

    def submit(job: str, *args: str) -> str:
        done = subprocess.run(
            [
                *(Path(sys.executable).parent / "spark-submit", "--master", "local-cluster[2,1,1024]"),
                *("--conf", f"spark.cassandra.connection.port={cassandra.port}"),
                *("--conf", "spark.ui.showConsoleProgress=false", "--py-files", deps),
                *(ROOT / "jobs" / job, *tables, *args),
            ],
            cwd="/",
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "PYSPARK_PYTHON": str(bare_python),
                "PYSPARK_DRIVER_PYTHON": str(bare_python),
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    assert re.search(
        rf"^ingested 12 images .* of 2 classes into {keyspace}\.data", submit("ingest.py", str(tmp_path / "tree")), re.M
    )
    out = tmp_path / "splits"
    assert "split 12 images of 2 classes into 10 + 2" in submit("split.py", "-r", "5,1", "-o", str(out))
    assert len(open_split(out).rows(1, cache=tmp_path / "cache")) == 2
