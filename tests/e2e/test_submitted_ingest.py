"""jobs/ingest.py with spark-submit, as users run it: settings from Spark, and no password in what it leaves."""

import json
import subprocess
import sys
from pathlib import Path

from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import ingest as job
from tests.support.trees import tree

SECRET = "hardly-guessed-7"


def test_a_submitted_command_reads_spark_settings_and_shows_no_password(
    cassandra: Cassandra, keyspace: str, tmp_path: Path
) -> None:
    """As users run it, from another folder. This server accepts any password."""
    events = tmp_path / "events"
    events.mkdir()
    conf = {
        "spark.cassandra.connection.port": str(cassandra.port),
        "spark.cassandra.auth.username": "writer",
        "spark.cassandra.auth.password": SECRET,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",  # Spark 4 compresses unless this is set
        "spark.imagestrata.source": str(tree(tmp_path / "tree", each=1)),
        "spark.imagestrata.split-subdir": "train,val",
        "spark.imagestrata.data-table": f"{keyspace}.data",
        "spark.imagestrata.metadata-table": f"{keyspace}.metadata",
        "spark.ui.enabled": "false",
        # For a few rows, compiling takes longer.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "2",
    }
    given = [text for name, value in conf.items() for text in ("--conf", f"{name}={value}")]
    program = str(Path(sys.executable).with_name("spark-submit"))
    command = [program, "--master", "local[2]", *given, job.__file__, "--json"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr  # Spark prints the errors of its Python to stdout
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["images"], report["classes"], report["images_by_split"]) == (6, 3, {"train": 3, "val": 3})
    logged = "".join(file.read_text() for file in events.rglob("*") if file.is_file())
    assert "SparkListenerJobStart" in logged
    assert SECRET not in done.stdout + done.stderr + logged
