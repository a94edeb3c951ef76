"""The options of a source: bad ones are refused before anything starts."""

from pathlib import Path
from typing import Any

import pytest

from etl.sources.plan import SourcePlan, full_address


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with something of each kind."""
    (tmp_path / "train" / "a").mkdir(parents=True)
    for name in ("file", "x.tar", "truth.txt", "truth.csv"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        (".", "tree"),
        ("s3://bucket/prefix", "tree"),
        ("x.tar", "tar"),
        ("s3://bucket/x.TAR.GZ", "tar"),
        ("s3://bucket/x.tgz", "tar"),
        ("x-{0000..0146}.tar", "webdataset"),
        ("s3://bucket/shards/*.tar", "webdataset"),
        ("s3://bucket/x.parquet", "parquet"),
    ],
)
def test_the_layout_follows_from_the_name(tree: Path, address: str, kind: str) -> None:
    assert SourcePlan(address=address).kind == kind


def test_folders_may_have_names_that_look_like_patterns(tree: Path) -> None:
    for name in ("what?", "a{b,c}", "[x]*"):
        (tree / name).mkdir()
        assert SourcePlan(address=name).kind == "tree"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"address": "gone"}, "nothing there"),
        ({"address": "file"}, r"a file\. A file must be an archive \(\.tar, \.tar\.gz, \.tgz\)"),
        ({"address": "gone.tar"}, "nothing there"),
        ({"address": "train", "layout": "tar"}, "a folder"),
        ({"address": "gone.parquet"}, "nothing there"),
        ({"splits": ("val",)}, "nothing there"),
        ({"splits": ("train", "train")}, "once"),
        ({"splits": ("train,val",)}, "Repeat --split-subdir for each"),
        ({"splits": ("..",)}, "name of a folder"),
        ({"splits": ("train//a",)}, "name of a folder"),
        ({"splits": ("",)}, "name of a folder"),
        ({"splits": ("train", "train/a")}, "not nested"),
        ({"splits": ("train/b",)}, "nothing there"),
        ({"root": "/train"}, "name of a folder"),
        ({"root": "train/../train"}, "name of a folder"),
        ({"root": "val"}, "nothing there"),
        ({"root": "train", "splits": ("train",)}, "nothing there"),
        ({"root": "train", "address": "x-{0..1}.tar"}, "--root with a tree or a tar"),
        ({"class_level": "bottom"}, "class level of top"),
        ({"class_level": "top", "labels": "truth.csv"}, "--class-level"),
        ({"splits": ("train",), "or_split": "train"}, "both"),
        ({"splits": ("train",), "address": "x-{0..1}.tar"}, "--split-name"),
        ({"or_split": "a/b"}, "without /"),
        ({"or_split": ".."}, "without /"),
        ({"label_type": "float"}, "label type"),
        ({"label_type": "blob"}, "--masks"),
        ({"label_type": "multi"}, "--arrays"),
        ({"masks": "train"}, "type blob"),
        ({"masks": "train", "label_type": "blob", "layout": "parquet"}, "with files"),
        ({"arrays": "train"}, "type multi"),
        ({"masks": "gone", "label_type": "blob"}, "nothing there"),
        ({"class_names": "number", "label_type": "none"}, "--class-names"),
        ({"labels": "gone.csv"}, "nothing there"),
        ({"labels": "file"}, r"\.csv"),
        ({"labels": "truth.csv", "address": "x-{0..1}.tar"}, "in the source"),
        ({"labels": "truth.txt", "label_column": "class"}, "a label file for the column"),
        ({"path_column": "file"}, "a label file for the column"),
        ({"image_column": "image"}, "tables of bytes"),
        ({"read": "sequential"}, "with tars"),
    ],
)
def test_invalid_options_are_refused(tree: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        SourcePlan(**{"address": ".", **options})
    assert str(caught.value).startswith("Wanted ")
    assert "Found: " in str(caught.value)


def test_folders_are_classes_unless_labels_come_from_elsewhere(tree: Path) -> None:
    assert SourcePlan(address=".").by_folder
    assert SourcePlan(address="x.tar").by_folder
    assert not SourcePlan(address=".", labels="truth.csv").by_folder
    assert not SourcePlan(address=".", label_type="none").by_folder
    assert not SourcePlan(address="x-{0..1}.tar").by_folder


def test_a_source_has_the_same_name_however_it_is_addressed(tree: Path) -> None:
    (tree / "link ü").symlink_to(tree / "train")
    assert SourcePlan(address="link ü").name == (tree / "train").resolve().as_uri() == full_address("train/")
    assert SourcePlan(address="s3://bucket/prefix/").name == "s3://bucket/prefix"
    assert SourcePlan(address="db.pictures", layout="table").name == "table:db.pictures"


def test_a_root_is_part_of_the_source_and_may_be_nested_as_splits_may(tree: Path) -> None:
    plan = SourcePlan(address=".", root="./train/", splits=("a/",))
    assert (plan.root, plan.splits, plan.base) == ("train", ("a",), str(tree / "train"))
    assert plan.name == SourcePlan(address="train", splits=("a",)).name
    assert SourcePlan(address=".", splits=("train/a",)).split_names == [b"train/a"]
    assert SourcePlan(address="x.tar", root="outer/inner").name == SourcePlan(address="x.tar").name + "#outer/inner"
