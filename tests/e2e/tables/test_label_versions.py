"""Labels with a history: new versions of a label view, and splits that use them."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.deleting import deletion
from etl.deleting.plan import DeletePlan
from etl.errors import ConflictError, EtlError, SourceError, TableError
from etl.features import historical_features
from etl.ingest import ingestion
from etl.ingest.plan import IngestPlan
from etl.labels import relabelling
from etl.labels.plan import RelabelPlan
from etl.labels.versions import label_values, versions_of
from etl.sources.plan import SourcePlan
from etl.splits import splitting
from etl.splits.plan import SplitPlan
from etl.tables.metadata_table import MetadataTable
from formats import open_split
from jobs import relabel as job
from schemas import image_id
from schemas.features import ViewName
from tests.support.features import ingest, tables_of
from tests.support.trees import picture, plant

NAMES = ["cat/0.png", "cat/1.png", "dog/2.png", "dog/3.png"]


@pytest.fixture
def tables(spark: SparkSession, keyspace: str, tmp_path: Path) -> str:
    ingest(spark, plant(tmp_path / "tree", {name: picture(i) for i, name in enumerate(NAMES)}), keyspace)
    return keyspace


def relabel(spark: SparkSession, keyspace: str, file: Path, text: str, **options: Any) -> relabelling.RelabelReport:
    file.write_text(text)
    return job.run(spark, plan=RelabelPlan(**tables_of(keyspace), labels=str(file), **options))


def killed_relabel(
    spark: SparkSession, keyspace: str, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A run that ends before its last step, the registration."""
    with monkeypatch.context() as patch:
        patch.setattr(relabelling, "register_view", lambda *_, **__: (_ for _ in ()).throw(EtlError("killed")))
        with pytest.raises(EtlError, match="killed"):
            relabel(spark, keyspace, folder / "killed.csv", text)


def labels(spark: SparkSession, keyspace: str, folder: Path, view: str | None) -> dict[str, str]:
    """The class of each image in a split that uses a version of the view."""
    named = None if view is None else ViewName.parse(view)
    plan = SplitPlan(**tables_of(keyspace), out=str(folder), ratios=(1,), label_view=named)
    report = splitting.run(spark, plan=plan)
    assert any("split.py --label-view label takes them" in one for one in report.warnings) == (view is None)
    found = open_split(folder)
    assert found.manifest.label_view == view
    rows = found.rows(0, cache=folder.parent / "cache")
    by_id = {
        bytes(image): found.manifest.class_names[label] for image, label in zip(rows.ids, rows.labels, strict=True)
    }
    return {name: by_id[image_id(keyspace, b"", name.encode()).bytes] for name in NAMES}


