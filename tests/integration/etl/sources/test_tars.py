"""Tars listed by executors, local and in S3."""

import gzip
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from etl.errors import SourceError
from etl.secrets import driver_storage, secrets_on_executors
from etl.sources.plan import SourcePlan
from etl.sources.reading import Reader
from etl.sources.tar_members import CUT
from etl.sources.tars import is_tar_of_tars, list_tar
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from tests.support.archives import tar_of
from tests.support.s3_access import use


def _write(place: Path, data: bytes) -> str:
    place.write_bytes(data)
    return str(place)


def _contents(data: bytes, rows: Sequence[Row]) -> dict[bytes, bytes]:
    return {bytes(row.path): data[row.offset : row.offset + row.bytes] for row in rows if row.reason is None}


@pytest.mark.parametrize(("name", "pack"), [("x.tar", bytes), ("x.tar.gz", gzip.compress)])
def test_executors_list_a_tar(spark: SparkSession, tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    data = tar_of(*((f"train/{index % 3}/{index}", b"x" * index) for index in range(30)), ("train/0/bad/..", b""))
    address = _write(tmp_path / name, pack(data))
    listing = list_tar(spark, SourcePlan(address=address, splits=("train",)), dataset="d")
    rows = listing.entries.collect()
    assert listing.access == ("random" if name == "x.tar" else "stream")
    assert _contents(data, rows) == {b"%d/%d" % (index % 3, index): b"x" * index for index in range(30)}
    assert sum(row.reason is not None for row in rows) == 1
    assert {(bytes(row.or_split), row.or_label) for row in rows if row.reason is None} == {
        (b"train", str(label)) for label in range(3)
    }


def test_an_unreadable_archive_is_refused_on_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    plan = SourcePlan(address=_write(tmp_path / "x.tar", b"no tar"))
    with pytest.raises(SourceError, match="6 bytes"):
        list_tar(spark, plan, dataset="d")
    (tmp_path / "x.tar").unlink()
    with pytest.raises(SourceError, match="nothing there"):
        list_tar(spark, plan, dataset="d")
    address = _write(tmp_path / "y.tgz", gzip.compress(tar_of(("a.tar", tar_of()))))
    assert is_tar_of_tars(address)
    with pytest.raises(SourceError, match="an uncompressed tar of tars"):
        list_tar(spark, SourcePlan(address=address), dataset="d")


def _inner(stem: str, count: int) -> tuple[str, bytes]:
    return f"{stem}.tar", tar_of(*((f"{stem}_{index}.JPEG", f"{stem} {index}".encode() * 50) for index in range(count)))


def test_executors_list_a_tar_of_tars(spark: SparkSession, tmp_path: Path) -> None:
    stems = ["n01440764", "n01443537", "n01484850"]
    inner = [_inner(stem, 5) for stem in stems]
    twice = ("a.tar", tar_of(("./1", b"old"), ("1", b"new"), ("../2", b""), (".x/3", b"")))
    data = tar_of(
        *inner, twice, ("./empty.tar", tar_of()), ("none.tar", b"x" * 600), ("README", b"x"), ("../b.tar", b"")
    )
    address = _write(tmp_path / "x.tar", data)
    assert is_tar_of_tars(address)
    listing = list_tar(spark, SourcePlan(address=address, or_split="train"), dataset="d")
    rows = listing.entries.collect()
    assert listing.classes == {*stems, "a", "empty", "none", "b"}
    assert _contents(data, rows) == {
        **{
            f"{stem}/{stem}_{index}.JPEG".encode(): f"{stem} {index}".encode() * 50
            for stem in stems
            for index in range(5)
        },
        b"a/1": b"new",
    }
    assert {bytes(row.path).partition(b"/")[0].decode() for row in rows if row.reason is None} == {
        row.or_label for row in rows if row.reason is None
    }
    assert {(bytes(row.place), bytes(row.or_split)) for row in rows} == {(os.fsencode(address), b"train")}
    assert {bytes(row.path): row.reason for row in rows if row.reason is not None} == {
        b"a/1@%d" % data.index(b"old"): "twice: a later member has this name",
        b"a/../2": "unsafe name: it leads out of its folder",
        b"a/.x/3": "hidden: a name begins with a dot, or is __MACOSX",
        b"none.tar": "not a tar: other data",
        b"README": "not a tar: a file among the inner archives",
        b"../b.tar": "unsafe name: it leads out of its folder",
    }


def test_a_truncated_tar_of_tars_keeps_its_whole_members(spark: SparkSession, tmp_path: Path) -> None:
    data = tar_of(_inner("a", 3), _inner("b", 3))
    second = data.index(b"b.tar\0")
    one = 512 + 512  # a member of an inner archive
    ended = b"b/@%d" % (second + 512 + one)
    no_end = "truncated: the archive ends without its end mark"
    for cut, last, reason in [(one + 600, b"b/b_1.JPEG", CUT), (one, ended, no_end)]:
        address = _write(tmp_path / "x.tar", data[: second + 512 + cut])
        rows = list_tar(spark, SourcePlan(address=address), dataset="d").entries.collect()
        assert sorted(_contents(data, rows)) == [b"a/a_0.JPEG", b"a/a_1.JPEG", b"a/a_2.JPEG", b"b/b_0.JPEG"]
        assert {bytes(row.path): row.reason for row in rows if row.reason} == {last: reason}


def test_inner_archives_with_the_same_stem_are_refused_unless_in_split_folders(
    spark: SparkSession, tmp_path: Path
) -> None:
    address = _write(tmp_path / "x.tar", tar_of(*((f"out/{name}/a.tar", _inner("a", 1)[1]) for name in ("t", "v"))))
    with pytest.raises(
        SourceError, match=r"different names in .* Found: out/t/a\.tar and out/v/a\.tar\. If .*--split-s"
    ):
        list_tar(spark, SourcePlan(address=address), dataset="d")
    assert is_tar_of_tars(address, root=b"out")
    plan = SourcePlan(address=address, root="out", splits=("t", "v"))
    rows = list_tar(spark, plan, dataset="d").entries.collect()
    assert {(bytes(row.or_split), bytes(row.path), row.or_label) for row in rows} == {
        (b"t", b"a/a_0.JPEG", "a"),
        (b"v", b"a/a_0.JPEG", "a"),
    }


def test_executors_list_tars_on_s3(spark: SparkSession, s3: S3, keyspace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.make_bucket(keyspace)
    bucket = f"s3://{keyspace}"
    storage = Storage(bucket, S3Access(s3.endpoint, s3.access_key, s3.secret_key))
    plain = tar_of(*((f"a/{index}", b"x" * index) for index in range(30)))
    nested = tar_of(_inner("a", 5), ("b.tar", tar_of(("1", bytes(9 << 20)), ("2", b"x"))))
    for name, data in [("x y/plain.tar", plain), ("plain.tgz", gzip.compress(plain)), ("nested.tar", nested)]:
        storage.write_bytes(name, data)
    use(s3, monkeypatch)
    with secrets_on_executors(spark), Reader(storage_at=partial(driver_storage, spark)) as reader:
        for address in (f"{bucket}/x y/plain.tar", f"{bucket}/plain.tgz"):
            assert not is_tar_of_tars(address, storage_at=partial(driver_storage, spark))
            listing = list_tar(spark, SourcePlan(address=address), dataset="d")
            rows = listing.entries.orderBy("offset").collect()
            assert _contents(plain, rows) == {b"a/%d" % index: b"x" * index for index in range(30)}
            read = [reader.read(bytes(row.place), row.offset, row.bytes) for row in rows]
            assert read == [b"x" * index for index in range(30)]
        rows = list_tar(spark, SourcePlan(address=f"{bucket}/nested.tar"), dataset="d").entries.collect()
        assert sorted(_contents(nested, rows)) == [*(b"a/a_%d.JPEG" % index for index in range(5)), b"b/1", b"b/2"]
        with pytest.raises(SourceError, match=rf"archive at {bucket}/no\.tar\. Found: nothing there\."):
            list_tar(spark, SourcePlan(address=f"{bucket}/no.tar"), dataset="d")
        with pytest.raises(SourceError, match="nowhere-at-all"):
            list_tar(spark, SourcePlan(address="s3://nowhere-at-all/x.tar"), dataset="d")
