"""jobs/split.py over tables in Cassandra: splits of real tables, and tables that are refused."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import OutputExistsError, TableError, UnreachableError
from etl.splits.conditions import check_condition
from etl.splits.metadata_reading import open_metadata
from etl.splits.plan import SplitPlan
from etl.splits.report import SplitReport
from formats import open_split
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs.split import explain, parse_args, run
from schemas import Columns, TableName, image_id
from schemas.tables import Replication, create_data, create_keyspace, create_metadata, create_shared
from tests.support.services import fresh_name
from tests.support.tables import fill

PATCHES = Columns(id="patch_id", label="klass", data="blob")


def plan(keyspace: str, out: Path, *, columns: Columns | None = None) -> SplitPlan:
    return SplitPlan(
        data_table=TableName(keyspace, "data"),
        metadata_table=TableName(keyspace, "metadata"),
        out=str(out),
        seed=7,
        columns=columns or Columns(),
    )


class Made(NamedTuple):
    """A split of tables with other column names, and the cache of their metadata."""

    keyspace: str
    folder: Path
    cache: Path
    report: SplitReport


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Open a split: ten images of class 0, and five of class 2, whose names only their rows have.

    Someone has added columns with any names.
    """
    keyspace, place = fresh_name("split"), tmp_path_factory.mktemp("made")
    fill(spark, keyspace, columns=PATCHES, labels=[0] * 10 + [2] * 5)
    with Control.from_spark(spark) as control:
        for name in ("Klass", "fixed", "my.col `x`", 'with ""quotes'):  # one cannot be read, and is left out
            control.define(f'ALTER TABLE {keyspace}.metadata ADD "{name}" int')
    wanted = plan(keyspace, place / "split", columns=PATCHES)
    report = run(spark, plan=replace(wanted, metadata_out=str(place / "cache")))
    return Made(keyspace, place / "split", place / "cache", report)


def test_a_table_becomes_a_split_with_the_class_names_of_its_rows(made: Made) -> None:
    assert made.report.rows == [12, 3]
    assert made.report.unused == 0
    assert made.report.counts == [{"class 0": 8, "class 2": 4}, {"class 0": 2, "class 2": 1}]
    manifest = open_split(made.folder).manifest
    assert manifest.num_classes == 3  # numbers go to 2, so a classifier needs three outputs
    assert dict(manifest.class_names) == {0: "class 0", 2: "class 2"}
    assert manifest.data_table == f"{made.keyspace}.data"
    assert manifest.columns == PATCHES


