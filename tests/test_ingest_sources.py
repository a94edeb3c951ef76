"""Every kind of source and of label, ingested whole into a real Cassandra, or into a folder."""

import csv
import io
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives import mask, npy, tar
from pictures import texture
from PIL import Image
from pyspark.sql import SparkSession
from trees import PlanOf, before_writing, by_name, picture, plant, quarantine, tables_of, tree

from etl.cassandra import Control
from etl.errors import EtlError, OutputExistsError, SourceError
from etl.ingest_plan import Tolerance
from etl.recode import Recode
from jobs import ingest as job
from schemas import image_id


def test_a_tar_of_tars_is_the_tree_that_it_was_made_of(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    files = {f"n{name}/{name}_{i}.png": picture(10 * name + i) for name in range(3) for i in range(3)}
    plant(tmp_path / "tree", {f"train/{path}": data for path, data in files.items()})
    inner = {
        f"n{name}.tar": tar({path.partition("/")[2]: data for path, data in files.items() if path[1] == str(name)})
        for name in range(3)
    }
    (tmp_path / "train.tar").write_bytes(tar(inner))
    from_tree = plan_of(tmp_path / "tree", splits=("train",))
    first = job.run(spark, plan=from_tree)
    wanted = tables_of(control, from_tree)
    from_tars = plan_of(tmp_path / "train.tar", splits=(), or_split="train", read="sequential", overwrite=True)
    second = job.run(spark, plan=from_tars)
    assert second.fingerprint == first.fingerprint
    found = tables_of(control, from_tars)
    assert {row.pop("source") for row in found[1]} == {(tmp_path / "train.tar").as_uri()}
    assert [row.pop("source") for row in wanted[1]]
    assert found == wanted


def test_one_stream_of_a_compressed_tar(spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path) -> None:
    files = {f"{split}/{name}/{i}.png": picture(i) for split in ("train", "val") for name in "ab" for i in range(3)}
    (tmp_path / "all.tgz").write_bytes(tar({**files, "train/../x.png": picture(9), "readme": b"x"}, mode="w:gz"))
    plan = plan_of(tmp_path / "all.tgz")
    report = job.run(spark, plan=plan)
    assert report.images_by_split == {"train": 6, "val": 6}
    assert {name: row["data"] for name, row in by_name(control, plan).items()} == files
    assert report.quarantined_by_reason.keys() <= {"unsafe name"}


def test_the_validation_set_with_its_truth_in_the_order_of_names(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    (tmp_path / "val.tar").write_bytes(tar({f"val_{i}.png": picture(i) for i in (3, 1, 2)}))
    (tmp_path / "truth.txt").write_text("490\n361\n171\n")
    plan = plan_of(tmp_path / "val.tar", splits=(), or_split="val", labels=str(tmp_path / "truth.txt"))
    job.run(spark, plan=plan)
    rows = by_name(control, plan)
    assert {name: row["label"] for name, row in rows.items()} == {
        "val/val_1.png": 490,
        "val/val_2.png": 361,
        "val/val_3.png": 171,
    }
    assert all(row["stored"] == row["label"] for row in rows.values())
    (tmp_path / "truth.txt").write_text("490\n361\n")
    with pytest.raises(SourceError, match="2 lines and 3 files"):
        job.run(spark, plan=plan)
    (tmp_path / "truth.txt").write_text("490\n-1\n3\n")
    with pytest.raises(SourceError, match="'-1'"):
        job.run(spark, plan=plan)


def test_classes_that_should_be_numbers_are_refused_before_anything_is_created(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    plan = plan_of(tree(tmp_path, each=1), class_names="number")
    with pytest.raises(SourceError, match="'a', 'b', 'c'"):
        job.run(spark, plan=plan)
    assert control.columns(plan.tables.data) is None


def test_numbers_are_not_mixed_with_named_classes(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    named = plan_of(tree(tmp_path / "named", each=1))
    job.run(spark, plan=named)
    plant(tmp_path / "flat", {"x.png": picture(1)})
    (tmp_path / "truth.txt").write_text("1\n")
    numbered = plan_of(tmp_path / "flat", splits=(), or_split="more", labels=str(tmp_path / "truth.txt"))
    before = tables_of(control, named)
    with pytest.raises(SourceError, match="mean something else"):
        job.run(spark, plan=numbered)
    assert tables_of(control, named) == before
    assert job.run(spark, plan=replace(numbered, dataset="by_number")).images == 1


def test_a_flat_folder_with_a_file_of_labels(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    plant(tmp_path / "flat", {f"{name}.png": picture(i) for i, name in enumerate("abcd")})
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        rows = [("a.png", "cat", "p1"), ("b.png", "ant", "p1"), ("c.png", "ant", ""), ("c.png", "bee", "")]
        csv.writer(file).writerows([("file", "class", "patient"), *rows, ("z.png", "cat", "p9")])
    columns = {"path_column": "file", "label_column": "class", "group_column": "patient"}
    plan = plan_of(tmp_path / "flat", splits=(), labels=str(tmp_path / "labels.csv"), **columns)
    report = job.run(spark, plan=plan)
    found = {name: (row["label"], row["or_label"], row["group_id"]) for name, row in by_name(control, plan).items()}
    assert found == {"/a.png": (1, "cat", "p1"), "/b.png": (0, "ant", "p1")}
    assert quarantine(control, report) == {
        "c.png": ("list", "two labels: ant and bee in labels.csv"),
        "d.png": ("list", "no label: not in labels.csv"),
    }
    assert report.unmatched == ["1 rows of labels.csv belong to no image: z.png"]


def test_shards_bring_their_own_labels(spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path) -> None:
    for shard in range(2):
        samples = {f"{shard}{i}.{ending}": data for i in range(3) for ending, data in
                   (("png", picture(i)), ("cls", str(7 * shard).encode()))}  # fmt: skip
        (tmp_path / f"x-{shard:03}.tar").write_bytes(tar(samples))
    plan = plan_of(tmp_path / "x-{000..001}.tar", splits=())
    assert job.run(spark, plan=plan).images == 6
    rows = by_name(control, plan)
    assert {name: row["label"] for name, row in rows.items()} == {
        f"/x-{shard:03}/{shard}{i}.png": 7 * shard for shard in range(2) for i in range(3)
    }


def test_a_table_of_bytes(spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path) -> None:
    pictures = [picture(i) for i in range(5)]
    table = pa.table({"image": pictures, "label": [4, 4, 0, 0, 2], "name": [f"{i}.png" for i in range(5)]})
    pq.write_table(table, tmp_path / "part.parquet", row_group_size=2)
    plan = plan_of(tmp_path / "part.parquet", splits=(), path_column="name")
    job.run(spark, plan=plan)
    rows = by_name(control, plan)
    assert [rows[f"/{i}.png"]["data"] for i in range(5)] == pictures
    assert [rows[f"/{i}.png"]["label"] for i in range(5)] == [4, 4, 0, 0, 2]
    again = job.run(spark, plan=replace(plan, resume=True))
    assert (again.images, again.already_there) == (0, 5)


def test_masks_beside_images(spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path) -> None:
    plant(tmp_path / "images", {f"training/{i}.jpg": picture(i, kind="JPEG") for i in range(4)})
    masks = {f"training/{i}.png": mask(i) for i in (0, 1, 7)}
    plant(tmp_path / "masks", {**masks, "training/3.png": mask(3, size=(9, 9))})
    plan = plan_of(tmp_path / "images", splits=("training",), label_type="blob", masks=str(tmp_path / "masks"))
    report = job.run(spark, plan=plan)
    rows = by_name(control, plan)
    assert {name: row["stored"] for name, row in rows.items()} == {
        "training/0.jpg": masks["training/0.png"],
        "training/1.jpg": masks["training/1.png"],
    }
    assert {row["label"] for row in rows.values()} == {None}
    assert quarantine(control, report) == {
        "training/2.jpg": ("list", "no mask: nothing of its name"),
        "training/3.jpg": ("read", "mask of another size: 9x9 instead of 16x12"),
    }
    assert report.unmatched == ["1 masks belong to no image: training/7.png"]


def test_arrays_in_the_same_folder(spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path) -> None:
    plant(tmp_path, {"a/1.png": picture(1), "a/1.npy": npy([1, 0, 1]), "2.png": picture(2), "2.npy": b"no array"})
    plan = plan_of(tmp_path, splits=(), label_type="multi", arrays=str(tmp_path))
    report = job.run(spark, plan=plan)
    ((name, row),) = by_name(control, plan).items()
    assert (name, row["labels"], row["stored"]) == ("/a/1.png", [1, 0, 1], npy([1, 0, 1]))
    ((path, (stage, reason)),) = quarantine(control, report).items()
    assert (path, stage) == ("2.png", "read")
    assert reason.startswith("bad label array")


def test_no_labels_and_pictures_made_small(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    plant(tmp_path, {"x/wide.png": picture(1, size=(200, 100)), "small.JPEG": picture(2, size=(20, 10))})
    plan = plan_of(tmp_path, splits=(), label_type="none", recode=Recode(format="JPEG", size=50, crop=True, quality=80))
    report = job.run(spark, plan=plan)
    rows = by_name(control, plan)
    assert {name: (row["format"], row["width"], row["height"]) for name, row in rows.items()} == {
        "/x/wide.png": ("JPEG", 50, 50),
        "/small.JPEG": ("JPEG", 20, 10),
    }
    assert "label" not in (control.columns(plan.tables.data) or {})
    assert rows["/x/wide.png"]["source"].endswith("?img-format=JPEG&img-size=50&crop&quality=80")
    assert report.notes == {"PNG with another extension": 1}
    with pytest.raises(EtlError, match="from another source"):
        job.run(spark, plan=replace(plan, recode=Recode()))


def test_a_folder_of_files_instead_of_tables(spark: SparkSession, plan_of: PlanOf, tmp_path: Path) -> None:
    plant(tmp_path / "flat", {f"{i}.png": picture(i) for i in range(3)} | {"bad.png": b"bad", "out.png": picture(9)})
    (tmp_path / "labels.csv").write_text("path,label\nout.png,..\n0.png,cat\n1.png,dog\n2.png,cat\nbad.png,cat\n")
    options = {"splits": (), "or_split": "train", "labels": str(tmp_path / "labels.csv")}
    out = tmp_path / "out"
    plan = plan_of(tmp_path / "flat", target=str(out), recode=Recode(format="WEBP", quality=90), **options)
    report = job.run(spark, plan=plan)
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert names == ["rejected.csv", "train/cat/0.png.webp", "train/cat/2.png.webp", "train/dog/1.png.webp"]
    with Image.open(out / "train/cat/0.png.webp") as image:
        assert (image.format, image.size) == ("WEBP", (16, 12))
    assert "bad.png,read,not an image" in (out / "rejected.csv").read_text()
    assert "out.png,write,unsafe name: it leads out of its folder" in (out / "rejected.csv").read_text()
    assert str(report).startswith("ingested 3 images")
    with pytest.raises(OutputExistsError, match="--resume"):
        job.run(spark, plan=plan)
    (out / "train/cat/0.png.webp").unlink()
    again = job.run(spark, plan=replace(plan, resume=True))
    assert (again.images, again.already_there) == (1, 2)
    assert (out / "rejected.csv").read_text().count("\n") == 3


def test_resume_reads_only_what_is_not_there(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    plan = plan_of(tree(tmp_path))
    whole = job.run(spark, plan=plan)
    wanted = tables_of(control, plan)
    gone = image_id(plan.dataset, b"train", b"a/0.png")
    for table in (plan.tables.data, plan.tables.metadata):
        control.execute(f"DELETE FROM {table.quoted} WHERE id = ?", (gone,))
    plant(tmp_path, {f"val/b/{i}.png": b"no longer a picture" for i in range(4)})
    would = job.estimate(spark, plan=replace(plan, resume=True))
    assert (would.images, would.already_there) == (24, 23)
    assert "would ingest 1 of 24 images" in str(would)
    assert len(tables_of(control, plan)[1]) == 23
    rest = job.run(spark, plan=replace(plan, resume=True))
    assert (rest.images, rest.already_there, rest.quarantined) == (1, 23, 0)
    assert rest.fingerprint == whole.fingerprint
    assert tables_of(control, plan) == wanted


def test_more_errors_than_may_be_fail(spark: SparkSession, plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of(plant(tree(tmp_path), {f"train/a/bad{i}": b"bad" for i in range(3)}))
    assert job.run(spark, plan=replace(plan, tolerance=Tolerance.parse("3"))).quarantined == 3
    with pytest.raises(EtlError, match=r"at most 2 of 27 files rejected\. Found: 3.* SELECT"):
        job.run(spark, plan=replace(plan, tolerance=Tolerance.parse("8%")))


def test_the_report_tells_duplicates_and_groups_look_alikes(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    one, other = texture(1), texture(2)
    with Image.open(io.BytesIO(one)) as image:
        buffer = io.BytesIO()
        image.resize((128, 128)).save(buffer, "JPEG", quality=95)
    files = {"train/a/1.png": one, "train/b/2.png": one, "val/a/3.jpg": buffer.getvalue(), "val/a/4.png": other}
    plan = plan_of(plant(tmp_path, files), near_duplicates=True)
    report = job.run(spark, plan=plan)
    assert report.duplicates is not None
    assert (report.duplicates.groups, report.duplicates.with_different_labels) == (1, 1)
    assert "2 images are exact duplicates" in str(report)
    groups = {name: row["group_id"] for name, row in by_name(control, plan).items()}
    assert report.groups == 1
    assert groups["train/a/1.png"] is not None
    assert groups["train/a/1.png"] == groups["train/b/2.png"] == groups["val/a/3.jpg"]
    assert groups["val/a/4.png"] is None


def test_a_class_folder_that_vanishes_after_the_listing(
    spark: SparkSession, control: Control, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = plan_of(tree(tmp_path, splits=("train",)), splits=("train",))
    before_writing(monkeypatch, lambda: shutil.rmtree(tmp_path / "train" / "b"))
    report = job.run(spark, plan=plan)
    assert (report.images, report.quarantined_by_reason) == (8, {"unreadable": 4})
    assert len(by_name(control, plan)) == 8
