"""Ingest of real trees into a real Cassandra."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from trees import picture, plant, quarantine, rows_of, tables_of, tree

import etl.ingest
from devstack.cassandra import DEFAULT_PASSWORD, DEFAULT_USER, Cassandra
from etl.cassandra import Control, class_names
from etl.cluster import Cluster
from etl.errors import ConflictError, EtlError, SourceError, TableError, UnreachableError
from etl.image_writer import write_images
from etl.ingest_plan import IngestPlan, new_ingest_id
from jobs import ingest as job
from schemas import Columns, image_id

# Executors do not find the tests: what tasks need of this module travels with them.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def test_rows_hold_what_the_files_are(
    spark: SparkSession, control: Control, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    data = picture(1, kind="JPEG")
    plan = plan_of(plant(tmp_path, {"train/cat/deep/1.jpg": data, "train/ant/2.png": picture(2), "val/cat/3": data}))
    report = job.run(spark, plan=plan)
    image = image_id(plan.dataset, b"train", b"cat/deep/1.jpg")
    stored = {row.id: row for row in control.execute(f"SELECT * FROM {plan.metadata_table}")}
    row = stored[image]
    assert (row.label, row.or_label, row.or_split, row.path) == (1, "cat", "train", "cat/deep/1.jpg")
    assert (row.format, row.width, row.height, row.bytes) == ("JPEG", 16, 12, len(data))
    assert row.sha256 == hashlib.sha256(data).digest()
    assert (row.source, str(row.ingest_id), row.group_id) == (tmp_path.as_uri(), report.ingest_id, None)
    blobs = {row.id: row for row in control.execute(f"SELECT * FROM {plan.data_table}")}
    assert (blobs[image].label, blobs[image].data) == (1, data)
    assert blobs.keys() == stored.keys()
    assert (report.images, report.classes, report.quarantined) == (3, 2, 0)
    assert report.images_by_split == {"train": 2, "val": 1}
    assert report.bytes == sum(len(row.data) for row in blobs.values())
    assert str(report).startswith("ingested 3 images (0.0 MB) of 2 classes into ")
    assert str(report).endswith(f"fingerprint {report.fingerprint}")


def test_twice_the_same_tree_is_the_same_tables(
    spark: SparkSession, control: Control, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    plan = plan_of(tree(tmp_path))
    first = job.run(spark, plan=plan)
    before = tables_of(control, plan)
    second = job.run(spark, plan=plan)
    assert tables_of(control, plan) == before
    assert (first.images, second.images) == (24, 24)
    assert first.fingerprint == second.fingerprint
    assert first.ingest_id != second.ingest_id


def write_then_fail(batches: Iterator[pa.RecordBatch], *, order: Any) -> Iterator[pa.RecordBatch]:
    """The real task, with failures: a first attempt breaks off after half of its rows, some in flight."""
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() > 0:
        yield from write_images(batches, order=order)
        return
    for batch in batches:
        yield from write_images(iter([batch.slice(0, batch.num_rows // 2)]), order=order)
        raise OSError("the machine is gone")


def test_failing_tasks_leave_the_same_tables(
    spark: SparkSession,
    control: Control,
    plan_of: Callable[..., IngestPlan],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(plant(tree(tmp_path), {"train/a/bad.png": b"bad"}))
    whole = job.run(spark, plan=plan)
    wanted = tables_of(control, plan)
    for table in (plan.data_table, plan.metadata_table, plan.tables.classes):
        control.define(f"TRUNCATE {table}")
    monkeypatch.setattr(etl.ingest, "write_images", write_then_fail)
    retried = job.run(spark, plan=plan)
    assert tables_of(control, plan) == wanted
    assert quarantine(control, retried) == quarantine(control, whole)
    assert (retried.images, retried.quarantined, retried.fingerprint) == (24, 1, whole.fingerprint)


def always_fail(batches: Iterator[pa.RecordBatch], *, order: Any) -> Iterator[pa.RecordBatch]:
    """A task that writes half of its rows and always fails then."""
    for batch in batches:
        yield from write_images(iter([batch.slice(0, batch.num_rows // 2)]), order=order)
    raise OSError("the disk is full")


def test_an_interrupted_ingest_goes_on(
    spark: SparkSession,
    control: Control,
    plan_of: Callable[..., IngestPlan],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = job.run(spark, plan=plan_of(tree(tmp_path)))
    plan = plan_of(tmp_path, ingest_id=new_ingest_id())
    wanted = tables_of(control, plan)
    control.define(f"TRUNCATE {plan.metadata_table}")
    with monkeypatch.context() as patch, pytest.raises(PySparkException, match="the disk is full"):
        patch.setattr(etl.ingest, "write_images", always_fail)
        job.run(spark, plan=plan)
    part = len(rows_of(control, plan.metadata_table))  # another task may still be writing
    rest = job.run(spark, plan=plan)
    assert rest.images + rest.already_there == 24
    assert 0 < part <= rest.already_there < 24
    assert rest.fingerprint == whole.fingerprint
    assert tables_of(control, plan) == wanted
    nothing = job.run(spark, plan=plan)
    assert (nothing.images, nothing.already_there, nothing.fingerprint) == (0, 24, whole.fingerprint)
    assert "24 were there already" in str(nothing)


def test_classes_agree_between_splits_and_are_never_renumbered(
    spark: SparkSession, control: Control, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    tree(tmp_path, splits=("train",), classes="abd", each=1)
    tree(tmp_path, splits=("val",), classes="bcd", each=1)
    (tmp_path / "train" / "empty").mkdir()

    def numbers(plan: IngestPlan) -> dict[str, int]:
        return class_names(control, keyspace=plan.metadata_table.keyspace, dataset=plan.dataset)

    train, both = plan_of(tmp_path, splits=("train",)), plan_of(tmp_path)
    assert job.run(spark, plan=train).classes == 4
    assert numbers(train) == {"a": 0, "b": 1, "d": 2, "empty": 3}
    job.run(spark, plan=plan_of(tmp_path, splits=("val",)))
    after = {"a": 0, "b": 1, "d": 2, "empty": 3, "c": 4}
    assert numbers(train) == after
    together = replace(both, dataset="together")
    job.run(spark, plan=together)
    assert numbers(together) == {"a": 0, "b": 1, "c": 2, "d": 3, "empty": 4}
    rows = control.execute(f"SELECT id, label, or_label FROM {both.metadata_table}")
    named = {image_id(both.dataset, b"val", b"c/0.png"): ("c", 4), image_id("together", b"val", b"c/0.png"): ("c", 2)}
    assert {row.id: (row.or_label, row.label) for row in rows if row.id in named} == named


def test_names_of_any_bytes_are_taken(
    spark: SparkSession, control: Control, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    names = ["with space/é 1.png", "line\nbreak/2\n.png", "Case/3", "case/3", "é/4", "e\u0301/4"]
    raw = [os.fsencode(name) for name in names] + [b"caf\xe9/5\xff.png"]
    plant(tmp_path, {path: picture(i) for i, path in enumerate(raw)})
    plan = plan_of(tmp_path, splits=())
    report = job.run(spark, plan=plan)
    assert (report.images, report.classes, report.quarantined) == (7, 7, 0)
    assert report.images_by_split == {"": 7}
    rows = {row.id: row for row in control.execute(f"SELECT * FROM {plan.metadata_table}")}
    assert rows.keys() == {image_id(plan.dataset, b"", path) for path in raw}
    ordered = ["Case", "caf\\xe9", "case", "e\u0301", "line\nbreak", "with space", "é"]
    assert class_names(control, keyspace=plan.metadata_table.keyspace, dataset=plan.dataset) == {
        name: label for label, name in enumerate(ordered)
    }
    last = rows[image_id(plan.dataset, b"", raw[-1])]
    assert (last.path, last.or_label, last.or_split, last.label) == ("caf\\xe9/5\\xff.png", "caf\\xe9", "", 1)


def test_what_is_no_image_is_told_with_its_reason(
    spark: SparkSession, control: Control, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    whole = picture(1, kind="JPEG", size=(200, 200))
    gif = picture(2, kind="GIF")
    plant(tmp_path, {"train/a/good.jpg": whole, "train/a/empty": b"", "train/a/cut.jpg": whole[: len(whole) * 2 // 3]})
    plant(tmp_path, {"train/a/text.txt": b"text", "train/a/anim.gif": gif, "train/loose.png": b"x", "val/a/1": whole})
    os.mkfifo(tmp_path / "train/a/pipe")
    (tmp_path / "train/a/gone").symlink_to("nothing")
    (tmp_path / "train/a/loop").symlink_to(tmp_path / "train/a")
    report = job.run(spark, plan=plan_of(tmp_path))
    told = quarantine(control, report)
    assert told.pop("train/a/cut.jpg")[1].startswith("truncated: ")
    assert told == {
        "train/a/empty": ("read", "empty"),
        "train/a/text.txt": ("read", "not an image"),
        "train/a/anim.gif": ("read", "unsupported format GIF"),
        "train/a/pipe": ("list", "not a regular file: a pipe"),
        "train/a/gone": ("list", "broken link: it leads nowhere"),
        "train/a/loop": ("list", "link loop: it leads to a folder that it is in"),
        "train/loose.png": ("list", "outside a class folder"),
    }
    assert (report.images, report.quarantined) == (2, 8)
    kinds = ["broken link", "empty", "link loop", "not a regular file", "not an image", "outside a class folder"]
    kinds += ["truncated", "unsupported format GIF"]
    assert report.quarantined_by_reason == dict.fromkeys(kinds, 1)
    assert f"8 rejected ({', '.join(f'1 {kind}' for kind in kinds)}): {report.rejected_at}" in str(report)


def test_pictures_larger_than_the_server_takes_are_told(
    spark: SparkSession, control: Control, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    plant(tmp_path, {"a/small": picture(1), "a/large": picture(1) + bytes(40 << 20)})
    os.truncate(plant(tmp_path, {"a/huge": b""}) / "a/huge", 1 << 40)
    report = job.run(spark, plan=plan_of(tmp_path, splits=()))
    assert report.images == 1
    told = quarantine(control, report)
    assert told.keys() == {"a/large", "a/huge"}
    assert told["a/huge"] == ("read", f"too large: {1 << 40} bytes")
    assert told["a/large"][1].startswith("too large: ")
    assert "native_transport_max_frame_size" in told["a/large"][1]


def test_if_nothing_is_an_image_the_job_fails(
    spark: SparkSession, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    plant(tmp_path, {"a/1": b"x", "a/2": b""})
    with pytest.raises(EtlError, match=r"2 files, all rejected.*SELECT \* FROM ingest_\d+\.quarantine WHERE"):
        job.run(spark, plan=plan_of(tmp_path, splits=()))


def test_trees_without_files_write_nothing(
    spark: SparkSession, control: Control, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    plan = plan_of(tmp_path, splits=())
    with pytest.raises(SourceError, match="no folders there"):
        job.run(spark, plan=plan)
    (tmp_path / "a").mkdir()
    with pytest.raises(SourceError, match="no file at all"):
        job.run(spark, plan=plan)
    assert control.columns(plan.data_table) is None


def test_images_of_another_source_are_refused_unless_overwritten(
    spark: SparkSession, control: Control, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    first = plan_of(tree(tmp_path / "first"))
    job.run(spark, plan=first)
    before = tables_of(control, first)
    plant(tree(tmp_path / "other", classes="bcd"), {"train/b/bad": b""})
    other = plan_of(tmp_path / "other")
    with pytest.raises(ConflictError, match="16 of them") as caught:
        job.run(spark, plan=other)
    assert str(caught.value).count((tmp_path / "first").as_uri()) == 5
    assert "b/0.png from" in str(caught.value)
    assert tables_of(control, first) == before
    assert job.run(spark, plan=replace(other, overwrite=True)).images == 24
    sources = [row["source"] for row in rows_of(control, first.metadata_table)]
    assert sources.count((tmp_path / "other").as_uri()) == 24
    assert sources.count((tmp_path / "first").as_uri()) == 8


def test_columns_may_have_other_names(
    spark: SparkSession, control: Control, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    columns = Columns(id="patch_id", label="Klass", data="pixels")
    plan = plan_of(tree(tmp_path, each=1), columns=columns)
    job.run(spark, plan=plan)
    assert control.columns(plan.data_table) == {"patch_id": "uuid", "Klass": "int", "pixels": "blob"}
    job.run(spark, plan=plan)
    with pytest.raises(ConflictError):
        job.run(spark, plan=replace(plan, source=replace(plan.source, address=str(tree(tmp_path / "other", each=1)))))


def test_tables_that_do_not_fit_are_told_with_all_that_is_wrong(
    spark: SparkSession, control: Control, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    plan = plan_of(tree(tmp_path, each=1))
    with pytest.raises(TableError, match=r"no table .*data; no table .*metadata; no table .*classes; no table"):
        job.run(spark, plan=replace(plan, create=False))
    keyspace = plan.data_table.keyspace
    strategy = f"{{'class': 'NetworkTopologyStrategy', '{control.datacenter}': 1}}"
    control.define(f"CREATE KEYSPACE {keyspace} WITH replication = {strategy}")
    control.define(f"CREATE TABLE {plan.data_table} (id uuid PRIMARY KEY, label blob, data blob)")
    control.define(f"CREATE TABLE {plan.metadata_table} (patch_id uuid PRIMARY KEY, label int, path text)")
    with pytest.raises(TableError, match=r"label blob instead of int .*no column id uuid in .*no column source text"):
        job.run(spark, plan=plan)
    assert control.columns(plan.tables.classes) is None


def test_two_ingests_at_once_agree(
    spark: SparkSession, control: Control, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    plan = plan_of(tree(tmp_path, each=1))
    etl.ingest.create_tables(control, plan=plan)
    with ThreadPoolExecutor(2) as threads:
        runs = [
            threads.submit(job.run, spark, plan=replace(plan, source=replace(plan.source, splits=(split,))))
            for split in plan.source.splits
        ]
        assert [run.result().images for run in runs] == [3, 3]
    rows = rows_of(control, plan.metadata_table)
    assert {(row["or_label"], row["label"]) for row in rows} == {("a", 0), ("b", 1), ("c", 2)}
    assert len(rows) == 6


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """A Cassandra that wants a password."""
    with Cassandra(tmp_path_factory.mktemp("guarded"), auth=True) as server:
        cluster = Cluster(tuple(server.hosts), server.port, username=DEFAULT_USER)
        with Control(cluster, password=DEFAULT_PASSWORD) as control:
            control.define(f"CREATE ROLE writer WITH PASSWORD = '{SECRET}' AND LOGIN = true AND SUPERUSER = true")
        yield server


SECRET = "hardly-guessed-7"


def submit(*arguments: str, port: int, **conf: str) -> subprocess.CompletedProcess[str]:
    """Run the job as users do, from another folder, with settings of spark-defaults.conf."""
    settings = {"spark.cassandra.connection.port": str(port), "spark.ui.enabled": "false", **conf}
    given = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    program = str(Path(sys.executable).with_name("spark-submit"))
    command = [program, "--master", "local[2]", *given, job.__file__, *arguments]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120)


def test_the_command_takes_its_settings_from_spark_and_shows_no_password(guarded: Cassandra, tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    conf = {
        "spark.cassandra.auth.username": "writer",
        "spark.cassandra.auth.password": SECRET,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.imagestrata.source": str(tree(tmp_path / "tree", each=1)),
        "spark.imagestrata.split-subdir": "train,val",
        "spark.imagestrata.data-table": "guarded.data",
        "spark.imagestrata.metadata-table": "guarded.metadata",
    }
    done = submit("--json", port=guarded.port, **conf)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["images"], report["classes"], report["images_by_split"]) == (6, 3, {"train": 3, "val": 3})
    logged = "".join(file.read_text() for file in events.iterdir())
    assert "SparkListenerJobStart" in logged
    assert SECRET not in done.stdout + done.stderr + logged


def test_a_wrong_password_is_one_line_without_it(guarded: Cassandra) -> None:
    cluster = Cluster(tuple(guarded.hosts), guarded.port, username="writer")
    with pytest.raises(UnreachableError, match="refuses user 'writer'") as caught, Control(cluster, password="wrong-8"):
        pass
    assert "wrong-8" not in str(caught.value)
    with pytest.raises(UnreachableError, match=r"spark\.cassandra\.auth"), Control(replace(cluster, username=None)):
        pass


def test_without_a_cassandra_the_command_fails_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    done = submit(str(tmp_path), "--data-table=k.data", "--metadata-table=k.metadata", port=9)
    said = done.stdout + done.stderr  # spark-submit puts both of Python's into its own output
    assert done.returncode == 1, said
    ours = [line for line in said.splitlines() if line.startswith("ingest.py: ")]
    assert len(ours) == 1, said
    assert ours[0].startswith("ingest.py: Wanted Cassandra at 127.0.0.1 port 9. Found: ")
    assert "Traceback" not in said


def test_a_cassandra_that_is_not_there_is_one_line() -> None:
    cluster = Cluster(("127.0.0.1",), 9)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1 port 9\.") as caught, Control(cluster):
        pass
    assert "\n" not in str(caught.value)