def test_metadata_that_are_kept_are_replaced_only_with_overwrite(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(made.cache, cache)
    kept = replace(plan(made.keyspace, tmp_path / "s", columns=PATCHES), metadata_out=str(cache))
    with pytest.raises(OutputExistsError, match="read it with --metadata-ifn"):
        run(spark, plan=kept)
    assert run(spark, plan=replace(kept, overwrite=True)).fingerprints == made.report.fingerprints
    found = json.loads((cache / "cache.json").read_text())
    assert found["columns"]["id"] == "patch_id"
    assert found["class_names"] == {"0": "class 0", "2": "class 2"}
    files = {str(file.relative_to(cache)) for file in cache.glob("**/*.parquet")}
    assert files == {file["path"] for file in found["files"]}
    assert not files.intersection(str(file.relative_to(made.cache)) for file in made.cache.glob("**/*.parquet"))


@contextmanager
def cassandra_at(spark: SparkSession, host: str, port: int) -> Iterator[None]:
    """Point the session to another Cassandra."""
    settings = ("spark.cassandra.connection.host", "spark.cassandra.connection.port")
    before = [spark.conf.get(name) or "" for name in settings]
    try:
        for name, value in zip(settings, (host, str(port)), strict=True):
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in zip(settings, before, strict=True):
            spark.conf.set(name, value)


def test_splits_are_made_of_kept_metadata_without_a_database(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    again = SplitPlan(metadata_in=str(made.cache), out=str(tmp_path / "s"), seed=7)
    with cassandra_at(spark, "127.0.0.9", 1):
        report = run(spark, plan=again)
    assert report.fingerprints == made.report.fingerprints
    (warning,) = set(report.warnings) - set(made.report.warnings)
    assert warning.startswith(f"not checked that {made.keyspace}.data has these images: Cassandra does not answer.")
    manifest = open_split(tmp_path / "s").manifest
    assert (manifest.data_table, manifest.columns) == (f"{made.keyspace}.data", PATCHES)
    assert explain(
        spark, plan=replace(again, out=None, where="OR_LABEL = 'class 2' AND `my.col ``x``` IS NULL")
    ).rows == [4, 1]


def test_columns_missing_from_the_tables_are_refused(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=rf"Wanted the columns? id, data in {made.keyspace}\.data"):
        run(spark, plan=plan(made.keyspace, tmp_path / "s"))
    with pytest.raises(TableError, match=r"the column colour .* Found: id, label, .*or_split"):
        run(spark, plan=replace(plan(made.keyspace, tmp_path / "s", columns=PATCHES), stratify=("label", "colour")))
    texts = replace(PATCHES, label="or_label")
    wanted = rf"Wanted whole numbers \(int\) in {made.keyspace}\.metadata\.or_label\. Found: text"
    with pytest.raises(TableError, match=wanted):
        run(spark, plan=plan(made.keyspace, tmp_path / "s", columns=texts))
    assert list(tmp_path.iterdir()) == []


def test_the_class_list_names_classes_without_images_too(spark: SparkSession, keyspace: str, tmp_path: Path) -> None:
    fill(spark, keyspace, columns=Columns(), labels=[0, 0, 1, 1])
    with Control.from_spark(spark) as control:
        control.define(create_shared("classes", keyspace))
        for number, name in enumerate(["ant", "bee", "cat"]):
            insert = f'INSERT INTO "{keyspace}"."classes" (dataset, name, label) VALUES (?, ?, ?)'
            control.execute(insert, (keyspace, name, number))
    report = run(spark, plan=plan(keyspace, tmp_path / "s"))
    assert report.counts[0].keys() == {"ant", "bee"}
    assert "3 classes, 1 of them without images: cat" in report.warnings
    assert open_split(tmp_path / "s").manifest.num_classes == 3


def test_duplicate_ids_are_refused_in_tables_with_a_compound_key(
    spark: SparkSession, keyspace: str, tmp_path: Path
) -> None:
    fill(spark, keyspace, columns=Columns(), labels=[])
    with Control.from_spark(spark) as control:
        control.execute(f'DROP TABLE "{keyspace}"."metadata"')
        control.execute(f'CREATE TABLE "{keyspace}"."metadata" (id uuid, part int, label int, PRIMARY KEY (id, part))')
        for part, name in ((0, b"a"), (0, b"b"), (1, b"a")):
            insert = f'INSERT INTO "{keyspace}"."metadata" (id, part, label) VALUES (?, ?, 1)'
            control.execute(insert, (image_id(keyspace, b"", name), part))
    kept = replace(plan(keyspace, tmp_path / "s"), metadata_out=str(tmp_path / "cache"))
    for wanted in (kept, replace(kept, metadata_out=None)):
        with pytest.raises(TableError, match=rf"each id once in {keyspace}\.metadata \(id\)\. Found: 1 more than once"):
            run(spark, plan=wanted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "labels"), [("none", None), ("blob", None), ("multi", [1, 2])])
def test_tables_say_whether_images_have_no_labels_or_several(
    spark: SparkSession, keyspace: str, tmp_path: Path, kind: str, labels: Sequence[int] | None
) -> None:
    table = TableName(keyspace, "metadata")
    with Control.from_spark(spark) as control:
        control.define(create_keyspace(keyspace, Replication.parse("1")))
        control.define(create_metadata(table, Columns(), label_type=kind))  # type: ignore[arg-type]
        control.define(create_data(TableName(keyspace, "data"), Columns(), label_type=kind))  # type: ignore[arg-type]
        for number in range(5):
            row = image_id(keyspace, b"", str(number).encode())
            if labels is None:
                control.execute(f"INSERT INTO {table.quoted} (id, path) VALUES (?, ?)", (row, str(number)))
            else:
                control.execute(f"INSERT INTO {table.quoted} (id, labels) VALUES (?, ?)", (row, labels))
            control.execute(f'INSERT INTO "{keyspace}"."data" (id, data) VALUES (?, 0x00)', (row,))
    wanted = replace(plan(keyspace, tmp_path / "s"), has_leak_check=False)
    if kind == "blob":  # written in the form of images without labels
        assert open_metadata(spark, plan=wanted, aside=None).label_type == "blob"
        assert explain(spark, plan=wanted).rows == [4, 1]
        return
    assert run(spark, plan=wanted).rows == [4, 1]
    manifest = open_split(tmp_path / "s").manifest
    assert manifest.label_type == kind
    assert dict(manifest.splits[0].counts) == ({1: 4, 2: 4} if labels else {})


def test_a_table_with_null_labels_is_refused_and_nothing_published(
    spark: SparkSession, keyspace: str, tmp_path: Path
) -> None:
    fill(spark, keyspace, columns=Columns(), labels=[0, None, 1])
    with pytest.raises(TableError, match=r"Found: 1 without one"):
        run(spark, plan=plan(keyspace, tmp_path / "s"))
    assert list(tmp_path.iterdir()) == []


def test_tables_that_do_not_belong_together_are_refused(
    spark: SparkSession, made: Made, keyspace: str, tmp_path: Path
) -> None:
    fill(spark, keyspace, columns=PATCHES, labels=[])
    swapped = replace(plan(made.keyspace, tmp_path / "s", columns=PATCHES), data_table=TableName(keyspace, "data"))
    for wanted in (swapped, replace(swapped, metadata_out=str(tmp_path / "cache"))):
        with pytest.raises(TableError, match=rf"Do {keyspace}\.data and {made.keyspace}\.metadata belong together\?"):
            run(spark, plan=wanted)
    assert list(tmp_path.iterdir()) == []
    shutil.copytree(made.cache, tmp_path / "cache")
    known = (made.cache / "cache.json").read_text()
    (tmp_path / "cache" / "cache.json").write_text(known.replace(f"{made.keyspace}.data", f"{keyspace}.data"))
    with pytest.raises(TableError, match=r"Found: none of the 15 ids"):
        run(spark, plan=SplitPlan(metadata_in=str(tmp_path / "cache"), out=str(tmp_path / "s")))
    assert not (tmp_path / "s").exists()


def test_empty_and_missing_tables_are_reported(spark: SparkSession, keyspace: str, tmp_path: Path) -> None:
    fill(spark, keyspace, columns=Columns(), labels=[])
    with pytest.raises(TableError, match="Found: an empty table"):
        run(spark, plan=plan(keyspace, tmp_path / "s"))
    with pytest.raises(TableError, match=rf"{keyspace}\.typo .* Found: no such table"):
        run(spark, plan=replace(plan(keyspace, tmp_path / "s"), data_table=TableName(keyspace, "typo")))
    nowhere = fresh_name("nowhere")
    with pytest.raises(TableError, match=rf"{nowhere}\.data .* Found: no such table"):
        run(spark, plan=plan(nowhere, tmp_path / "s"))


def test_a_condition_that_spark_cannot_parse_is_refused_before_anything_is_read(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_args(["--metadata-ifn", "nowhere", "-o", "o", "--where", "width >="])
    assert stopped.value.code == 2
    assert "Found: 'width >=' (Syntax error at or near end of input" in capsys.readouterr().err
    for text in ("width > 200 AS wide", "width IN (SELECT 224)", "EXISTS (SELECT 1)", "id = (SELECT 1)"):
        with pytest.raises(ValueError, match=r"Wanted a condition .* which (names a column|queries other tables)"):
            check_condition(text)
    for text in ("ingested_at > date 'today'", "x < TIMESTAMP /* then */ 'Yesterday UTC'"):
        with pytest.raises(ValueError, match="depends on the day"):
            check_condition(text)
    made, _ = parse_args(["--metadata-ifn", "nowhere", "-o", "o", "--where", "width >= 224 AND format = 'JPEG'"])
    assert made.where == "width >= 224 AND format = 'JPEG'"


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("127.0.0.9", r"127\.0\.0\.9 port 1\. Found: .*refused"),
        ("no-such-host.invalid", "Found: no address for that name"),
    ],
)
def test_a_cassandra_that_does_not_answer_is_named(spark: SparkSession, tmp_path: Path, place: str, found: str) -> None:
    with cassandra_at(spark, place, 1), pytest.raises(UnreachableError, match=found):
        run(spark, plan=plan("ks", tmp_path / "s"))
    assert list(tmp_path.iterdir()) == []


