"""Trees listed by executors, local and in S3."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from etl.errors import SourceError
from etl.secrets import secrets_on_executors
from etl.sources.entries import Listing
from etl.sources.plan import SourcePlan
from etl.sources.trees import list_tree
from formats.image_names import HIDDEN
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from schemas import image_id
from tests.support.s3_access import use
from tests.support.trees import touch


def _rows(listing: Listing) -> dict[tuple[bytes, bytes], tuple[str | None, bytes, int, str | None]]:
    rows = listing.entries.collect()
    found = {
        (bytes(row.or_split), bytes(row.path)): (row.or_label, bytes(row.place), row.bytes, row.reason) for row in rows
    }
    assert len(found) == len(rows)
    for row in rows:
        assert bytes(row.id) == image_id("d", bytes(row.or_split), bytes(row.path)).bytes
        assert row.offset is None
    return found


def _listed(spark: SparkSession, address: str | Path, **options: Any) -> Listing:
    plan = SourcePlan(address=str(address), layout="tree", **options)
    return list_tree(spark, plan.base, plan=plan, dataset="d")


def test_trees_of_classes_are_listed_whole(spark: SparkSession, tmp_path: Path) -> None:
    touch(tmp_path, "train/a/1", "train/a/b/2", b"train/\xe9/1", "train/loose", "val/a/1", "other/a/1")
    touch(tmp_path, "train/a/.b/3", "train/.git/1")
    (tmp_path / "val" / "empty").mkdir()
    listing = _listed(spark, tmp_path, splits=("train", "val"))
    root = os.fsencode(tmp_path)
    assert _rows(listing) == {
        (b"train", b"a/1"): ("a", root + b"/train/a/1", 1, None),
        (b"train", b"a/b/2"): ("a", root + b"/train/a/b/2", 1, None),
        (b"train", b"\xe9/1"): ("\\xe9", root + b"/train/\xe9/1", 1, None),
        (b"train", b"a/.b/3"): (None, root + b"/train/a/.b/3", 1, HIDDEN),
        (b"train", b".git/1"): (None, root + b"/train/.git/1", 1, HIDDEN),
        (b"train", b"loose"): (None, root + b"/train/loose", 1, "outside a class folder"),
        (b"val", b"a/1"): ("a", root + b"/val/a/1", 1, None),
    }
    assert listing.classes == {"a", "\\xe9", "empty"}


def test_trees_without_classes_are_listed_at_any_depth(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "pictures/1", "pictures/x/y/2")
    (tmp_path / "pictures" / "gone").symlink_to(tmp_path / "nothing")
    monkeypatch.chdir(tmp_path)
    listing = _listed(spark, "pictures", or_split="all", label_type="none")
    root = os.fsencode(tmp_path) + b"/pictures/"
    assert _rows(listing) == {
        (b"all", b"1"): (None, root + b"1", 1, None),
        (b"all", b"gone"): (None, root + b"gone", 0, "broken link: it leads nowhere"),
        (b"all", b"x/y/2"): ("x", root + b"x/y/2", 1, None),
    }
    assert listing.classes == frozenset()


def test_trees_that_cannot_be_listed_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    classes, flat = partial(_listed, spark), partial(_listed, spark, label_type="none")
    with pytest.raises(SourceError, match=r"a folder for each class .*its parent folder"):
        classes(tmp_path)
    with pytest.raises(SourceError, match=r"Wanted images in .*nothing there"):
        flat(tmp_path)
    masked = SourcePlan(address="s3://b/x", splits=("val",), label_type="none")  # the folder of masks lacks a split
    with pytest.raises(SourceError, match="No such file"):
        list_tree(spark, str(tmp_path), plan=masked, dataset="d")
    touch(tmp_path, "1.png")
    with pytest.raises(SourceError, match="set --labels FILE, or --label-type none"):
        classes(f"file://{tmp_path}")
    touch(tmp_path, b"a\xff/1", b"a\\xff/1")
    with pytest.raises(SourceError, match="differ as text"):
        classes(tmp_path)


def test_a_tree_on_s3_is_listed_like_a_local_one(
    spark: SparkSession, s3: S3, keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.make_bucket(keyspace)
    address = f"s3://{keyspace}/here"
    root = address.encode()
    storage = Storage(address, S3Access(s3.endpoint, s3.access_key, s3.secret_key))
    names = ["train/a/1", "train/a/b/2", "train/é #?%/1 2", "train/loose", "other/a/1"]
    for name in names:
        storage.write_bytes(name, b"x")
    use(s3, monkeypatch)
    with secrets_on_executors(spark):
        tree = partial(_listed, spark, f"{address}/")
        listing = tree(splits=("train",))
        assert _rows(listing) == {
            (b"train", b"a/1"): ("a", root + b"/train/a/1", 1, None),
            (b"train", b"a/b/2"): ("a", root + b"/train/a/b/2", 1, None),
            (b"train", "é #?%/1 2".encode()): ("é #?%", root + "/train/é #?%/1 2".encode(), 1, None),
            (b"train", b"loose"): (None, root + b"/train/loose", 1, "outside a class folder"),
        }
        assert listing.classes == {"a", "é #?%"}
        wanted = {(b"", name.encode()): (name.partition("/")[0], f"{address}/{name}".encode()) for name in names}
        for looked_at in (20_000, 1):  # more objects than the driver lists itself: one task lists all
            monkeypatch.setattr("etl.sources.trees._LOOKED_AT", looked_at)
            found = _rows(tree(label_type="none"))
            assert {key: row[:2] for key, row in found.items()} == wanted
        with pytest.raises(SourceError, match="Found: no folders"):
            tree(splits=("nothing",))
        with pytest.raises(SourceError, match="no bucket 'nowhere-at-all' there"):
            _listed(spark, "s3://nowhere-at-all/x")
