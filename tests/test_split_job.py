"""jobs/split.py as its users run it: over tables in Cassandra, and with all that can be wrong about a command."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from devstack.cassandra import Cassandra
from etl.cassandra import Control
from etl.errors import OutputExistsError, TableError, UnreachableError
from etl.splits.plan import SplitPlan
from formats import SplitFolder
from jobs.split import parse_args, run
from jobs.splits.conditions import check_condition
from schemas import Columns, TableName, image_id
from schemas.tables import Replication, create_classes, create_data, create_keyspace, create_metadata

JOB = Path(__file__).parent.parent / "jobs" / "split.py"
GOOD = ["-d", "ks.data", "-m", "ks.metadata", "-o", "unused"]


def fill(
    spark: SparkSession, keyspace: str, *, columns: Columns, labels: list[int | None], or_label: bool = True
) -> None:
    """Make a keyspace with a metadata table of one row a label."""
    table = TableName(keyspace, "metadata")
    with Control.from_spark(spark) as control:
        control.define(create_keyspace(keyspace, Replication.parse("1")))
        control.define(create_metadata(table, columns))
        control.define(create_data(TableName(keyspace, "data"), columns))
        insert = f'INSERT INTO {table.quoted} ("{columns.id}", "{columns.label}", or_label) VALUES (?, ?, ?)'
        for number, label in enumerate(labels):
            name = f"class {label}" if or_label else None
            control.execute(insert, (image_id(keyspace, b"", str(number).encode()), label, name))


def plan(keyspace: str, out: Path, *, columns: Columns | None = None) -> SplitPlan:
    return SplitPlan(
        data_table=TableName(keyspace, "data"),
        metadata_table=TableName(keyspace, "metadata"),
        out=str(out),
        seed=7,
        columns=columns or Columns(),
    )


def test_a_table_becomes_a_split_with_the_names_that_its_rows_tell(spark: SparkSession, tmp_path: Path) -> None:
    fill(spark, "split_names", columns=Columns(), labels=[0] * 10 + [2] * 5)
    report = run(spark, plan=plan("split_names", tmp_path / "s"))
    assert report.rows == [12, 3]
    assert report.unused == 0
    assert report.counts == [{"class 0": 8, "class 2": 4}, {"class 0": 2, "class 2": 1}]
    manifest = SplitFolder.open(tmp_path / "s").manifest
    assert manifest.num_classes == 3  # numbers go to 2, so a classifier needs three outputs
    assert dict(manifest.class_names) == {0: "class 0", 2: "class 2"}
    assert manifest.data_table == "split_names.data"
    assert run(spark, plan=replace(plan("split_names", tmp_path / "s"), overwrite=True)) == report


def test_the_class_list_names_classes_without_images_too(spark: SparkSession, tmp_path: Path) -> None:
    fill(spark, "split_list", columns=Columns(), labels=[0, 0, 1, 1])
    with Control.from_spark(spark) as control:
        control.define(create_classes("split_list"))
        for number, name in enumerate(["ant", "bee", "cat"]):
            control.execute(
                'INSERT INTO "split_list"."classes" (dataset, name, label) VALUES (?, ?, ?)',
                ("split_list", name, number),
            )
    report = run(spark, plan=plan("split_list", tmp_path / "s"))
    assert report.counts[0].keys() == {"ant", "bee"}
    assert SplitFolder.open(tmp_path / "s").manifest.num_classes == 3


def test_tables_with_columns_of_other_names_are_read_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    columns = Columns(id="patch_id", label="klass", data="blob")
    fill(spark, "split_patches", columns=columns, labels=[1, 1, 1, 1])
    assert run(spark, plan=plan("split_patches", tmp_path / "s", columns=columns)).rows == [3, 1]
    assert SplitFolder.open(tmp_path / "s").manifest.columns == columns
    with pytest.raises(TableError, match=r"Wanted the columns? id, data in split_patches\.data"):
        run(spark, plan=plan("split_patches", tmp_path / "t"))


def test_a_table_whose_key_is_more_than_the_id_may_have_no_id_twice(spark: SparkSession, tmp_path: Path) -> None:
    fill(spark, "split_twice", columns=Columns(), labels=[])
    with Control.from_spark(spark) as control:
        control.execute('DROP TABLE "split_twice"."metadata"')
        control.execute('CREATE TABLE "split_twice"."metadata" (id uuid, part int, label int, PRIMARY KEY (id, part))')
        for part, name in ((0, b"a"), (0, b"b"), (1, b"a")):
            insert = 'INSERT INTO "split_twice"."metadata" (id, part, label) VALUES (?, ?, 1)'
            control.execute(insert, (image_id("split_twice", b"", name), part))
    kept = replace(plan("split_twice", tmp_path / "s"), metadata_out=str(tmp_path / "cache"))
    for wanted in (kept, replace(kept, metadata_out=None)):
        with pytest.raises(TableError, match=r"each id once in split_twice\.metadata \(id\)\. Found: 1 more than once"):
            run(spark, plan=wanted)
    assert list(tmp_path.iterdir()) == []


def test_metadata_are_kept_and_splits_made_of_them_without_a_database(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(spark, "split_kept", columns=Columns(id="patch_id"), labels=[0] * 10 + [2] * 5)
    wanted = plan("split_kept", tmp_path / "s", columns=Columns(id="patch_id"))
    kept = replace(wanted, metadata_out=str(tmp_path / "cache"))
    report = run(spark, plan=kept)
    with pytest.raises(OutputExistsError, match="read it with --metadata-ifn"):
        run(spark, plan=replace(kept, out=str(tmp_path / "t")))
    assert run(spark, plan=replace(kept, overwrite=True)) == report
    found = json.loads((tmp_path / "cache" / "cache.json").read_text())
    assert found["columns"]["id"] == "patch_id"
    assert found["class_names"] == {"0": "class 0", "2": "class 2"}
    files = {str(file.relative_to(tmp_path / "cache")) for file in tmp_path.glob("cache/**/*.parquet")}
    assert files == {file["path"] for file in found["files"]}

    def no_database(*_: object, **__: object) -> None:
        raise AssertionError("Cassandra was asked")

    monkeypatch.setattr("etl.splits.metadata.Control.from_spark", no_database)
    again = SplitPlan(metadata_in=str(tmp_path / "cache"), out=str(tmp_path / "u"), seed=7)
    assert run(spark, plan=again).fingerprints == report.fingerprints
    manifest = SplitFolder.open(tmp_path / "u").manifest
    assert (manifest.data_table, manifest.columns.id) == ("split_kept.data", "patch_id")
    assert run(spark, plan=replace(again, out=str(tmp_path / "w"), where="or_label = 'class 2'")).rows == [4, 1]


def test_images_without_labels_and_with_several_are_told_by_their_tables(spark: SparkSession, tmp_path: Path) -> None:
    for kind, labels in (("none", None), ("blob", None), ("multi", [1, 2])):
        keyspace = f"split_{kind}"
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
        report = run(spark, plan=plan(keyspace, tmp_path / kind))
        assert report.rows == [4, 1]
        manifest = SplitFolder.open(tmp_path / kind).manifest
        assert manifest.label_type == kind
        assert dict(manifest.splits[0].counts) == ({1: 4, 2: 4} if labels else {})


def test_null_labels_publish_nothing(spark: SparkSession, tmp_path: Path) -> None:
    fill(spark, "split_nulls", columns=Columns(), labels=[0, None, 1])
    with pytest.raises(TableError, match=r"Found: 1 without one"):
        run(spark, plan=plan("split_nulls", tmp_path / "s"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_labels_that_are_no_numbers_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    fill(spark, "split_texts", columns=Columns(), labels=[0])
    with pytest.raises(
        TableError, match=r"Wanted whole numbers \(int\) in split_texts\.metadata\.or_label\. Found: text"
    ):
        run(spark, plan=plan("split_texts", tmp_path / "s", columns=Columns(label="or_label")))


def test_an_empty_table_and_one_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    fill(spark, "split_empty", columns=Columns(), labels=[])
    with pytest.raises(TableError, match="Found: an empty table"):
        run(spark, plan=plan("split_empty", tmp_path / "s"))
    with pytest.raises(TableError, match=r"split_empty\.typo .* Found: no such table"):
        run(spark, plan=replace(plan("split_empty", tmp_path / "s"), data_table=TableName("split_empty", "typo")))
    with pytest.raises(TableError, match=r"split_nowhere\.data .* Found: no such table"):
        run(spark, plan=plan("split_nowhere", tmp_path / "s"))


@pytest.mark.parametrize(
    "args",
    [
        ["-d", "data", "-m", "ks.metadata", "-o", "o"],
        ["-d", "ks.data; DROP TABLE ks.data", "-m", "ks.metadata", "-o", "o"],
        ["-d", "ks.data", "-m", 'ks."metadata"', "-o", "o"],
        ["-d", "Ks.data", "-m", "ks.metadata", "-o", "o"],
        ["-d", "ks.data", "-m", "ks.data", "-o", "o"],
        [*GOOD, "-r", "0,0"],
        [*GOOD, "-r", "8,-2"],
        [*GOOD, "-r", "a,b"],
        [*GOOD, "-r", ""],
        [*GOOD, "-r", "nan"],
        [*GOOD, "-b", "fair"],
        [*GOOD, "-b", "1,-1"],
        [*GOOD, "-b", "0,0"],
        [*GOOD, "--seed", "x"],
        [*GOOD, "--id-col", "a b"],
        [*GOOD, "--id-col", "label"],
        [*GOOD, "-r", ",".join(["1"] * 2_000)],
        [*GOOD, "-b", "cat=x"],
        [*GOOD, "-b", "cat=1,cat=2"],
        [*GOOD, "-b", "cat=0,dog=0"],
        [*GOOD, "-b", "2,1", "--per-class", "10"],
        [*GOOD, "-b", "uniform", "--stratify", "or_split"],
        [*GOOD, "--per-class", "0"],
        [*GOOD, "--limit", "-1"],
        [*GOOD, "--min-per-split", "-1"],
        [*GOOD, "--folds", "1"],
        [*GOOD, "--folds", "5", "-r", "8,2"],
        [*GOOD, "--folds", "5", "--pin", "or_split=val:1"],
        [*GOOD, "--folds", "5", "--extend", "old"],
        [*GOOD, "--stratify", ""],
        [*GOOD, "--stratify", "label,label"],
        [*GOOD, "--stratify", "labels,or_split"],
        [*GOOD, "--stratify", "a;b"],
        [*GOOD, "--group-column", "a b"],
        [*GOOD, "--group-column", "label", "--stratify", "label"],
        [*GOOD, "--pin", "or_split"],
        [*GOOD, "--pin", "or_split=val"],
        [*GOOD, "--pin", "or_split=val:2"],
        [*GOOD, "--pin", "or_split=val:x"],
        [*GOOD, "--exclude", ""],
        [*GOOD, "--where", " "],
        [*GOOD, "--metadata-ifn", "a", "--metadata-ofn", "b"],
        [*GOOD, "--metadata-ifn", "a", "--dataset", "b"],
        [*GOOD, "--explain", "--metadata-ofn", "b"],
        [*GOOD, "-b", "cat=1,,dog=2"],
        [*GOOD, "-b", ",cat=1"],
        [*GOOD, "-b", " =1,b=2"],
        [*GOOD, "--group-column", ""],
        [*GOOD, "--group-column", "label"],
        [*GOOD, "--pin", "or_split=val:1", "--pin", "or_split=val:0"],
        [*GOOD, "--extend", "old", "--exclude", "old/:1"],
        ["--metadata-ifn", "", "-o", "o"],
        [*GOOD, "--split", "8,2"],
        [*GOOD, "surplus"],
    ],
)
def test_bad_arguments_exit_with_2_and_say_what_was_wanted(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_args(args)
    assert stopped.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_newer_manifest_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(SystemExit) as stopped:
        parse_args(["-d", "ks.data", "-m", "ks.metadata", "-o", str(tmp_path), "--overwrite"])
    assert stopped.value.code == 2
    assert "Found: format 99" in capsys.readouterr().err


def test_arguments_become_the_plan() -> None:
    args = ["-d", "a.b", "-m", "c.d", "--split-ofn=o", "--split-ratio=0.5,0.25,0.25", "--balance=2,1,0", "--json"]
    made, others = parse_args(args)
    assert others.json
    assert made.ratios == (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))
    assert made.balance == (2, 1, 0)
    assert made.as_options()["split-ratio"] == "0.5,0.25,0.25"


def test_weights_are_told_by_name_too_and_names_may_hold_commas() -> None:
    made, _ = parse_args([*GOOD, "-b", "tench, Tinca=2,dog=0.5,a=b=1"])
    assert made.balance == (("tench, Tinca", 2), ("dog", Fraction(1, 2)), ("a=b", 1))
    assert made.as_options()["balance"] == "tench, Tinca=2,dog=0.5,a=b=1"


def test_a_cache_needs_no_tables() -> None:
    made, others = parse_args(
        ["--metadata-ifn", "cache", "--explain", "--exclude", "splits/a:1", "--exclude", "s3://b/c"]
    )
    assert (made.data_table, made.out, others.explain) == (None, None, True)
    assert [str(ref) for ref in made.exclude] == ["splits/a:1", "s3://b/c"]
    assert [ref.index for ref in made.exclude] == [1, None]


def test_a_condition_that_is_none_is_told_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_args(["--metadata-ifn", "nowhere", "-o", "o", "--where", "width >="])
    assert stopped.value.code == 2
    assert "Found: 'width >='" in capsys.readouterr().err
    for text in ("width > 200 AS wide", "width IN (SELECT 224)", "EXISTS (SELECT 1)", "id = (SELECT 1)"):
        with pytest.raises(ValueError, match=r"Wanted a condition .* which (names a column|asks other tables)"):
            check_condition(text)
    made, _ = parse_args(["--metadata-ifn", "nowhere", "-o", "o", "--where", "width >= 224 AND format = 'JPEG'"])
    assert made.where == "width >= 224 AND format = 'JPEG'"


def command(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the job as a program of its own, from another folder."""
    return subprocess.run(
        [sys.executable, str(JOB), *args],
        env={**os.environ, **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_bad_arguments_are_found_before_a_jvm_starts(tmp_path: Path) -> None:
    done = command(*GOOD, "-r", "a,b", JAVA_HOME=str(tmp_path), PATH="")
    assert done.returncode == 2, done.stderr
    assert "Wanted split ratios as numbers" in done.stderr
    bare = command("-r", "a,b", JAVA_HOME=str(tmp_path), PATH="")  # tables and output would come from Spark's settings
    assert bare.returncode == 2, bare.stderr
    assert command("--help", JAVA_HOME=str(tmp_path), PATH="").stdout.startswith("usage: split.py")


def test_without_a_java_the_last_line_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "spark-env.sh").touch()
    for args in (GOOD, ["-r", "8,2"]):
        done = command(*args, JAVA_HOME=str(tmp_path), SPARK_CONF_DIR=str(tmp_path))
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "on a Java 17. Found: it did not" in done.stderr.splitlines()[-1]
        assert str(tmp_path) in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("127.0.0.9", r"127\.0\.0\.9 port 1\. Found: .*refused"),
        ("no-such-host.invalid", "Found: no address of that name"),
    ],
)
def test_cassandra_that_is_not_there_is_named_within_seconds(
    spark: SparkSession, tmp_path: Path, place: str, found: str
) -> None:
    settings = ("spark.cassandra.connection.host", "spark.cassandra.connection.port")
    before = [spark.conf.get(name) or "" for name in settings]
    try:
        for name, value in zip(settings, (place, "1"), strict=True):
            spark.conf.set(name, value)
        started = time.monotonic()
        with pytest.raises(UnreachableError, match=found):
            run(spark, plan=plan("ks", tmp_path / "s"))
        assert time.monotonic() - started < 15
    finally:
        for name, value in zip(settings, before, strict=True):
            spark.conf.set(name, value)


def test_the_program_ends_with_a_line_of_json_or_one_line_that_says_why(
    spark: SparkSession, cassandra: Cassandra, tmp_path: Path
) -> None:
    fill(spark, "split_program", columns=Columns(), labels=[0] * 4 + [1] * 4)
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        f"spark.master local[1]\nspark.cassandra.connection.host {cassandra.hosts[0]}\n"
        f"spark.cassandra.connection.port {cassandra.port}\nspark.jars {spark.conf.get('spark.jars')}\n"
        f"spark.imagestrata.data-table split_program.data\nspark.imagestrata.metadata-table split_program.metadata\n"
        f"spark.imagestrata.split-ofn {tmp_path / 'configured'}\n"
    )
    done = command("--balance", "original", "--json", SPARK_CONF_DIR=str(conf))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == [6, 2]
    again = command("--balance", "original", SPARK_CONF_DIR=str(conf))
    assert again.returncode == 1
    assert "a split that is there already. Give --overwrite" in again.stderr.splitlines()[-1]
