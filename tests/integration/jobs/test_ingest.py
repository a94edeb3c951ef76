"""Ingest of real trees into a real Cassandra."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import etl.ingest.destination
import etl.ingest.writing.tasks
from etl.cassandra.control import Control
from etl.errors import ConflictError, EtlError, SourceError, TableError
from etl.ingest.plan import IngestPlan, Tolerance
from etl.ingest.report import IngestReport
from etl.ingest.writing.image_writer import write_images
from etl.tables.class_numbers import class_names
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import new_ingest_id
from jobs import ingest as job
from jobs import shard
from schemas import Columns, image_id
from tests.support.commands import in_living_session
from tests.support.trees import (
    PlanOf,
    before_writing,
    picture,
    plan_maker,
    plant,
    quarantine,
    rows_of,
    tables_of,
    tree,
)

# Executors cannot import the tests, so tasks carry what they need of this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Ingested:
    """A tree that was ingested, and the contents of the tables afterwards."""

    root: Path
    plan: IngestPlan
    report: IngestReport
    tables: list[list[dict[str, Any]]]
    rejected: dict[str, tuple[str, str]]

    @classmethod
    def of(cls, spark: SparkSession, plan: IngestPlan) -> "Ingested":
        report = job.run(spark, plan=plan)
        with Control.from_spark(spark) as control:
            return cls(Path(plan.source.address), plan, report, tables_of(control, plan), quarantine(control, report))


PHOTO = picture(1, kind="JPEG", size=(200, 200))
ODD_NAMES = [os.fsencode(f"train/{name}") for name in ("with space/é 1.png", "line\nbreak/2\n.png", "Case/3", "case/3")]
ODD_NAMES += [os.fsencode(f"train/{name}") for name in ("é/4", "e\u0301/4")] + [b"train/caf\xe9/5\xff.png"]


@pytest.fixture(scope="module")
def mixed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    """A tree with images, with names of any bytes, and with all that cannot be ingested."""
    root = tmp_path_factory.mktemp("mixed")
    plant(root, {"train/cat/deep/1.jpg": PHOTO, "train/ant/2.png": picture(2), "val/cat/3": PHOTO})
    plant(root, {os.fsdecode(path): picture(i) for i, path in enumerate(ODD_NAMES)})
    plant(root, {"train/a/empty": b"", "train/a/cut.jpg": PHOTO[: len(PHOTO) * 2 // 3], "train/a/text.txt": b"text"})
    plant(root, {"train/a/anim.gif": picture(2, kind="GIF"), "train/loose.png": b"x"})
    os.mkfifo(root / "train/a/pipe")
    (root / "train/a/gone").symlink_to("nothing")
    (root / "train/a/loop").symlink_to(root / "train/a")
    plant(root, {"train/a/large": picture(1) + bytes(40 << 20), "train/a/huge": b""})
    os.truncate(root / "train/a/huge", 1 << 40)
    plant(root, {f"train/vanishing/{i}.png": picture(i) for i in range(2)})
    with pytest.MonkeyPatch.context() as patch:
        before_writing(patch, lambda: shutil.rmtree(root / "train" / "vanishing"))
        return Ingested.of(spark, plan_maker()(root))


def test_rows_describe_their_files(control: Control, mixed: Ingested) -> None:
    plan, report = mixed.plan, mixed.report
    image = image_id(plan.dataset, b"train", b"cat/deep/1.jpg")
    blobs, metadata = ({row["id"]: row for row in table} for table in mixed.tables[:2])
    row = metadata[image]
    assert (row["or_label"], row["or_split"], row["path"]) == ("cat", "train", "cat/deep/1.jpg")
    assert (row["format"], row["width"], row["height"], row["bytes"]) == ("JPEG", 200, 200, len(PHOTO))
    assert row["sha256"] == hashlib.sha256(PHOTO).digest()
    assert (row["source"], row["group_id"]) == (mixed.root.as_uri(), None)
    assert (blobs[image]["label"], blobs[image]["data"]) == (row["label"], PHOTO)
    assert row["label"] == metadata[image_id(plan.dataset, b"val", b"cat/3")]["label"]
    assert blobs.keys() == metadata.keys()
    assert {one: row["label"] for one, row in blobs.items()} == {one: row["label"] for one, row in metadata.items()}
    runs = control.execute(f"SELECT ingest_id FROM {plan.tables.metadata.quoted}")
    assert [str(run.ingest_id) for run in runs] == [report.ingest_id] * 10
    assert (report.images, report.images_by_split) == (10, {"train": 9, "val": 1})
    assert report.bytes == sum(len(row["data"]) for row in blobs.values())
    assert report.similar_classes == [{"Case": 1, "case": 1}, {"e\u0301": 1, "é": 1}]
    assert "case or Unicode form: 'Case' (1 image) and 'case' (1 image), " in str(report)
    assert str(report).startswith("ingested 10 images (0.0 MB) of 9 classes into ")
    assert report.empty_classes == ["a", "vanishing"]
    assert "; 2 classes have no images: 'a', 'vanishing'; " in str(report)
    assert str(report).endswith(f"fingerprint {report.fingerprint}")


def test_file_names_of_any_bytes_are_accepted(control: Control, mixed: Ingested) -> None:
    plan, rows = mixed.plan, {row["id"]: row for row in mixed.tables[1]}
    ids = [image_id(plan.dataset, b"train", path.partition(b"/")[2]) for path in ODD_NAMES]
    others = [image_id(plan.dataset, *path) for path in ((b"train", b"ant/2.png"), (b"val", b"cat/3"))]
    assert rows.keys() == {*ids, *others, image_id(plan.dataset, b"train", b"cat/deep/1.jpg")}
    ordered = ["Case", "a", "ant", "caf\\xe9", "case", "cat", "e\u0301", "line\nbreak", "vanishing", "with space", "é"]
    numbers = {name: label for label, name in enumerate(ordered)}
    assert class_names(control, keyspace=plan.tables.metadata.keyspace, dataset=plan.dataset) == numbers
    assert all(row["label"] == numbers[row["or_label"]] for row in rows.values())
    last = rows[ids[-1]]
    assert (last["path"], last["or_label"], last["label"]) == ("caf\\xe9/5\\xff.png", "caf\\xe9", numbers["caf\\xe9"])


def test_rejected_files_are_listed_with_their_reasons(mixed: Ingested) -> None:
    found, report = dict(mixed.rejected), mixed.report
    assert found.pop("train/a/cut.jpg")[1].startswith("truncated: ")
    reason = found.pop("train/a/large")[1]  # the server rejects it
    assert reason.startswith("too large: ")
    assert "native_transport_max_frame_size" in reason
    for i in range(2):
        assert found.pop(f"train/vanishing/{i}.png") == ("read", "unreadable: No such file or directory")
    assert found == {
        "train/a/empty": ("read", "empty"),
        "train/a/text.txt": ("read", "not an image"),
        "train/a/anim.gif": ("read", "unsupported format GIF"),
        "train/a/pipe": ("list", "not a regular file: a pipe"),
        "train/a/gone": ("list", "broken link: it leads nowhere"),
        "train/a/loop": ("list", "link loop: it leads to a folder that it is in"),
        "train/a/huge": ("read", f"too large: {1 << 40} bytes"),
        "train/loose.png": ("list", "outside a class folder"),
    }
    kinds = {"too large": 2, "unreadable": 2}
    kinds |= dict.fromkeys(["broken link", "empty", "link loop", "not a regular file", "not an image"], 1)
    kinds |= dict.fromkeys(["outside a class folder", "truncated", "unsupported format GIF"], 1)
    assert (report.quarantined, report.quarantined_by_reason) == (12, kinds)
    counts = ", ".join(f"{kind}: {count}" for kind, count in report.quarantined_by_reason.items())
    assert f"12 rejected ({counts}): {report.rejected_at}" in str(report)


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    """An ingested tree of 24 images and a file that is not an image. Tests do not change it or its tables."""
    root = plant(tree(tmp_path_factory.mktemp("whole")), {"train/a/bad.png": b"bad"})
    return Ingested.of(spark, plan_maker()(root, tolerance=Tolerance.parse("1")))


def test_ingesting_a_tree_twice_gives_the_same_tables(spark: SparkSession, control: Control, whole: Ingested) -> None:
    second = job.run(spark, plan=whole.plan)
    assert tables_of(control, whole.plan) == whole.tables
    assert (whole.report.images, second.images) == (24, 24)
    assert second.fingerprint == whole.report.fingerprint
    assert second.ingest_id != whole.report.ingest_id


def write_then_fail(batches: Iterator[pa.RecordBatch], **options: Any) -> Iterator[pa.RecordBatch]:
    """The real task, but each first attempt fails after half of its rows, with some in flight."""
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() > 0:
        yield from write_images(batches, **options)
        return
    for batch in batches:
        yield from write_images(iter([batch.slice(0, batch.num_rows // 2)]), **options)
        raise OSError("the machine is gone")


def test_failing_tasks_do_not_change_the_tables(
    spark: SparkSession, control: Control, whole: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in (whole.plan.tables.data, whole.plan.tables.metadata, whole.plan.tables.classes):
        control.define(f"TRUNCATE {table}")
    monkeypatch.setattr(etl.ingest.writing.tasks, "write_images", write_then_fail)
    retried = job.run(spark, plan=whole.plan)
    assert tables_of(control, whole.plan) == whole.tables
    assert quarantine(control, retried) == whole.rejected
    assert (retried.images, retried.quarantined, retried.fingerprint) == (24, 1, whole.report.fingerprint)


def always_fail(batches: Iterator[pa.RecordBatch], **options: Any) -> Iterator[pa.RecordBatch]:
    """A task that writes half of its rows and then always fails."""
    for batch in batches:
        yield from write_images(iter([batch.slice(0, batch.num_rows // 2)]), **options)
    raise OSError("the disk is full")


def test_an_interrupted_ingest_resumes_and_reads_only_missing_files(
    spark: SparkSession, control: Control, whole: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(whole.plan, ingest_id=new_ingest_id())
    control.define(f"TRUNCATE {plan.tables.metadata}")
    with monkeypatch.context() as patch, pytest.raises(PySparkException, match="the disk is full"):
        patch.setattr(etl.ingest.writing.tasks, "write_images", always_fail)
        job.run(spark, plan=plan)
    there = rows_of(control, plan.tables.metadata)  # another task may still be writing
    files = {place: place.read_bytes() for row in there for place in [whole.root / row["or_split"] / row["path"]]}
    try:
        for place in files:
            place.write_bytes(b"no longer a picture")
        would = job.estimate(spark, plan=replace(plan, ingest_id=None, resume=True))
        assert would.images == 25  # what the listing knows, including the bad file
        assert 0 < len(there) <= would.already_there < 24
        assert f"would ingest {25 - would.already_there} of 25 files" in str(would)
        assert "; the contents of files are checked when they are ingested; nothing was written" in str(would)
        rest = job.run(spark, plan=plan)
    finally:
        for place, data in files.items():
            place.write_bytes(data)
    assert rest.images + rest.already_there == 24
    assert len(there) <= rest.already_there < 24
    assert (rest.quarantined, rest.fingerprint) == (1, whole.report.fingerprint)
    assert tables_of(control, plan) == whole.tables


def test_too_many_rejected_files_fail_the_job(spark: SparkSession, whole: Ingested) -> None:
    with pytest.raises(EtlError, match=r"at most 3% of 25 files rejected, which is none\. Found: 1.* SELECT"):
        job.run(spark, plan=replace(whole.plan, tolerance=Tolerance.parse("3%")))


def test_a_job_without_any_image_fails(spark: SparkSession, whole: Ingested, tmp_path: Path) -> None:
    source = replace(whole.plan.source, address=str(plant(tmp_path, {"a/1": b"x", "a/2": b""})), splits=())
    plan = replace(whole.plan, source=source, tolerance=Tolerance())
    with pytest.raises(EtlError, match=r"2 files, all rejected.*SELECT \* FROM \w+\.quarantine WHERE"):
        job.run(spark, plan=plan)


def test_classes_agree_between_splits_and_are_never_renumbered(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    tree(tmp_path, splits=("train",), classes="abd", each=1)
    tree(tmp_path, splits=("val",), classes="bcd", each=1)
    (tmp_path / "train" / "empty").mkdir()
    train, val = plan_of(tmp_path, splits=("train",)), plan_of(tmp_path, splits=("val",))

    def numbers() -> dict[str, int]:
        return class_names(control, keyspace=train.tables.metadata.keyspace, dataset=train.dataset)

    report = job.run(spark, plan=train)
    assert (report.classes, report.empty_classes) == (3, ["empty"])
    assert numbers() == {"a": 0, "b": 1, "d": 2, "empty": 3}
    assert f"dataset {val.dataset!r} had 4 classes; 1 new: c;" in str(job.estimate(spark, plan=val))
    report = job.run(spark, plan=val)
    assert f"dataset {val.dataset!r} had 4 classes; 1 new: c = 4;" in str(report)
    assert numbers() == {"a": 0, "b": 1, "d": 2, "empty": 3, "c": 4}
    rows = {(row["or_split"], row["or_label"]): row["label"] for row in rows_of(control, train.tables.metadata)}
    assert rows == {
        **{("train", name): number for name, number in (("a", 0), ("b", 1), ("d", 2))},
        **{("val", name): number for name, number in (("b", 1), ("c", 4), ("d", 2))},
    }


def test_trees_without_files_write_nothing(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    plan = plan_of(tmp_path, splits=())
    with pytest.raises(SourceError, match="Found: no folders"):
        job.run(spark, plan=plan)
    (tmp_path / "a").mkdir()
    with pytest.raises(SourceError, match="Found: no files"):
        job.run(spark, plan=plan)
    assert control.columns(plan.tables.data) is None


def test_a_tree_with_deeper_classes_is_refused_and_leaves_no_keyspace(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree(tmp_path / "tree", each=1)
    plan = plan_of(root)
    with in_living_session():
        options = ["--data-table", str(plan.data_table), "--metadata-table", str(plan.metadata_table)]
        assert job.main([str(root), *options]) == 1
        assert shard.main([str(root), "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert told.count("--split-subdir train --split-subdir val ") == 2
    assert told.count("3 classes, 6 images") == 2
    assert plan.tables.data.keyspace not in {
        row.keyspace_name for row in control.execute("SELECT keyspace_name FROM system_schema.keyspaces")
    }
    assert not (tmp_path / "out").exists()


def test_images_from_another_source_are_refused_without_overwrite(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    """In tables with other column names."""
    columns = Columns(id="patch_id", label="Klass", data="pixels")
    first = plan_of(tree(tmp_path / "first", each=2), columns=columns)
    job.run(spark, plan=first)
    assert control.columns(first.tables.data) == {"patch_id": "uuid", "Klass": "int", "pixels": "blob"}
    with pytest.raises(TableError, match=r"Wanted the column label with labels in .*Klass.* Name it with --label-col"):
        MetadataTable.open(spark, control, first.tables.metadata, columns=Columns(id="patch_id"))
    before = tables_of(control, first)
    plant(tree(tmp_path / "other", classes="bcd", each=2), {"train/b/bad": b""})
    other = plan_of(tmp_path / "other", columns=columns)
    with pytest.raises(ConflictError, match="8 of them") as caught:
        job.run(spark, plan=other)
    assert str(caught.value).count((tmp_path / "first").as_uri()) == 5
    assert "b/0.png from" in str(caught.value)
    assert tables_of(control, first) == before
    assert job.run(spark, plan=replace(other, overwrite=True)).images == 12
    sources = [row["source"] for row in rows_of(control, first.tables.metadata)]
    assert sources.count((tmp_path / "other").as_uri()) == 12
    assert sources.count((tmp_path / "first").as_uri()) == 4


def test_incompatible_tables_are_refused_with_every_difference(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    plan = plan_of(tree(tmp_path, each=1))
    with pytest.raises(TableError, match=r"no table .*data; no table .*metadata; no table .*classes; no table"):
        job.run(spark, plan=replace(plan, create=False))
    keyspace = plan.tables.data.keyspace
    strategy = f"{{'class': 'NetworkTopologyStrategy', '{control.datacenter}': 1}}"
    control.define(f"CREATE KEYSPACE {keyspace} WITH replication = {strategy}")
    control.define(f"CREATE TABLE {plan.data_table} (id uuid PRIMARY KEY, label blob, data blob)")
    control.define(f"CREATE TABLE {plan.metadata_table} (patch_id uuid PRIMARY KEY, label int, source text)")
    with pytest.raises(TableError, match=r"label blob instead of int .*no column id uuid in .*no column path text"):
        job.run(spark, plan=plan)
    control.define(f"ALTER TABLE {plan.metadata_table} DROP source")  # as other tools' examples create them
    with pytest.raises(TableError, match=r"metadata, which another tool created \(it has no id, .*split\.py") as caught:
        job.run(spark, plan=plan)
    assert "\n" not in str(caught.value)
    assert control.columns(plan.tables.classes) is None


def test_two_concurrent_ingests_agree(spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of(tree(tmp_path, each=1))
    etl.ingest.destination.create_tables(control, plan=plan)
    with ThreadPoolExecutor(2) as threads:
        runs = [
            threads.submit(job.run, spark, plan=replace(plan, source=replace(plan.source, splits=(split,))))
            for split in plan.source.splits
        ]
        assert [run.result().images for run in runs] == [3, 3]
    rows = rows_of(control, plan.tables.metadata)
    assert {(row["or_label"], row["label"]) for row in rows} == {("a", 0), ("b", 1), ("c", 2)}
    assert len(rows) == 6


def test_the_command_plans_without_writing(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tables = plan_of(tree(tmp_path, each=1)).tables
    arguments = [str(tmp_path), "--split-subdir=train", f"--data-table={tables.data}"]
    with in_living_session():
        assert job.main([*arguments, f"--metadata-table={tables.metadata}", "--plan", "--json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["images_by_split"] == {"train": 3}
    assert control.columns(tables.data) is None


def test_the_command_fails_with_one_line_without_cassandra(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    port = spark.conf.get("spark.cassandra.connection.port")
    spark.conf.set("spark.cassandra.connection.port", "9")
    try:
        with in_living_session():
            assert job.main([str(tmp_path), "--data-table=k.data", "--metadata-table=k.metadata"]) == 1
    finally:
        spark.conf.set("spark.cassandra.connection.port", str(port))
    said = capfd.readouterr().err
    ours = [line for line in said.splitlines() if line.startswith("ingest.py: ")]
    assert len(ours) == 1, said
    assert ours[0].startswith("ingest.py: Wanted Cassandra at 127.0.0.1 port 9. Found: ")
    assert "Traceback" not in said
