"""Cards of our own outputs, as folders and as tars: splits, shards, row lists, class folders."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from formats.tar_index import write_index
from imagestrata.hub.tar import FolderSource
from imagestrata.service.uploads.cards import card_of
from schemas.shards import Piece, Shard, ShardManifest
from tests.support.split_caches import write_cache
from tests.support.split_folders import image_ids, write_split_folder


def card(folder: Path, place: Path) -> dict[str, Any]:
    tar, index = place.with_suffix(".tar"), place.with_suffix(".sqlite")
    source = FolderSource(folder)
    tar.write_bytes(b"".join(source.blocks(0, source.length)))
    write_index(tar, index)
    return card_of(tar, index)


@pytest.fixture(params=["", "inside"], ids=["at-the-top", "in-a-folder"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder for a test's files, itself or one in it."""
    made = tmp_path / "folder" / request.param
    made.mkdir(parents=True)
    return made


@pytest.mark.parametrize("name", ["_manifest.json", "manifest.json"])  # the second as version 0.1 called it
def test_the_card_of_a_split_lists_its_parts(folder: Path, tmp_path: Path, name: str) -> None:
    ids = image_ids(7)
    splits = [(ids[:5], [0, 1, 1, 0, 2]), (ids[5:], [1, 2])]
    write_split_folder(folder, splits, class_names={0: "cat", 1: "dog"})
    (folder / "_manifest.json").rename(folder / name)
    assert card(tmp_path / "folder", tmp_path / "x") == {
        "type": "splits",
        "images": 7,
        "num_classes": 3,
        "classes": {"2": 2, "cat": 2, "dog": 3},
        "num_splits": 2,
        "splits": [
            {"name": "0", "images": 5, "num_classes": 3, "classes": {"2": 1, "cat": 2, "dog": 2}},
            {"name": "1", "images": 2, "num_classes": 2, "classes": {"2": 1, "dog": 1}},
        ],
        "tables": ["test.data", "test.metadata"],
    }


def test_the_card_of_shards_lists_their_classes(folder: Path, tmp_path: Path) -> None:
    manifest = ShardManifest(
        samples=5, bytes=10_240, label_type="int", num_classes=2, class_names={0: "cat", 1: "dog"},
        counts={0: 2, 1: 3}, seed=0, fingerprint="0" * 64, source="s3://bucket/tree", source_fingerprint="0" * 64,
        options={}, created="2026-01-01T00:00:00+00:00", code_version="test",
        shards=(Shard("0.tar", 5, 10_240, "0" * 64, (Piece(5, 10_240, "0" * 32),)),),
    )  # fmt: skip
    (folder / "shards.json").write_text(manifest.to_json())
    (folder / "0.tar").write_bytes(bytes(10_240))
    assert card(tmp_path / "folder", tmp_path / "x") == {
        "type": "shards", "images": 5, "num_classes": 2, "classes": {"cat": 2, "dog": 3}, "shards": 1,
        "source": "s3://bucket/tree",
    }  # fmt: skip


def test_the_card_of_tables_counts_rows_by_class(folder: Path, tmp_path: Path) -> None:
    columns = {"id": [one.bytes for one in image_ids(5)], "label": [0, 1, 1, 3, 1]}
    write_cache(folder / "cache", columns, files=2, names={0: "cat", 1: "dog"})
    assert card(folder / "cache", tmp_path / "x") == {
        "type": "tables", "images": 5, "num_classes": 3, "classes": {"3": 1, "cat": 1, "dog": 3},
        "tables": ["ks.data", "ks.metadata"],
    }  # fmt: skip