NOTED = """
import sys
from pathlib import Path
from formats import local_node
from jobs import split
local_node.PLACE = Path(sys.argv.pop(1))
sys.exit(split.main())
"""


def test_the_program_reads_spark_settings_finds_the_local_node_and_ends_with_a_line_of_json(
    spark: SparkSession, cassandra: Cassandra, made: Made, tmp_path: Path
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        f"spark.master local[1]\nspark.jars {spark.conf.get('spark.jars')}\n"
        f"spark.ui.enabled false\nspark.sql.shuffle.partitions 2\n"
        f"spark.imagestrata.data-table {made.keyspace}.data\n"
        f"spark.imagestrata.metadata-table {made.keyspace}.metadata\n"
        f"spark.imagestrata.split-ofn {tmp_path / 'configured'}\n"
    )
    columns = ["--id-col", PATCHES.id, "--label-col", PATCHES.label, "--data-col", PATCHES.data]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            NOTED,
            str(cassandra.folder / "node.json"),
            "--balance",
            "original",
            "--seed",
            "7",
            *columns,
            "--json",
        ],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("options: ")]
    assert f"cassandra: 127.0.0.1 port {cassandra.port} (started by `imagestrata up`)\n" in done.stderr
    assert f"--metadata-table {made.keyspace}.metadata (from spark.imagestrata.metadata-table), " in told
    assert told.index("--split-ratio 8,2 (default), ") < told.index("(from spark.imagestrata.split-ofn)")
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["rows"], report["out"]) == ([12, 3], str(tmp_path / "configured"))
    assert report["fingerprints"] == made.report.fingerprints
