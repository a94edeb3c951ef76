"""Second ingests of a changed source: stale rows."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import EtlError
from etl.ingest.stale_rows import StaleRows
from jobs import ingest as job
from schemas import image_id
from tests.support.trees import before_writing, by_name, picture, plan_maker, plant, tree


def test_rows_whose_files_are_gone_are_counted_listed_and_pruned(
    spark: SparkSession,
    control: Control,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    root, other = tree(tmp_path / "one"), tree(tmp_path / "other", splits=("val",), classes="z", each=2)
    plan_of = plan_maker()
    plan = plan_of(root)
    job.run(spark, plan=plan)
    job.run(spark, plan=plan_of(other, splits=("val",)))
    (root / "train/a/0.png").unlink()
    (root / "train/a/1.png").rename(root / "train/b/moved.png")
    (root / "train/a/2.png").write_bytes(b"damaged")
    shutil.rmtree(root / "val/c")
    wanted = {"train/a/0.png", "train/a/1.png", "train/a/2.png", *(f"val/c/{i}.png" for i in range(4))}

    hidden = image_id(plan.dataset, b"train", b"a/.b.png")  # as an earlier version has ingested it
    plant(root, {"train/a/.b.png": picture(1)})
    row = f"INSERT INTO {plan.metadata_table} (id, or_split, path, source) VALUES (?, 'train', 'a/.b.png', ?)"
    control.execute(row, (hidden, plan.source_name))
    assert job.estimate(spark, plan=plan).stale == StaleRows(7, 25, hidden=1)
    control.execute(f"DELETE FROM {plan.metadata_table} WHERE id = ?", (hidden,))
    (root / "train/a/.b.png").unlink()
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
