"""jobs/cache_rows.py: a whole table as a row list, and errors in one line."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import loader
from etl.cassandra.control import Control
from etl.errors import OutputExistsError
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs.cache_rows import parse_args, run
from schemas import Columns, image_id
from tests.support.tables import fill

JOB = Path(__file__).resolve().parents[3] / "jobs" / "cache_rows.py"


def test_a_table_is_written_to_a_row_list_with_each_image_once(
    spark: SparkSession, keyspace: str, tmp_path: Path
) -> None:
    columns = Columns(id="patch_id")
    fill(spark, keyspace, columns=columns, labels=[number % 3 for number in range(50)])
    out = tmp_path / "train.rows"
    plan, args = parse_args(["--metadata-table", f"{keyspace}.metadata", "--rows-fn", str(out), "--id-col", "patch_id"])
    assert not args.json
    report = run(spark, plan=plan)
    assert (report.rows, report.classes, report.out) == (50, 3, str(out))
    split = loader.open_rows(out, cache=tmp_path / "cache")
    assert (len(split), split.num_classes, split.data_table) == (50, 3, f"{keyspace}.data")
    assert (split.columns.id, split.fingerprint) == ("patch_id", report.fingerprint)
    wanted = {image_id(keyspace, b"", str(number).encode()).bytes: number % 3 for number in range(50)}
    assert split.labels is not None
    assert dict(zip(map(bytes, split.ids), split.labels.tolist(), strict=True)) == wanted
    assert str(report).startswith(f"wrote 50 rows of 3 classes to {out} in ")
    with pytest.raises(OutputExistsError):
        run(spark, plan=plan)


def test_the_command_ends_with_one_line_that_says_why_it_failed(
    spark: SparkSession, cassandra: Cassandra, keyspace: str, tmp_path: Path
) -> None:
    fill(spark, keyspace, columns=Columns(), labels=[0, 1, 1])
    with Control.from_spark(spark) as control:
        control.execute(f'DROP TABLE "{keyspace}"."data"')
    where = ["--conf", f"spark.cassandra.connection.host={','.join(cassandra.hosts)}"]
    where += ["--conf", f"spark.cassandra.connection.port={cassandra.port}", "--conf", "spark.ui.enabled=false"]
    submit = str(Path(sys.executable).with_name("spark-submit"))
    command = [submit, *where, str(JOB), f"--metadata-table={keyspace}.metadata", "--rows-fn", "train.rows"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert found.returncode == 1
    lines = [line for line in (found.stdout + found.stderr).splitlines() if line.startswith("cache_rows.py: ")]
    assert len(lines) == 1
    assert lines[0].startswith(f"cache_rows.py: Wanted the table {keyspace}.data at ")
    assert list(tmp_path.iterdir()) == []
