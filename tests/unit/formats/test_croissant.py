"""Croissant descriptions: mlcroissant reads the described data."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats import croissant, open_split
from formats.shards.folder import manifest_of, publish
from formats.shards.layout import ShardWriter, index_name, shard_name
from formats.stores.storage import Storage
from schemas.shards import ShardManifest
from tests.support.croissants import read, records
from tests.support.pictures import texture
from tests.support.split_folders import image_ids, write_split_folder


@pytest.fixture
def split(tmp_path: Path) -> Path:
    ids = image_ids(5)
    write_split_folder(tmp_path / "s", [(ids[:3], [0, 1, 3]), (ids[3:], [1, 0])], class_names={0: "cat", 1: "dög"})
    return tmp_path / "s"


def describe(folder: Path) -> Path:
    """Write the description of a split folder."""
    manifest = open_split(folder).manifest
    croissant.write(Storage(folder), croissant.SPLIT_NAME, croissant.split_croissant(manifest, name=folder.name))
    return folder / croissant.SPLIT_NAME


def test_the_samples_of_a_split_folder_are_read_with_label_position_and_split(split: Path) -> None:
    found = sorted(records(describe(split), "samples"), key=lambda one: (one["split"], one["position"]))
    assert [one["id"] for one in found] == [one.bytes for one in image_ids(5)]
    assert [one["label"] for one in found] == [0, 1, 3, 1, 0]
    assert [one["position"] for one in found] == [0, 1, 2, 0, 1]
    assert [one["split"] for one in found] == [b"0"] * 3 + [b"1"] * 2


def test_classes_have_their_numbers_and_names_and_those_without_a_name_their_number(split: Path) -> None:
    found = {one["label"]: one["name"] for one in records(describe(split), "classes")}
    assert found == {0: "cat", 1: "dög", 3: "3"}


def test_files_that_the_manifest_does_not_name_are_not_read(split: Path) -> None:
    (stray := split / "split=0" / "part-stray.parquet").write_bytes(next(split.glob("split=0/*.parquet")).read_bytes())
    assert stray.exists()
    assert len(records(describe(split), "samples")) == 5


def test_a_description_has_name_date_and_fingerprints_and_nothing_that_is_not_known(split: Path) -> None:
    found = json.loads(describe(split).read_text())
    manifest = open_split(split).manifest
    assert (found["name"], found["datePublished"]) == ("s", manifest.created)
    assert [one["value"] for one in found["identifier"]] == [part.fingerprint for part in manifest.splits]
    assert {"license", "creator", "citeAs", "version", "url"}.isdisjoint(found)


def test_a_split_without_labels_has_no_classes(tmp_path: Path) -> None:
    write_split_folder(tmp_path / "s", [(image_ids(2), [-1, -1])], label_type="none")
    description = describe(tmp_path / "s")
    assert [set(one) for one in records(description, "samples")] == [{"id", "position", "split"}] * 2
    assert [one.name for one in read(description).metadata.record_sets] == ["splits", "samples"]


def test_splits_without_files_are_described_without_samples(split: Path) -> None:
    manifest = open_split(split).manifest
    empty = replace(manifest, splits=tuple(replace(part, rows=0, counts={}, files=()) for part in manifest.splits))
    croissant.write(Storage(split), croissant.SPLIT_NAME, croissant.split_croissant(empty, name="s"))
    assert [one.name for one in read(split / croissant.SPLIT_NAME).metadata.record_sets] == ["splits", "classes"]


def shards(folder: Path, *, label_type: str = "int") -> ShardManifest:
    """Two published shards of three images with masks."""
    storage, written = Storage(folder), []
    for number in range(2):
        name = shard_name("c0ffee00", number, 2)
        with storage.create(name) as write:
            writer = ShardWriter(write)
            for place in range(3 * number, 3 * number + 3):
                files = {"png": texture(place, width=8, height=8), "seg.png": texture(place, width=4, height=4)}
                files |= {"cls": str(place % 2).encode()} if label_type == "int" else {}
                writer.add(f"{place:09}", {**files, "json": b'{"id":"%d"}' % place})
            written.append(writer.end(name))
        storage.write_bytes(index_name(name), writer.index.encode())
    about: dict[str, Any] = {"class_names": {0: "cat", 1: "dog"}, "counts": {0: 3, 1: 3}} if label_type == "int" else {}
    about = {"class_names": {}, "counts": {}, **about, "seed": 0, "source": "here", "source_fingerprint": "f"}
    manifest = manifest_of(written, label_type=label_type, options={}, **about)
    publish(storage, manifest, tag="c0ffee00", before=None)
    return manifest


def test_published_shards_are_described_and_read_without_their_masks(tmp_path: Path) -> None:
    manifest = shards(tmp_path / "shards")
    description = tmp_path / "shards" / croissant.SHARDS_NAME
    pictures = records(description, "images")
    assert [(one["position"], one["image"].size) for one in pictures] == [(place, (8, 8)) for place in range(6)]
    assert [one["label"] for one in records(description, "labels")] == [0, 1] * 3
    assert json.loads(records(description, "metadata")[4]["json"]) == {"id": "4"}
    assert [one["name"] for one in records(description, "classes")] == ["cat", "dog"]
    described = {one.name: one.sha256 for one in read(description).metadata.distribution if hasattr(one, "sha256")}
    assert described == {one.name: one.sha256 for one in manifest.shards}


def test_shards_of_masks_have_no_labels(tmp_path: Path) -> None:
    manifest = shards(tmp_path / "shards", label_type="blob")
    found = croissant.shards_croissant(manifest, name="x")
    assert [one["@id"] for one in found["recordSet"]] == ["images", "metadata"]


def test_a_description_that_cannot_be_written_is_a_warning(
    split: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Storage, "write_bytes", full)
    with caplog.at_level(logging.WARNING):
        describe(split)
    assert "No space left on device" in caplog.text
