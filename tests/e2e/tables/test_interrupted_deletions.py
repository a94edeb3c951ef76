"""Images are deleted: from a table with a long name of an earlier version, and when the run was interrupted."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.deleting.plan import DeletePlan
from etl.errors import TableError
from etl.ingest.plan import IngestPlan
from etl.labels.plan import RelabelPlan
from etl.sources.plan import SourcePlan
from etl.splits import splitting
from etl.splits.plan import SplitPlan
from etl.tables import removal
from etl.tables.removal import remove
from jobs import delete as job
from jobs import ingest as ingest_job
from jobs import relabel as relabel_job
from schemas import Columns, TableName, image_id
from schemas.tables import Replication, create_keyspace, create_metadata
from tests.support.features import tables_of
from tests.support.pictures import texture
from tests.support.trees import plant

LONG = "metadata_of_an_earlier_version_with_a_long_name_"


def test_a_new_metadata_table_has_a_short_name_and_a_longer_one_of_an_earlier_version_works(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path
) -> None:
    tables = {**tables_of(keyspace), "metadata_table": TableName(keyspace, LONG)}
    tree = plant(tmp_path / "tree", {f"{number % 2}/{number}.png": texture(number) for number in range(4)})
    ingest = IngestPlan(source=SourcePlan(address=str(tree)), **tables)
    with pytest.raises(TableError, match=f"at most 40 characters .* Found: {LONG}, with 48"):
        ingest_job.run(spark, plan=ingest)
    assert not list(control.execute("SELECT * FROM system_schema.tables WHERE keyspace_name = ?", (keyspace,)))
    control.define(create_keyspace(keyspace, Replication.parse("1", datacenter=control.datacenter)))
    control.create_table(tables["metadata_table"], create_metadata(tables["metadata_table"], Columns()))
    ingest_job.run(spark, plan=ingest)
    report = job.run(spark, plan=DeletePlan(**tables, ingest=1, reason="request 17", count=4))
    assert report.images == 4
    with pytest.raises(TableError, match=r"4 images \(0 replaced, 4 removed since\)"):
        splitting.run(spark, plan=SplitPlan(**tables, out=str(tmp_path / "split"), ratios=(1,), as_of="1"))


@pytest.mark.parametrize("resume", [False, True])
def test_images_of_an_interrupted_deletion_are_restored_for_ingests_and_for_splits(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resume: bool
) -> None:
    tables = tables_of(keyspace)
    tree = plant(tmp_path / "tree", {f"{number % 2}/{number}.png": texture(number) for number in range(6)})
    ingest = IngestPlan(source=SourcePlan(address=str(tree)), **tables)
    ingest_job.run(spark, plan=ingest)
    with monkeypatch.context() as patch, pytest.raises(TableError, match="Run this again"):
        patch.setattr(removal, "remove", lambda ids, **more: remove(ids.limit(1), **more))
        job.run(spark, plan=DeletePlan(**tables, where="label = 0", reason="request 17", count=3))
    left, _ = (row.id for row in control.execute(f"SELECT id, label FROM {keyspace}.metadata") if row.label == 0)
    control.execute(f"DELETE data FROM {keyspace}.data WHERE id = ?", (left,))  # of two keyspaces, one may be done

    restored = ingest_job.run(spark, plan=replace(ingest, resume=resume, restore_deleted=True))
    assert restored.images == (3 if resume else 6)
    rows = control.execute(f"SELECT label, since FROM {keyspace}.metadata")
    assert sorted((row.label, row.since) for row in rows) == [(0, 3)] * 3 + [(1, 1)] * 3
    assert all(row.data for row in control.execute(f"SELECT data FROM {keyspace}.data"))
    assert ingest_job.run(spark, plan=replace(ingest, resume=True)).deleted == 0
    split = splitting.run(spark, plan=SplitPlan(**tables, out=str(tmp_path / "split"), ratios=(1,)))
    assert (split.rows, [one for one in split.warnings if "deleted" in one]) == ([6], [])
    assert {row.kind for row in control.execute(f"SELECT kind FROM {keyspace}.metadata_history")} == {"deleted"}


def test_a_run_that_prunes_removes_labels_and_kept_bytes_that_an_interrupted_deletion_left(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, names = tables_of(keyspace), [f"{number % 2}/{number}.png" for number in range(4)]
    tree = plant(tmp_path / "tree", {name: texture(number) for number, name in enumerate(names)})
    ingest = IngestPlan(source=SourcePlan(address=str(tree)), keep_replaced=True, **tables)
    ingest_job.run(spark, plan=ingest)
    plant(tree, {name: texture(9 + number) for number, name in enumerate(names[:3])})
    ingest_job.run(spark, plan=replace(ingest, overwrite=True))
    labels = tmp_path / "labels.csv"
    labels.write_text("path,label\n" + "".join(f"{name},1\n" for name in names))
    relabel_job.run(spark, plan=RelabelPlan(labels=str(labels), **tables))
    with monkeypatch.context() as patch, pytest.raises(TableError, match="Run this again"):
        patch.setattr(removal, "remove", lambda ids, **more: remove(ids.limit(0), **more))
        job.run(spark, plan=DeletePlan(**tables, where="path = '0/0.png'", reason="request 17", count=1))
    for name in ("0/0.png", "1/1.png"):  # the second one is only pruned: it may come back
        (tree / name).unlink()
    ingest_job.run(spark, plan=replace(ingest, resume=True, prune=True, prune_count=2))
    ids = {name: image_id(keyspace, b"", name.encode()) for name in names}
    for table, left in (("metadata_label", names[1:]), ("data_history", names[1:3]), ("metadata", names[2:])):
        assert {row.id for row in control.execute(f"SELECT id FROM {keyspace}.{table}")} == {ids[name] for name in left}
    removed = {(row.id, row.kind) for row in control.execute(f"SELECT id, kind FROM {keyspace}.metadata_history")}
    assert {one for one in removed if one[1] != "replaced"} == {(ids["0/0.png"], "deleted"), (ids["1/1.png"], "pruned")}


def test_a_cache_that_an_earlier_deletion_did_not_name_loses_its_images_too(
    spark: SparkSession, keyspace: str, tmp_path: Path
) -> None:
    tables, cache = tables_of(keyspace), str(tmp_path / "cache")
    tree = plant(tmp_path / "tree", {f"{number % 2}/{number}.png": texture(number) for number in range(6)})
    ingest_job.run(spark, plan=IngestPlan(source=SourcePlan(address=str(tree)), **tables))
    splitting.run(spark, plan=SplitPlan(**tables, out=str(tmp_path / "split"), ratios=(1,), metadata_out=cache))
    job.run(spark, plan=DeletePlan(**tables, where="path = '0/0.png'", reason="request 17", count=1))
    old = next((tmp_path / "cache" / "rows").glob("*.parquet"))
    data = old.read_bytes()
    report = job.run(
        spark, plan=DeletePlan(**tables, where="path = '0/2.png'", reason="request 18", count=1, caches=(cache,))
    )
    assert report.caches == {cache: 2}
    old.write_bytes(data)  # as a kill just before it was removed leaves it
    again = DeletePlan(**tables, ids=(image_id(keyspace, b"", b"0/2.png"),), reason="request 18", caches=(cache,))
    assert job.run(spark, plan=again).caches == {cache: 0}
    assert not old.exists()
    left = spark.read.parquet(f"{cache}/rows")
    assert {row.path for row in left.collect()} == {"0/4.png", "1/1.png", "1/3.png", "1/5.png"}


def test_images_that_a_run_has_pruned_are_deleted_too(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path
) -> None:
    tables = tables_of(keyspace)
    tree = plant(tmp_path / "tree", {f"{number % 2}/{number}.png": texture(number) for number in range(4)})
    ingest, image = IngestPlan(source=SourcePlan(address=str(tree)), **tables), image_id(keyspace, b"", b"0/0.png")
    ingest_job.run(spark, plan=ingest)
    (tree / "0" / "0.png").rename(tmp_path / "0.png")
    pruning = ingest_job.run(spark, plan=replace(ingest, prune=True, prune_count=1))
    rejected = f"INSERT INTO {keyspace}.quarantine (ingest_id, path, reason) VALUES ({pruning.ingest_id}, ?, 'damaged')"
    for path in ("0/0.png", "0/2.png"):
        control.execute(rejected, (path,))
    report = job.run(spark, plan=DeletePlan(**tables, ids=(image,), reason="request 17", count=1))
    assert (report.images, report.before) == (1, 0)
    assert [row.path for row in control.execute(f"SELECT path FROM {keyspace}.quarantine")] == ["0/2.png"]
    (tmp_path / "0.png").rename(tree / "0" / "0.png")
    assert ingest_job.run(spark, plan=ingest).deleted == 1
    for run, images in (("1", None), ("2", 3), ("3", 3)):
        plan = SplitPlan(**tables, out=str(tmp_path / run), ratios=(1,), as_of=run)
        if images is None:
            with pytest.raises(TableError, match=r"1 image \(0 replaced, 1 removed since\)"):
                splitting.run(spark, plan=plan)
        else:
            assert splitting.run(spark, plan=plan).rows == [images]
    by_source = DeletePlan(**tables, source=ingest.source_name, reason="request 18", count=3)
    assert (job.run(spark, plan=by_source).before, job.run(spark, plan=by_source).before) == (1, 4)
