"""jobs/cache_rows.py: a whole table as a rows file, and what is wrong about a command."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from split_folders import image_ids, write_split_folder
from test_split_job import fill

import loader
from devstack.cassandra import Cassandra
from etl.cassandra import Control
from etl.errors import OutputExistsError
from jobs.cache_rows import data_table_of, parse_args, run
from schemas import Columns, TableName, image_id

JOB = Path(__file__).parent.parent / "jobs" / "cache_rows.py"


def test_a_table_becomes_a_rows_file_with_each_of_its_images_once(spark: SparkSession, tmp_path: Path) -> None:
    columns = Columns(id="patch_id")
    fill(spark, "rows_train", columns=columns, labels=[number % 3 for number in range(50)])
    out = tmp_path / "train.rows"
    plan, as_json = parse_args(
        ["--metadata-table", "rows_train.metadata", "--rows-fn", str(out), "--id-col", "patch_id"]
    )
    assert not as_json
    report = run(spark, plan=plan)
    assert (report.rows, report.classes, report.out) == (50, 3, str(out))
    split = loader.open_rows(out, cache=tmp_path / "cache")
    assert (len(split), split.num_classes, split.data_table) == (50, 3, "rows_train.data")
    assert (split.columns.id, split.fingerprint) == ("patch_id", report.fingerprint)
    wanted = {image_id("rows_train", b"", str(number).encode()).bytes: number % 3 for number in range(50)}
    assert split.labels is not None
    assert dict(zip(map(bytes, split.ids), split.labels.tolist(), strict=True)) == wanted
    assert str(report).startswith(f"cached 50 rows of 3 classes at {out} in ")
    with pytest.raises(OutputExistsError):
        run(spark, plan=plan)
    assert run(spark, plan=replace(plan, overwrite=True)) == report


def test_the_command_line_works_as_it_stands(spark: SparkSession, cassandra: Cassandra, tmp_path: Path) -> None:
    fill(spark, "rows_command", columns=Columns(), labels=[0, 1, 1])
    with Control.from_spark(spark) as control:
        control.execute('DROP TABLE "rows_command"."data"')
    where = ["--conf", f"spark.cassandra.connection.host={','.join(cassandra.hosts)}"]
    where += ["--conf", f"spark.cassandra.connection.port={cassandra.port}", "--conf", "spark.ui.enabled=false"]
    command = ["spark-submit", *where, str(JOB), "--metadata-table=rows_command.metadata", "--rows-fn", "train.rows"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert found.returncode == 1
    lines = [line for line in (found.stdout + found.stderr).splitlines() if line.startswith("cache_rows.py: ")]
    assert len(lines) == 1
    assert lines[0].startswith("cache_rows.py: Wanted the table rows_command.data at ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--rows-fn"),
        (
            ["--rows-fn", "r", "--metadata-table", "ks.facts"],
            "Wanted --data-table, or metadata in the",
        ),
        (["--rows-fn", "r", "--metadata-table", "metadata"], "keyspace.table"),
        (["--rows-fn", "r", "--metadata-table", "ks.metadata", "--data-table", "ks.metadata"], "two different tables"),
        (["--rows-fn", " ", "--metadata-table", "ks.metadata"], "an empty name"),
        (["--rows-fn", "r", "--metadata-table", "ks.metadata", "--seed", str(1 << 63)], "a seed of 64 bits"),
        (["--rows-fn", "r", "--metadata-table", "ks.metadata", "--id-col", "label"], "three different columns"),
    ],
)
def test_a_command_that_cannot_be_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse_args(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("metadata", "data"),
    [("metadata_train", "data_train"), ("metadata", "data"), ("my_metadata_v2", "my_data_v2")],
)
def test_tables_of_pictures_are_found_by_name(metadata: str, data: str) -> None:
    assert data_table_of(TableName("ks", metadata)) == TableName("ks", data)


def test_rows_are_read_from_the_table_that_is_named(tmp_path: Path) -> None:
    rows = image_ids(6), [0, 1, 2, 0, 1, 2]
    one = write_split_folder(tmp_path / "one", [rows], data_table="ks.data")
    split = loader.open_rows(one, data_table="other.pictures", cache=tmp_path / "cache")
    assert split.data_table == "other.pictures"
    code = "import pickle, sys; split = pickle.loads(sys.stdin.buffer.read()); print(split.data_table, len(split))"
    found = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(split), capture_output=True, check=True)
    assert found.stdout == b"other.pictures 6\n"
    assert np.array_equal(split.ids, loader.open_split(one, cache=tmp_path / "cache").ids)
    two = write_split_folder(tmp_path / "two", [rows, rows])
    with pytest.raises(loader.SplitError, match=r"a rows file, .* at .*two\. Found: 2 splits"):
        loader.open_rows(two, cache=tmp_path / "cache")
    for wrong in ("pictures", 5):
        with pytest.raises(loader.OptionError, match=str(wrong)):
            loader.open_rows(one, data_table=wrong, cache=tmp_path / "cache")  # type: ignore[arg-type]
