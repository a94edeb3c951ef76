"""``GET /datasets/NAME/croissant`` is read with mlcroissant, with data from the service."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from formats import open_split
from tests.support.croissants import read, records
from tests.support.dataset_servers import TAR, Server, tar_of
from tests.support.pictures import texture
from tests.support.shard_folders import shards_of
from tests.support.split_folders import image_ids, write_split_folder


@pytest.fixture
def described(server: Server, name: str, tmp_path: Path) -> Any:
    """Download the description of the test's dataset to a file."""

    def get(query: str = "") -> Path:
        answer = server.ask("GET", f"/datasets/{name}/croissant{query}")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/ld+json")
        (place := tmp_path / "description.json").write_bytes(answer.body)
        return place

    return get


def files_of(folder: Path, *, below: str = "") -> dict[str, bytes]:
    return {f"{below}{one.relative_to(folder)}": one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_class_folders_are_read_with_their_labels_and_splits(server: Server, name: str, described: Any) -> None:
    folders = [f"{split}/{label}" for split in ("train", "val") for label in ("cat", "dog")]
    server.put(name, tar_of({f"{folder}/1.PNG": texture(1) for folder in folders}), kind=TAR)
    found = records(described(), "samples")
    assert sorted((one["split"], one["label"]) for one in found) == [
        (split, label) for split in (b"train", b"val") for label in (b"cat", b"dog")
    ]
    assert {one["image"].size for one in found} == {(64, 64)}
    assert [one["name"] for one in records(described(), "classes")] == ["cat", "dog"]


def test_shards_below_a_folder_are_read_from_the_addresses_of_their_files(
    server: Server, name: str, described: Any, tmp_path: Path
) -> None:
    shards_of(tmp_path / "shards", [{"png": texture(n), "json": b"{}"} for n in range(3)], together=2)
    server.put(name, tar_of(files_of(tmp_path / "shards", below="a b/")), kind=TAR)
    found = records(described(), "images")
    assert sorted(one["position"] for one in found) == [0, 1, 2]


def test_a_split_folder_is_described_as_its_tar_with_the_parquet_files_in_it(
    server: Server, name: str, described: Any, tmp_path: Path
) -> None:
    write_split_folder(tmp_path / "s", [(image_ids(3), [0, 1, 0])], class_names={0: "cat", 1: "dog"})
    server.put(name, tar_of(files_of(tmp_path / "s", below="s/")), kind=TAR)
    archive, parquet = read(described()).metadata.distribution
    assert archive.content_url.startswith(server.url)
    manifest = open_split(tmp_path / "s").manifest
    assert parquet.includes == [f"s/{file.path}" for part in manifest.splits for file in part.files]
    assert [one["name"] for one in records(described(), "classes")] == ["cat", "dog"]


def test_a_version_has_its_number_its_digest_and_the_text_of_the_dataset(
    server: Server, name: str, described: Any
) -> None:
    server.put(name, b"a,b\n1,2\n", filename="old.csv")
    server.put(name, b"new", filename="new.csv")
    text = b'{"description": "Two cats."}'
    server.ask("PUT", f"/datasets/{name}/description", text, {"Content-Type": "application/json"})
    found = read(described("?version=1")).metadata
    assert (found.version, found.distribution[0].name) == ("1.0.0", "old.csv")
    assert found.distribution[0].sha256 == hashlib.sha256(b"a,b\n1,2\n").hexdigest()
    assert found.description == "Two cats.\n\nThe file old.csv."
    assert read(described()).metadata.version == "2.0.0"


def test_a_file_that_is_only_called_as_a_manifest_is_no_reason_to_fail(
    server: Server, name: str, described: Any
) -> None:
    server.put(name, tar_of({"shards.json": b"[]", "cat/1.png": texture(1)}), kind=TAR)
    assert [one["label"] for one in records(described(), "samples")] == [b"cat"]


def test_a_dataset_without_a_version_has_no_description(server: Server, name: str) -> None:
    assert server.ask("GET", f"/datasets/{name}/croissant").status == 404
