"""Sources whose classes are probably in deeper folders are refused, whatever their form."""

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from etl.errors import SourceError
from etl.ingest.listed_images import ListingCounts, count_entries
from etl.secrets import secrets_on_executors
from etl.sources.folder_counts import check_class_level
from etl.sources.listing import list_source
from etl.sources.plan import SourcePlan
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from tests.support.archives import tar
from tests.support.s3_access import use
from tests.support.trees import plant

Files = Mapping[str, bytes]
Make = Callable[[Files], str]

_SPLITS = {f"{split}/n{name}/{i}.JPEG": b"x" for split in ("train", "val") for name in range(3) for i in range(2)}
_OUTER = {f"resized/in_train/n{name}/{i}.JPEG": b"x" for name in range(3) for i in range(2)}
_NESTED = {f"n{name}/p{name}{i}/{i}.JPEG": b"x" for name in range(3) for i in range(4)}


@pytest.fixture(params=["tree", "tar", "tar.gz", "s3", "s3 tar"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Create a source of files; return its address."""
    if request.param == "tree":
        return lambda files: str(plant(tmp_path / "tree", files))
    if not request.param.startswith("s3"):
        pack = gzip.compress if request.param == "tar.gz" else bytes

        def write(files: Files) -> str:
            (tmp_path / f"x.{request.param}").write_bytes(pack(tar(files)))
            return str(tmp_path / f"x.{request.param}")

        return write
    s3: S3 = request.getfixturevalue("s3")
    bucket: str = request.getfixturevalue("keyspace")
    use(s3, monkeypatch)
    s3.make_bucket(bucket)
    store = Storage(f"s3://{bucket}", S3Access(s3.endpoint, s3.access_key, s3.secret_key))

    def put(files: Files) -> str:
        for name, data in ({"x.tar": tar(files)} if request.param == "s3 tar" else files).items():
            store.write_bytes(name, data)
        return f"s3://{bucket}" + ("/x.tar" if request.param == "s3 tar" else "")

    return put


def _checked(spark: SparkSession, address: str, **options: Any) -> list[tuple[str, str, str | None]]:
    """Split, path and class of a source's entries, if its class level is accepted."""
    plan = SourcePlan(address=address, **options)
    with secrets_on_executors(spark):
        listing = list_source(spark, plan, dataset="d").listing
        entries = listing.entries
        survey = ListingCounts.of(entries.transform(count_entries).collect(), classes=listing.classes)
        check_class_level(entries, tops=survey.tops, listing=listing, plan=plan)
        rows = entries.where("reason IS NULL").collect()
    return sorted((bytes(row.or_split).decode(), bytes(row.path).decode(), row.or_label) for row in rows)


def _told(error: pytest.ExceptionInfo[SourceError]) -> list[str]:
    """The lines of a message, with single spaces."""
    return [" ".join(line.split()) for line in str(error.value).splitlines()]


def test_split_folders_that_were_not_named_are_refused_with_the_likely_readings(
    spark: SparkSession, make: Make
) -> None:
    address = make(_SPLITS)
    with pytest.raises(SourceError) as caught:
        _checked(spark, address)
    first, *readings = _told(caught)
    assert "2 classes, 12 images, but train and val are the names of splits" in first
    assert readings == [
        "--split-subdir train --split-subdir val 3 classes, 12 images",
        "--split-subdir train 3 classes, 6 images",
        "--split-subdir val 3 classes, 6 images",
        "--class-level top 2 classes, 12 images: the folders as they are",
    ]
    wanted = sorted((split, rest, rest.partition("/")[0]) for split, _, rest in (n.partition("/") for n in _SPLITS))
    assert _checked(spark, address, splits=("train", "val")) == wanted


def test_a_folder_around_everything_is_refused_and_its_readings_are_accepted(spark: SparkSession, make: Make) -> None:
    address = make(_OUTER)
    with pytest.raises(SourceError) as caught:
        _checked(spark, address)
    assert _told(caught)[1:-1] == [
        "--root resized --split-subdir in_train 3 classes, 6 images",
        "--split-subdir resized/in_train 3 classes, 6 images",
        "--root resized/in_train 3 classes, 6 images",
    ]
    names = [(name.removeprefix("resized/in_train/"), name.split("/")[2]) for name in _OUTER]
    choices: list[tuple[str, dict[str, Any]]] = [
        ("in_train", {"root": "resized", "splits": ("in_train",)}),
        ("resized/in_train", {"splits": ("resized/in_train",)}),
        ("train", {"root": "resized/in_train", "or_split": "train"}),
    ]
    for split, options in choices:
        assert _checked(spark, address, **options) == [(split, *name) for name in sorted(names)]


def test_the_readings_take_the_options_into_account(spark: SparkSession, tmp_path: Path) -> None:
    def refused(**options: Any) -> list[str]:
        with pytest.raises(SourceError) as caught:
            _checked(spark, str(tmp_path), **options)
        return _told(caught)[1:-1]

    plant(tmp_path, {f"top/one two/{name}": b"x" for name in _SPLITS} | {f"flat/{name}/1.png": b"x" for name in "ab"})
    both = "--split-subdir train --split-subdir val 3 classes, 12 images"
    assert refused(root="top/one two")[0] == f"--root 'top/one two' {both}"
    assert refused(root="top")[0] == f"--root 'top/one two' {both}"
    assert refused(splits=("top/one two",))[1] == "--split-subdir 'top/one two/train' 3 classes, 6 images"
    assert refused(root="top/one two", or_split="x")[1].endswith("6 images; instead of --split-name x")
    assert len(_checked(spark, str(tmp_path), root="flat")) == 2


def test_classes_with_folders_of_their_own_pass_with_a_warning(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plant(tmp_path, _NESTED)
    assert len(_checked(spark, str(tmp_path))) == 12
    assert "The classes are the topmost folders, 3, not the 12 folders in them." in caplog.text


def test_inner_archives_that_are_splits_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    inner = {f"{split}.tar": tar({f"n{i}/{i}.JPEG": b"x" for i in range(3)}) for split in ("train", "val")}
    (tmp_path / "all.tar").write_bytes(tar(inner))
    with pytest.raises(SourceError, match=r"extract train\.tar and read that file +with --split-name train"):
        _checked(spark, str(tmp_path / "all.tar"))
    assert len(_checked(spark, str(tmp_path / "all.tar"), class_level="top")) == 6
