"""Shards listed by executors, local and in S3."""

import gzip
import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from etl.errors import SourceError
from etl.secrets import driver_storage, secrets_on_executors
from etl.sources.listing import list_source
from etl.sources.plan import SourcePlan
from etl.sources.webdataset import expand, list_shards
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from tests.support.archives import tar_of


def _shard(folder: Path, *files: tuple[str, bytes], name: str = "s-0.tar") -> Path:
    place = folder / name
    place.write_bytes(tar_of(*files))
    return place


def test_missing_shards_and_duplicate_shard_names_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    _shard(tmp_path)
    (tmp_path / "other").mkdir()
    _shard(tmp_path / "other")
    with pytest.raises(SourceError, match=r"Wanted 3 shards\. Found: 2 of them missing, first .*s-1\.tar"):
        list_shards(spark, SourcePlan(address=f"{tmp_path}/s-{{0..2}}.tar"), dataset="d")
    with pytest.raises(SourceError, match="different names"):
        list_shards(spark, SourcePlan(address=f"{tmp_path}/{{.,other}}/s-0.tar", layout="webdataset"), dataset="d")


def test_executors_list_shards(spark: SparkSession, tmp_path: Path) -> None:
    for shard in range(12):
        files = [
            file
            for index in range(3)
            for file in ((f"{index}.json", json.dumps({"label": shard}).encode()), (f"{index}.png", b"x"))
        ]
        _shard(tmp_path, *files, name=f"s-{shard}.tar")
    listing = list_shards(spark, SourcePlan(address=f"{tmp_path}/s-{{0..11}}.tar", or_split="train"), dataset="d")
    rows = listing.entries.collect()
    assert sorted((bytes(row.path), row.or_label, row.reason) for row in rows) == sorted(
        (f"s-{shard}/{index}.png".encode(), str(shard), None) for shard in range(12) for index in range(3)
    )
    assert listing.access == "random"
    packed = tmp_path / "t.tar.gz"
    packed.write_bytes(gzip.compress((tmp_path / "s-0.tar").read_bytes()))
    assert list_shards(spark, SourcePlan(address=str(packed), layout="webdataset"), dataset="d").access == "stream"


def test_members_of_samples_that_are_not_taken_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    for shard in range(3):
        files = [
            file
            for index in range(4)
            for file in [
                *((f"{index}.png", b"x"), (f"{index}.cls", b"1"), (f"{index}.meta", b"of theirs")),
                *([(f"{index}.Txt", b"a caption")] if index else []),
                *([(f"{index}.npy", b"an array")] if shard else []),
            ]
        ]
        _shard(tmp_path, ("__meta__", b"notes"), *files, name=f"s-{shard}.tar")
    counts = {"int": "32 files of samples are ignored: 12 .meta, 9 .txt, 8 .npy, 3 hidden names",
              "multi": "24 files of samples are ignored: 12 .meta, 9 .txt, 3 hidden names"}  # fmt: skip
    for label_type, told in counts.items():
        plan = SourcePlan(address=str(tmp_path), layout="webdataset", label_type=label_type)  # type: ignore[arg-type]
        found = list_source(spark, plan, dataset="d")
        assert found.report_lines() == [told]
        assert found.listing.entries.count() == 12


def test_executors_list_shards_on_s3(spark: SparkSession, s3: S3, keyspace: str) -> None:
    s3.make_bucket(keyspace)
    bucket = f"s3://{keyspace}"
    storage = Storage(bucket, S3Access(s3.endpoint, s3.access_key, s3.secret_key))
    for shard in range(3):
        storage.write_bytes(f"train/s-{shard}.tar", tar_of(("1.jpg", b"x" * shard), ("1.cls", b"%d" % shard)))
    for field, value in [("endpoint", s3.endpoint), ("access.key", s3.access_key), ("secret.key", s3.secret_key)]:
        spark.conf.set(f"spark.imagestrata.s3.{field}", value)
    try:
        with secrets_on_executors(spark):
            addresses = expand(f"{bucket}/train", storage_at=partial(driver_storage, spark))
            assert addresses == [f"{bucket}/train/s-{shard}.tar" for shard in range(3)]
            assert expand(f"{bucket}/train/*-[02].tar", storage_at=partial(driver_storage, spark)) == addresses[::2]
            plan = SourcePlan(address=f"{bucket}/train", layout="webdataset")
            rows = list_shards(spark, plan, dataset="d").entries.orderBy("path").collect()
        assert [(bytes(row.path), row.or_label, row.bytes) for row in rows] == [
            (b"s-%d/1.jpg" % shard, str(shard), shard) for shard in range(3)
        ]
    finally:
        for field in ("endpoint", "access.key", "secret.key"):
            spark.conf.unset(f"spark.imagestrata.s3.{field}")