def test_versions_change_some_labels_and_splits_choose_one(
    spark: SparkSession, control: Control, tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = relabel(spark, tables, tmp_path / "first.csv", "path,label\ncat/1.png,dog\ndog/2.png,dog\n")
    assert (first.view, first.images, first.changed, first.is_new) == ("label@v1", 2, 1, True)
    again = relabel(spark, tables, tmp_path / "first.csv", "path,label\ncat/1.png,dog\ndog/2.png,dog\n")
    assert (again.view, again.is_new) == ("label@v1", False)
    assert str(again) == f"label@v1 of {tables}.metadata has these labels already"

    killed_relabel(spark, tables, tmp_path, monkeypatch, "path,label\ncat/0.png,dog\n")
    as_of = SplitPlan(
        **tables_of(tables), out=str(tmp_path / "then"), ratios=(1,), label_view=ViewName("label"), as_of="3"
    )
    told = "run 3 (labels of {}) has not finished: it was killed, or can still add labels of that time"
    assert told.format(tmp_path / "killed.csv") in splitting.run(spark, plan=as_of).warnings
    second = relabel(
        spark, tables, tmp_path / "second.csv", "path,label\ndog/3.png,bird\ncat/1.png, cat \n", new_classes=True
    )
    assert (second.view, second.images, second.changed, second.new_classes) == ("label@v2", 2, 2, ["bird"])

    assert labels(spark, tables, tmp_path / "v0", None) == {name: name.partition("/")[0] for name in NAMES}
    assert list(labels(spark, tables, tmp_path / "v1", "label@v1").values()) == ["cat", "dog", "dog", "dog"]
    assert list(labels(spark, tables, tmp_path / "v2", "label@v2").values()) == ["cat", "cat", "dog", "bird"]
    metadata, moved = tables_of(tables)["metadata_table"], str(image_id(tables, b"", b"cat/1.png"))
    same = str(image_id(tables, b"", b"cat/0.png"))  # no file names it: its label is that of the ingest
    requests = [(moved, 0), (moved, 1), (moved, first.sequence), (moved, 9), (same, 1), (same, 9)]
    runs = pd.DataFrame(requests, columns=["id", "sequence"])
    known = historical_features(spark, runs, metadata=metadata, views=["label"]).collect()
    wanted = dict(zip(requests, [None, 0, 1, 0, 0, 0], strict=True))
    assert {(row.id, row.sequence): row.label for row in known} == wanted
    with pytest.raises(TableError, match=r"Wanted the labels label@v3 .* Found: label@v2, label@v1\."):
        labels(spark, tables, tmp_path / "v3", "label@v3")
    kinds = control.execute(f"SELECT kind FROM {tables}.ingests WHERE table_name = 'metadata'")
    assert [row.kind for row in kinds] == ["labels", "labels", "labels", "ingest"]


def test_a_version_that_is_added_after_the_table_was_opened_has_its_time(
    spark: SparkSession, control: Control, tables: str, tmp_path: Path
) -> None:
    table = MetadataTable.open(spark, control, tables_of(tables)["metadata_table"])
    relabel(spark, tables, tmp_path / "labels.csv", "path,label\ncat/1.png,dog\n")
    (row,) = label_values(table, ViewName("label"))[0].collect()
    assert (row["id"], row["sequence"]) == (str(image_id(tables, b"", b"cat/1.png")), 2)


def test_a_version_has_its_labels_when_images_come_back(
    spark: SparkSession, tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "path,label\ncat/0.png,dog\ncat/1.png,dog\n"
    relabel(spark, tables, tmp_path / "labels.csv", text)
    killed_relabel(spark, tables, tmp_path, monkeypatch, "path,label\ncat/0.png,cat\ncat/1.png,cat\n")
    wanted = labels(spark, tables, tmp_path / "first", "label@v1")
    assert list(wanted.values()) == ["dog"] * 4
    (tmp_path / "tree" / "cat" / "0.png").rename(tmp_path / "aside.png")
    ingest(spark, tmp_path / "tree", tables, resume=True, prune=True, prune_count=1)
    (tmp_path / "aside.png").rename(tmp_path / "tree" / "cat" / "0.png")
    ingest(spark, tmp_path / "tree", tables, resume=True)
    assert labels(spark, tables, tmp_path / "again", "label@v1") == wanted
    assert not relabel(spark, tables, tmp_path / "labels.csv", text).is_new


def test_the_same_labels_are_another_version_once_an_image_was_replaced(
    spark: SparkSession, tables: str, tmp_path: Path
) -> None:
    text = "path,label\ncat/0.png,cat\ncat/1.png,dog\n"  # the first one only confirms the label
    assert relabel(spark, tables, tmp_path / "labels.csv", text).is_new
    (tmp_path / "tree" / "cat" / "0.png").write_bytes(picture(4321))
    ingest(spark, tmp_path / "tree", tables, overwrite=True)
    again = relabel(spark, tables, tmp_path / "labels.csv", text)
    assert (again.view, again.is_new) == ("label@v2", True)
    assert not relabel(spark, tables, tmp_path / "labels.csv", text).is_new
    labels(spark, tables, tmp_path / "split", "label@v2")
    assert open_split(tmp_path / "split").manifest.replaced == 0


def test_paths_of_deleted_images_are_left_out(spark: SparkSession, tables: str, tmp_path: Path) -> None:
    text = "path,label\ncat/0.png,dog\ncat/1.png,dog\n"
    relabel(spark, tables, tmp_path / "labels.csv", text)
    delete = DeletePlan(**tables_of(tables), ids=(image_id(tables, b"", b"cat/1.png"),), reason="asked to", count=1)
    deletion.run(spark, plan=delete)
    relabelled = relabel(spark, tables, tmp_path / "labels.csv", text)
    assert str(relabelled).splitlines() == [
        "left out: 1 path of deleted images: cat/1.png",
        f"label@v1 of {tables}.metadata has these labels already",
    ]
    with pytest.raises(SourceError, match=r"no image has: cat/9\.png, and 1 path of deleted images: cat/1\.png"):
        relabel(spark, tables, tmp_path / "other.csv", text + "cat/9.png,dog\n")
    with pytest.raises(SourceError, match="Found: labels of deleted images only"):
        relabel(spark, tables, tmp_path / "other.csv", "path,label\ncat/1.png,dog\n")


def test_corrections_that_were_deleted_with_their_images_are_counted_and_unknown_for_earlier_times(
    spark: SparkSession, control: Control, tables: str, tmp_path: Path
) -> None:
    image, metadata = image_id(tables, b"", b"cat/1.png"), tables_of(tables)["metadata_table"]
    relabel(spark, tables, tmp_path / "labels.csv", "path,label\ncat/0.png,dog\ncat/1.png,dog\n")  # run 2
    deletion.run(spark, plan=DeletePlan(**tables_of(tables), ids=(image,), reason="asked to", count=1))
    ingest(spark, tmp_path / "tree", tables, resume=True, restore_deleted=True)  # run 4
    split = SplitPlan(**tables_of(tables), out=str(tmp_path / "split"), ratios=(1,), label_view=ViewName("label", 1))
    report = splitting.run(spark, plan=split)
    assert [one.split(" of")[0] for one in report.warnings if "or deleted since" in one] == ["1 image"]
    assert open_split(str(tmp_path / "split")).manifest.replaced == 1
    times = pd.DataFrame({"id": [str(image)] * 4, "sequence": [1, 2, 3, 4]})
    found = historical_features(spark, times, metadata=metadata, views=["label"]).orderBy("sequence").collect()
    assert [row["label"] for row in found] == [0, None, None, 0]
    relabel(spark, tables, tmp_path / "second.csv", "path,label\ncat/1.png,dog\n")
    assert labels(spark, tables, tmp_path / "again", "label@v2")["cat/1.png"] == "dog"
    found = historical_features(spark, times, metadata=metadata, views=["label"]).orderBy("sequence").collect()
    assert [row["label"] for row in found] == [0, None, None, 0]


def test_the_number_of_a_removed_version_is_not_used_again(
    spark: SparkSession, control: Control, tables: str, tmp_path: Path
) -> None:
    relabel(spark, tables, tmp_path / "labels.csv", "path,label\ncat/1.png,dog\n")
    kind = registry.label_views_of(tables_of(tables)["metadata_table"])
    (entry,) = registry.entries(control, keyspace=tables, kind=kind)
    registry.remove(control, entry, keyspace=tables)
    assert relabel(spark, tables, tmp_path / "other.csv", "path,label\ncat/0.png,dog\n").view == "label@v2"
    found = labels(spark, tables, tmp_path / "split", "label@v2")
    assert list(found.values()) == ["dog", "cat", "dog", "dog"]


def test_another_column_of_the_same_file_is_another_version(spark: SparkSession, tables: str, tmp_path: Path) -> None:
    text = "path,label,majority\ncat/1.png,dog,cat\n"
    assert relabel(spark, tables, tmp_path / "votes.csv", text).view == "label@v1"
    assert relabel(spark, tables, tmp_path / "votes.csv", text, label_column="majority").view == "label@v2"


def test_classes_without_a_list_of_names_are_refused(spark: SparkSession, keyspace: str, tmp_path: Path) -> None:
    tree = plant(tmp_path / "tree", {f"{i}/{i}.png": picture(i) for i in range(2)})
    tables = tables_of(keyspace)
    source = SourcePlan(address=str(tree), class_names="number")
    ingestion.run(spark, plan=IngestPlan(source=source, **tables))
    with pytest.raises(ConflictError, match=r"Labels of --class-names number, .* cannot be changed"):
        relabel(spark, keyspace, tmp_path / "new.csv", "path,label\n0/0.png,1\n", new_classes=True)


def test_files_that_do_not_match_the_images_are_refused(spark: SparkSession, tables: str, tmp_path: Path) -> None:
    for text, message in (
        ("path,label\ncat/9.png,dog\n", r"Found: paths that no image has: cat/9\.png"),
        ("path,label\ncat/1.png,dgo\n", r"Found: dgo\. The classes are cat, dog\. Set --new-classes"),
        ("path,label\ncat/1.png,dog\ncat/1.png,cat\n", r"Found: cat/1\.png: two labels: cat and dog"),
        ("path,label\ncat/1.png,\n", r"Found: cat/1\.png: no label: empty in new\.csv"),
        ("path,label\n", "Found: an empty table"),
        ("name,label\ncat/1.png,dog\n", r"Wanted the column 'path' once"),
    ):
        with pytest.raises(SourceError, match=message):
            relabel(spark, tables, tmp_path / "new.csv", text)
    with Control.from_spark(spark) as control, pytest.raises(TableError, match="Found: none"):
        versions_of(MetadataTable.open(spark, control, tables_of(tables)["metadata_table"]), ViewName("label"))
