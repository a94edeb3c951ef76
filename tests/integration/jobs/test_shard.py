"""jobs/shard.py: every source, each image once, full shards, and the same bytes in every run."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession

import etl.shards.sharding as job
from etl.errors import EtlError
from etl.ingest.plan import Tolerance
from etl.pictures.plan import Recode
from etl.shards.tasks import write_shards
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from jobs import shard as command_line
from schemas import image_id
from tests.support.archives import mask, tar
from tests.support.begun_uploads import begun
from tests.support.commands import in_living_session
from tests.support.encoding import encoded, npy
from tests.support.pictures import texture
from tests.support.services import fresh_name
from tests.support.shard_checks import Found, checked, contents, downloaded, manifest_of
from tests.support.shard_jobs import CLASSES, PICTURES
from tests.support.shard_jobs import plan as plan_of_shards
from tests.support.trees import plant

# Executors cannot import the tests, so tasks carry what they need of this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

MAXSIZE = 60_000
plan = partial(plan_of_shards, maxsize=MAXSIZE)
LABELS = {path: CLASSES.index(path.partition("/")[0]) for path in PICTURES}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders."""
    return plant(tmp_path_factory.mktemp("classes"), PICTURES)


@pytest.fixture(scope="module")
def folders(spark: SparkSession, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The class folders as shards."""
    out = tmp_path_factory.mktemp("out") / "shards é"
    report = job.run(spark, plan=plan(root, out))
    shards = len(manifest_of(out).shards)
    assert (report.images, report.classes, report.rejected, report.shards) == (42, 3, 0, shards)
    assert str(report).startswith(f"wrote 42 images into {shards} shards (0.")
    assert f"-{{000000..{shards - 1:06}}}.tar in " in str(report)
    return out


def pairs(samples: list[Found]) -> set[tuple[bytes, int | None, Any]]:
    """Images with class number and class name."""
    return {(one.data, one.label, one.metadata.get("class")) for one in samples}


WANTED = {(data, LABELS[path], path.partition("/")[0]) for path, data in PICTURES.items()}


def test_class_folders_are_packed_into_full_shards_with_each_image_once(folders: Path, root: Path) -> None:
    samples = checked(folders, maxsize=MAXSIZE)
    assert len(manifest_of(folders).shards) > 3
    assert [one.key for one in samples] == [f"{number:09}" for number in range(42)]
    assert len(samples) == len(pairs(samples)) == 42
    assert pairs(samples) == WANTED
    for one in samples:
        assert list(one.members) == ["png", "cls", "json"]
        path = one.metadata["path"]
        assert PICTURES[path] == one.data
        assert one.metadata["id"] == str(image_id("", b"", path.encode()))
        assert one.metadata.keys() == {"id", "path", "class", "label"}
    manifest = manifest_of(folders)
    assert dict(manifest.class_names) == dict(enumerate(CLASSES))
    assert (manifest.num_classes, manifest.label_type, manifest.seed) == (3, "int", 0)
    assert manifest.source == root.as_uri()


def test_neighbouring_samples_have_independent_labels(folders: Path) -> None:
    labels = [one.label for one in checked(folders, maxsize=MAXSIZE)]
    alike = sum(one == other for one, other in pairwise(labels))
    assert 5 <= alike <= 22  # of 41; 13 by chance, 39 in the order of the folders


def table_of_bytes(place: Path) -> Path:
    table = {"image": list(PICTURES.values()), "label": [LABELS[path] for path in PICTURES], "path": list(PICTURES)}
    pq.write_table(pa.table(table), place, row_group_size=10)
    return place


def written(place: Path, data: bytes) -> Path:
    place.write_bytes(data)
    return place


def inner_tars() -> dict[str, bytes]:
    return {
        f"{name}.tar": tar({path.partition("/")[2]: data for path, data in PICTURES.items() if path.startswith(name)})
        for name in CLASSES
    }


SOURCES: dict[str, Callable[[Path], Path]] = {
    "a tar of tars": lambda at: written(at / "x.tar", tar(inner_tars())),
    "a compressed tar": lambda at: written(at / "x.tar.gz", tar(PICTURES, mode="w:gz")),
    "a table of bytes": lambda at: table_of_bytes(at / "x.parquet"),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_same_samples(spark: SparkSession, folders: Path, tmp_path: Path, kind: str) -> None:
    report = job.run(spark, plan=plan(SOURCES[kind](tmp_path), tmp_path / "out"))
    assert (report.images, report.rejected, report.remarks) == (42, 0, [])
    samples = checked(tmp_path / "out", maxsize=MAXSIZE)
    if kind == "a table of bytes":
        assert {(data, label) for data, label, _ in pairs(samples)} == {(data, label) for data, label, _ in WANTED}
    else:
        assert pairs(samples) == WANTED
    if "tar" in kind:  # paths, and so ids, order and bytes, are the same as in the folders
        assert [one.members for one in samples] == [one.members for one in checked(folders, maxsize=MAXSIZE)]
        assert contents(tmp_path / "out") == contents(folders)


def test_shards_can_be_sharded_again(spark: SparkSession, folders: Path, tmp_path: Path) -> None:
    again = plan(folders, tmp_path / "out", layout="webdataset", maxcount=10, maxsize=1_000_000)
    assert job.run(spark, plan=again).shards == 5
    samples = checked(tmp_path / "out", maxsize=1_000_000, maxcount=10)
    assert {(data, label) for data, label, _ in pairs(samples)} == {(data, label) for data, label, _ in WANTED}


def test_masks_and_arrays_are_packed_with_their_pictures(spark: SparkSession, tmp_path: Path) -> None:
    images = plant(tmp_path / "images", {f"{i}.png": texture(i, width=16, height=12) for i in range(5)})
    masks = plant(tmp_path / "masks", {f"{i}.png": mask(i) for i in range(5)})
    plant(tmp_path / "arrays", {f"{i}.npy": npy([i, 7]) for i in range(5)})
    assert job.run(spark, plan=plan(images, tmp_path / "m", label_type="blob", masks=str(masks))).images == 5
    job.run(spark, plan=plan(images, tmp_path / "a", label_type="multi", arrays=str(tmp_path / "arrays")))
    found = {name: checked(tmp_path / name, maxsize=MAXSIZE) for name in "ma"}
    for name, extension, made in (("m", "seg.png", mask), ("a", "npy", lambda i: npy([i, 7]))):
        assert sorted(one.metadata["path"] for one in found[name]) == [f"{i}.png" for i in range(5)]
        for one in found[name]:
            number = int(one.metadata["path"][0])
            assert list(one.members) == ["png", extension, "json"]
            assert (one.data, one.members[extension]) == (texture(number, width=16, height=12), made(number))
    assert manifest_of(tmp_path / "m").label_type == "blob"
    again = plan(tmp_path / "m", tmp_path / "m2", layout="webdataset", label_type="blob", seed=3)
    job.run(spark, plan=again)
    masks_again = {one.data: one.members["seg.png"] for one in checked(tmp_path / "m2", maxsize=MAXSIZE)}
    assert masks_again == {one.data: one.members["seg.png"] for one in found["m"]}


def fail_first(batches: Iterator[pa.RecordBatch], *, order: Any) -> Iterator[pa.RecordBatch]:
    """The real task, but each first attempt fails in the middle of its shard."""
    context = TaskContext.get()
    assert context is not None

    def broken() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 2)
            raise OSError("the machine is gone")

    yield from write_shards(broken() if context.attemptNumber() == 0 else batches, order=order)


def test_shards_do_not_depend_on_partitions_or_failed_tasks(
    spark: SparkSession, root: Path, folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    monkeypatch.setattr(job, "write_shards", fail_first)
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "1")
        job.run(spark, plan=plan(root, tmp_path / "out"))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))
    checked(tmp_path / "out", maxsize=MAXSIZE)
    assert contents(tmp_path / "out") == contents(folders)
    assert manifest_of(tmp_path / "out").fingerprint == manifest_of(folders).fingerprint


def test_another_seed_gives_another_order_and_other_names(
    spark: SparkSession, root: Path, folders: Path, tmp_path: Path
) -> None:
    job.run(spark, plan=plan(root, tmp_path / "other", seed=1))
    one, other = checked(folders, maxsize=MAXSIZE), checked(tmp_path / "other", maxsize=MAXSIZE)
    assert pairs(one) == pairs(other)
    assert [sample.data for sample in one] != [sample.data for sample in other]
    assert contents(folders).keys().isdisjoint(contents(tmp_path / "other"))
    assert manifest_of(folders).source_fingerprint != manifest_of(tmp_path / "other").fingerprint


def test_s3_works_as_source_and_target_with_the_same_shards(
    spark: SparkSession, s3: S3, root: Path, folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    s3.make_bucket(bucket := fresh_name("shards"))
    there = f"s3://{bucket}/a/b"
    report = job.run(spark, plan=plan(root, there, endpoint=s3.endpoint))
    assert report.out == there
    storage = Storage(there, S3Access(s3.endpoint, s3.access_key, s3.secret_key))
    here = downloaded(storage, tmp_path / "here")
    checked(here, maxsize=MAXSIZE)
    assert contents(here) == contents(folders)
    assert begun(storage) == []
    again = plan(there, tmp_path / "again", layout="webdataset", endpoint=s3.endpoint)
    job.run(spark, plan=again)
    samples = checked(tmp_path / "again", maxsize=MAXSIZE)
    assert {(one.data, one.label) for one in samples} == {(data, LABELS[path]) for path, data in PICTURES.items()}
    assert spark.conf.get("spark.imagestrata.s3.endpoint", None) is None


def test_smaller_and_compressed_pictures_fill_their_shards_too(spark: SparkSession, tmp_path: Path) -> None:
    def bmp(number: int) -> bytes:
        return encoded(Image.new("RGB", (140 + number, 30), (number, 2, 3)), "BMP")

    files = {f"{'ab'[i % 2]}/{i}.bmp": bmp(i) for i in range(12)}
    source = plant(tmp_path / "bmp", {**files, "a/bad.bmp": b"bad"})
    small = plan(source, tmp_path / "jpg", recode=Recode(format="JPEG", size=16), maxsize=10_240)
    report = job.run(spark, plan=small)
    assert (report.images, report.rejected) == (12, 1)
    samples = checked(tmp_path / "jpg", maxsize=10_240)
    assert {one.extension for one in samples} == {"jpg"}
    for one in samples:
        with Image.open(io.BytesIO(one.data)) as image:
            assert (image.format, min(image.size)) == ("JPEG", 16)
    job.run(spark, plan=plan(source, tmp_path / "zst", compress="zstd"))
    packed = checked(tmp_path / "zst", maxsize=MAXSIZE)
    assert {one.extension for one in packed} == {"bmp.zst"}
    for one in packed:
        assert pa.input_stream(pa.BufferReader(one.data), compression="zstd").read() == files[one.metadata["path"]]
    assert manifest_of(tmp_path / "zst").bytes < sum(map(len, files.values())) / 2
    assert manifest_of(tmp_path / "zst").options["compress"] == "zstd"


def test_damaged_pictures_are_left_out_and_listed(spark: SparkSession, tmp_path: Path) -> None:
    bad = {"ant/cut.png": next(iter(PICTURES.values()))[:300], "ant/empty.png": b"", "bee é/x.txt": b"no image"}
    (tmp_path / "x.tar").write_bytes(tar({**PICTURES, **bad}))
    source = tmp_path / "x.tar"
    report = job.run(spark, plan=plan(source, tmp_path / "out"))
    assert (report.images, report.rejected) == (42, 3)
    assert "3 rejected (" in str(report)
    assert "see rejected.csv" in str(report)
    assert pairs(checked(tmp_path / "out", maxsize=MAXSIZE, is_full=False)) == WANTED
    lines = (tmp_path / "out" / "rejected.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "or_split,path,reason"
    assert [line.split(",")[1] for line in lines[1:]] == ["ant/cut.png", "ant/empty.png", "bee é/x.txt"]
    job.run(spark, plan=plan(source, tmp_path / "in order", read="sequential"))
    assert contents(tmp_path / "in order") == contents(tmp_path / "out")

    strict = plan(source, tmp_path / "strict", tolerance=Tolerance.parse("0"))
    with pytest.raises(EtlError, match=r"Wanted at most 0 of 45 files rejected\. Found: \d"):
        job.run(spark, plan=strict)
    assert not (tmp_path / "strict" / "shards.json").exists()
    nothing = plant(tmp_path / "nothing", dict.fromkeys(("a/1.png", "a/2.png", "b/3.png"), b"bad"))
    with pytest.raises(EtlError, match=r"Wanted .* Found: 3 files, all rejected|Wanted at most .* Found: 3"):
        job.run(spark, plan=plan(nothing, tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_the_command_writes_shards_and_prints_its_report_as_json(
    root: Path, folders: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with in_living_session():
        assert command_line.main([str(root), "--out", str(tmp_path / "out"), "--maxsize", str(MAXSIZE), "--json"]) == 0
    report = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (report["images"], report["out"]) == (42, str(tmp_path / "out"))
    assert contents(tmp_path / "out") == contents(folders)
