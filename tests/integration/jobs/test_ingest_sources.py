"""Every kind of source and of label is ingested into a real Cassandra, or into a folder."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import ConflictError, EtlError, OutputExistsError, SourceError
from etl.ingest.destination import create_tables
from etl.pictures.plan import Recode
from etl.tables.class_numbers import take_numbers
from jobs import ingest as job
from schemas import image_id
from tests.support.archives import tar
from tests.support.encoding import npy
from tests.support.pictures import texture
from tests.support.trees import PlanOf, by_name, picture, plant, quarantine, tables_of, tree


def test_a_tar_of_tars_gives_the_tables_of_its_tree(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    files = {f"n{name}/{name}_{i}.png": picture(10 * name + i) for name in range(3) for i in range(3)}
    inner = {
        f"n{name}.tar": tar({path.partition("/")[2]: data for path, data in files.items() if path[1] == str(name)})
        for name in range(3)
    }
    (tmp_path / "train.tar").write_bytes(tar(inner))
    plan = plan_of(tmp_path / "train.tar", splits=(), or_split="train", read="sequential")
    assert job.run(spark, plan=plan).images == 9
    rows = by_name(control, plan)
    assert {name: (row["id"], row["label"], row["or_label"], row["data"]) for name, row in rows.items()} == {
        f"train/{path}": (image_id(plan.dataset, b"train", path.encode()), int(path[1]), path[:2], data)
        for path, data in files.items()
    }
    assert {row["source"] for row in rows.values()} == {(tmp_path / "train.tar").as_uri()}


def test_label_lines_are_assigned_to_a_validation_set_in_name_order(
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


def test_labels_from_kaggle_are_found_and_those_of_no_image_leave_no_table(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    (tmp_path / "val.tar").write_bytes(tar({f"v_{i}.JPEG": picture(i) for i in range(2)}))
    labels = tmp_path / "LOC_val_solution.csv"
    labels.write_text("ImageId,PredictionString\nw_0,n2 85 1 499 272\nw_1,n1 85 1 499 272\n")
    plan = plan_of(tmp_path / "val.tar", splits=(), or_split="val", labels=str(labels))
    with pytest.raises(SourceError, match=r"with no common names: 'w_0' in .*'val/v_0\.JPEG' in the source"):
        job.run(spark, plan=plan)
    assert control.columns(plan.tables.data) is None
    labels.write_text(labels.read_text().replace("w_", "v_"))
    report = job.run(spark, plan=plan)
    assert "names in LOC_val_solution.csv have no extensions" in str(report)
    assert {name: row["or_label"] for name, row in by_name(control, plan).items()} == {
        "val/v_0.JPEG": "n2",
        "val/v_1.JPEG": "n1",
    }
    labels.write_text(labels.read_text().replace("v_1,n1", "v_1,n2"))
    report = job.run(spark, plan=replace(plan, resume=True))  # images with another label count as not done
    assert (report.images, report.already_there) == (1, 1)
    assert {row["label"] for row in by_name(control, plan).values()} == {1}


def test_an_archive_without_class_folders_leaves_no_table(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    (tmp_path / "flat.tar").write_bytes(tar({f"{i}.png": picture(i) for i in range(2)}))
    plan = plan_of(tmp_path / "flat.tar", splits=())
    for work in (job.run, job.estimate):
        with pytest.raises(
            SourceError, match=r"Found: no usable files: 2 outside a class folder\. .* set --labels FILE"
        ):
            work(spark, plan=plan)
    assert control.columns(plan.tables.data) is None


def test_class_names_and_class_numbers_cannot_be_mixed(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    named = plan_of(tree(tmp_path / "named", each=1))
    with pytest.raises(SourceError, match="'a', 'b', 'c'"):
        job.run(spark, plan=replace(named, source=replace(named.source, class_names="number")))
    assert control.columns(named.tables.data) is None
    create_tables(control, plan=named)
    take_numbers(control, keyspace=named.tables.classes.keyspace, dataset=named.dataset, names=["a", "b"])
    before = tables_of(control, named)
    plant(tmp_path / "flat", {"x.png": picture(1)})
    (tmp_path / "truth.txt").write_text("1\n")
    numbered = plan_of(tmp_path / "flat", splits=(), or_split="more", labels=str(tmp_path / "truth.txt"))
    for class_names in (None, "number"):
        with pytest.raises(SourceError, match="mean something else"):
            job.run(spark, plan=replace(numbered, source=replace(numbered.source, class_names=class_names)))
    assert tables_of(control, named) == before

    # Class numbers get separate tables and a separate dataset, because class names cannot be added there.
    own = {name: replace(table, table=f"own_{table.table}") for name, table in
           (("data_table", numbered.tables.data), ("metadata_table", numbered.tables.metadata))}  # fmt: skip
    numbered = replace(numbered, dataset="by_number", **own)  # type: ignore[arg-type]
    assert job.run(spark, plan=numbered).images == 1
    with pytest.raises(ConflictError, match=r"'by_number', classes by name, .* by number.*--class-names number"):
        job.run(spark, plan=replace(named, dataset="by_number"))
    with pytest.raises(ConflictError, match=r"they hold dataset 'by_number'.* other tables: --data-table \w+\.own_"):
        job.run(spark, plan=replace(numbered, dataset="two"))
    assert job.run(spark, plan=named).images == 6


def test_labels_are_read_from_shards(spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path) -> None:
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


def test_a_table_of_bytes_is_ingested(spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path) -> None:
    pictures = [picture(i) for i in range(5)]
    table = pa.table({"image": pictures, "label": [4, 4, 0, 0, 2]})
    pq.write_table(table, tmp_path / "part.parquet", row_group_size=2)
    plan = plan_of(tmp_path / "part.parquet", splits=())
    job.run(spark, plan=plan)
    rows = by_name(control, plan)
    assert [rows[f"/part/{i}"]["data"] for i in range(5)] == pictures
    assert [rows[f"/part/{i}"]["label"] for i in range(5)] == [4, 4, 0, 0, 2]
    again = job.run(spark, plan=replace(plan, resume=True))
    assert (again.images, again.already_there) == (0, 5)
    assert "5 existed already" in str(again)


def test_arrays_in_the_image_folder_become_labels(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    plant(tmp_path, {"a/1.png": picture(1), "a/1.npy": npy([1, 0, 1]), "2.png": picture(2), "2.npy": b"no array"})
    plan = plan_of(tmp_path, splits=(), label_type="multi", arrays=str(tmp_path))
    report = job.run(spark, plan=plan)
    ((name, row),) = by_name(control, plan).items()
    assert (name, row["labels"], row["stored"]) == ("/a/1.png", [1, 0, 1], npy([1, 0, 1]))
    ((path, (stage, reason)),) = quarantine(control, report).items()
    assert (path, stage) == ("2.png", "read")
    assert reason.startswith("bad label array")


def test_unlabelled_pictures_are_ingested_at_a_smaller_size(
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


def test_images_are_written_to_a_folder_instead_of_tables(spark: SparkSession, plan_of: PlanOf, tmp_path: Path) -> None:
    files = {f"{i}.png": picture(i) for i in range(3)} | {"0.png.webp": picture(3), "rejected.csv": picture(4)}
    plant(tmp_path / "flat", files | {"bad.png": b"bad", "out.png": picture(9)})
    labels = "out.png,..\n0.png,cat\n1.png,a/b\n2.png,a_b\nbad.png,cat\n0.png.webp,cat\nrejected.csv,cat\n"
    (tmp_path / "labels.csv").write_text(f"path,label\n{labels}")
    options = {"splits": (), "or_split": "train", "labels": str(tmp_path / "labels.csv")}
    out = tmp_path / "out"
    plan = plan_of(tmp_path / "flat", target=str(out), recode=Recode(format="WEBP", quality=90), **options)
    report = job.run(spark, plan=plan)
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert names == [
        ".ingest.json",
        "rejected.csv",
        "train/a%2Fb/1.png.webp",
        "train/a_b/2.png.webp",
        "train/cat/0.png.webp",
        "train/cat/0.png.webp.webp",
        "train/cat/rejected.csv",
    ]
    with Image.open(out / "train/cat/0.png.webp") as image, Image.open(out / "train/cat/0.png.webp.webp") as other:
        assert (image.format, image.size) == ("WEBP", (16, 12))
        assert other.convert("RGB").getpixel((0, 0)) != image.convert("RGB").getpixel((0, 0))
    assert "bad.png,read,not an image" in (out / "rejected.csv").read_text()
    assert "out.png,write,unsafe name: it leads out of its folder" in (out / "rejected.csv").read_text()
    assert str(report).startswith("ingested 5 images")
    with pytest.raises(OutputExistsError, match="--resume"):
        job.run(spark, plan=plan)
    (out / "train/cat/0.png.webp").unlink()
    (out / "train/a_b/2.png.webp").write_bytes(b"")  # as left by a power cut
    again = job.run(spark, plan=replace(plan, resume=True))
    assert (again.images, again.already_there) == (2, 3)
    assert (out / "train/a_b/2.png.webp").stat().st_size
    assert (out / "rejected.csv").read_text().count("\n") == 3
    plain = plan_of(tmp_path / "flat", target=str(tmp_path / "plain"), splits=(), label_type="none")
    assert job.run(spark, plan=plain).images == 5
    assert "rejected.csv,write,no such name in the target" in (tmp_path / "plain" / "rejected.csv").read_text()


def test_duplicates_are_reported(spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path) -> None:
    one, other = texture(1), texture(2)
    plan = plan_of(plant(tmp_path, {"train/a/1.png": one, "train/b/2.png": one, "val/a/4.png": other}))
    report = job.run(spark, plan=plan)
    assert report.duplicates is not None
    assert (report.duplicates.groups, report.duplicates.with_different_labels) == (1, 1)
    assert "2 images are exact duplicates" in str(report)
