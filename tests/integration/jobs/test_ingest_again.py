"""Second ingests of a changed source: stale rows, and near-duplicate groups over the whole table."""

import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import EtlError, TableError
from etl.ingest.stale_rows import StaleRows
from jobs import ingest as job
from tests.support.pictures import texture
from tests.support.trees import PlanOf, before_writing, by_name, picture, plant, tree


def test_rows_whose_files_are_gone_are_counted_listed_and_pruned(
    spark: SparkSession,
    control: Control,
    plan_of: PlanOf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    root, other = tree(tmp_path / "one"), tree(tmp_path / "other", splits=("val",), classes="z", each=2)
    plan = plan_of(root)
    job.run(spark, plan=plan)
    job.run(spark, plan=plan_of(other, splits=("val",)))
    (root / "train/a/0.png").unlink()
    (root / "train/a/1.png").rename(root / "train/b/moved.png")
    (root / "train/a/2.png").write_bytes(b"damaged")
    shutil.rmtree(root / "val/c")
    wanted = {"train/a/0.png", "train/a/1.png", "train/a/2.png", *(f"val/c/{i}.png" for i in range(4))}

    would = job.estimate(spark, plan=plan)
    assert would.stale == StaleRows(6, 24)  # a listing cannot detect damage
    assert "(to list them: --list-stale; to remove them: --prune --prune-count 6)" in str(would)
    only_train = replace(plan.source, splits=("train",))
    assert job.run(spark, plan=replace(plan, source=only_train)).stale == StaleRows(3, 13)
    before = by_name(control, plan)
    with caplog.at_level("INFO"):
        report = job.run(spark, plan=replace(plan, list_stale=True))
    assert report.stale == StaleRows(7, 25)
    assert "7 of 25 rows of this source are stale: " in str(report)
    assert "(to remove them: --prune --prune-count 7)" in str(report)
    assert any(line.startswith("7 stale rows of file:") for line in caplog.messages)
    assert {line.partition("stale: ")[2] for line in caplog.messages if line.startswith("stale: ")} == wanted

    with pytest.raises(EtlError, match=r"--prune-count 7, to remove 7 of 25 rows.*no --prune-count.*exceeds 1%"):
        job.run(spark, plan=replace(plan, prune=True))
    with pytest.raises(EtlError, match="--prune-count 6"):
        job.run(spark, plan=replace(plan, prune=True, prune_count=6))
    assert by_name(control, plan) == before

    with monkeypatch.context() as patch:  # an unreadable file may be readable later: its row stays
        gone = root / "train/c/0.png"
        before_writing(patch, gone.unlink)
        report = job.run(spark, plan=replace(plan, prune=True, prune_count=7))
    assert report.stale == StaleRows(7, 25, removed=7)
    after = by_name(control, plan)  # of both tables
    assert after == {name: row for name, row in before.items() if name not in wanted}
    assert {"train/c/0.png", "val/z/0.png"} <= after.keys()
    history = control.execute(f"SELECT * FROM {plan.tables.metadata}_history")
    assert {row.id for row in history} == {before[name]["id"] for name in wanted}
    assert {(row.kind, row.reason) for row in history} == {("pruned", f"not found by ingest {report.ingest_id}")}
    assert {(row.since, row.until) for row in history} == {(1, report.sequence)}

    gone.write_bytes(picture(1))
    (root / "train/a/2.png").write_bytes(picture(2))  # removed files can come back
    report = job.run(spark, plan=plan)
    assert (report.images, report.stale) == (19, StaleRows(0, 19))
    assert "train/a/2.png" in by_name(control, plan)


def smaller(data: bytes) -> bytes:
    """The same image in another size and format."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        image.resize((128, 128)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def test_look_alikes_are_found_in_the_whole_table_and_replaced_pictures_lose_their_group(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    one, other = texture(1), texture(2)
    first = plan_of(plant(tmp_path / "first", {"train/a/1.png": one, "train/a/2.png": other}), splits=("train",))
    job.run(spark, plan=first)  # does not look for near-duplicates
    second = plan_of(plant(tmp_path / "second", {"val/a/3.jpg": smaller(one)}), splits=("val",), near_duplicates=True)
    assert job.run(spark, plan=second).groups == 1
    groups = {name: row["group_id"] for name, row in by_name(control, first).items()}
    assert groups["train/a/1.png"] is not None
    assert groups == {
        "train/a/1.png": groups["val/a/3.jpg"],
        "train/a/2.png": None,
        "val/a/3.jpg": groups["train/a/1.png"],
    }

    job.run(spark, plan=first)  # unchanged images keep their groups
    assert {name: row["group_id"] for name, row in by_name(control, first).items()} == groups
    plant(tmp_path / "first", {"train/a/1.png": texture(3)})
    report = job.run(spark, plan=first)
    assert "1 changed image no longer in a group of near duplicates" in str(report)
    groups = {name: row["group_id"] for name, row in by_name(control, first).items()}
    assert groups["train/a/1.png"] is None
    assert job.run(spark, plan=replace(first, near_duplicates=True, resume=True)).groups == 0
    assert {row["group_id"] for row in by_name(control, first).values()} == {None}


def test_groups_of_a_source_are_not_replaced_by_look_alikes(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    plant(tmp_path, {"scans/1.png": picture(1), "labels.csv": b"path,label,patient\n1.png,a,p1\n"})
    given = plan_of(tmp_path / "scans", splits=(), labels=str(tmp_path / "labels.csv"), group_column="patient")
    job.run(spark, plan=given)
    more = plan_of(tree(tmp_path / "more", splits=("val",), each=1), splits=("val",), near_duplicates=True)
    with pytest.raises(TableError, match="1 images with a group from their source"):
        job.run(spark, plan=more)
    assert len(by_name(control, given)) == 1