@pytest.mark.parametrize("damage", ["rows", "file", "parquet", "nulls"])
def test_tables_whose_files_disagree_with_their_manifest_have_no_classes(tmp_path: Path, damage: str) -> None:
    columns = {"id": [one.bytes for one in image_ids(4)], "label": [0, 1, 1, None if damage == "nulls" else 1]}
    folder = tmp_path / "folder"
    write_cache(folder, columns, files=1)
    file, manifest = folder / "rows" / "00000.parquet", folder / "cache.json"
    if damage == "rows":
        found = json.loads(manifest.read_text())
        found["files"][0]["rows"] = 3
        manifest.write_text(json.dumps(found))
    elif damage == "file":
        file.rename(folder / "other")
    elif damage == "parquet":
        file.write_bytes(b"PAR1" + bytes(1000) + b"PAR1")
    assert card(folder, tmp_path / "x") == {"type": "tables", "images": 4, "tables": ["ks.data", "ks.metadata"]}


def test_class_folders_are_images_and_folders_of_other_things_are_files(folder: Path, tmp_path: Path) -> None:
    for split, label in (("train", "cat"), ("train", "dog"), ("val", "cat")):
        (folder / split / label).mkdir(parents=True)
        (folder / split / label / "1.JPG").write_bytes(b"1")
    found = card(tmp_path / "folder", tmp_path / "x")
    assert (found["type"], found["images"], found["classes"]) == ("images", 3, {"cat": 2, "dog": 1})
    assert [(part["name"], part["images"]) for part in found["splits"]] == [("train", 2), ("val", 1)]
    (tmp_path / "other").mkdir()
    for name in ("_manifest.json", "shards.json", "cache.json"):
        (tmp_path / "other" / name).write_text('{"format": 1}')
    assert card(tmp_path / "other", tmp_path / "y") == {"type": "files"}


def test_the_innermost_folder_is_the_class_and_folders_of_one_name_are_added_up(folder: Path, tmp_path: Path) -> None:
    for place in ("flower/closeups/2024", "flower/2024", "cat"):
        (folder / place).mkdir(parents=True)
        (folder / place / "1.jpg").write_bytes(b"1")
    found = card(tmp_path / "folder", tmp_path / "x")
    assert (found["images"], found["num_classes"], found["classes"]) == (3, 2, {"2024": 2, "cat": 1})


def test_pictures_outside_folders_have_no_class(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "1.png").write_bytes(b"1")
    assert card(tmp_path / "folder", tmp_path / "x") == {"type": "images", "images": 1}


def test_all_folders_and_classes_are_counted_and_the_first_listed(tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for number in range(20_500):
            for place in (f"val/{number:05}/1.png", f"patient-{number:05}/scan/1.png")[: 1 + (number < 500)]:
                member = tarfile.TarInfo(place)
                member.size = 1
                tar.addfile(member, io.BytesIO(b"1"))
    (tmp_path / "tar").write_bytes(made.getvalue())
    assert write_index(tmp_path / "tar", tmp_path / "index") == 21_000
    before = sorted(tmp_path.iterdir())
    found = card_of(tmp_path / "tar", tmp_path / "index")
    assert sorted(tmp_path.iterdir()) == before
    assert (found["images"], found["num_classes"], found["num_splits"]) == (21_000, 20_501, 501)
    assert found["classes"] == {f"{number:05}": 1 for number in range(2_000)}
    one = {"images": 1, "num_classes": 1, "classes": {"scan": 1}}
    assert found["splits"] == [{"name": f"patient-{number:05}", **one} for number in range(20)]


def test_folders_that_others_lie_between_are_counted_together(tmp_path: Path) -> None:
    for place in ("data/train/cat/1.png", "data/train/cat/dog/1.png", "data/train/cat/z.png", "data/train-2/cat/1.png"):
        (tmp_path / "folder" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / place).write_bytes(b"1")
    found = card(tmp_path / "folder", tmp_path / "x")
    assert found["classes"] == {"cat": 3, "dog": 1}
    assert [(part["name"], part["images"]) for part in found["splits"]] == [
        ("train", 2),
        ("train-2", 1),
        ("train/cat", 1),
    ]
