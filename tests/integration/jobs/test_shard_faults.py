"""jobs/shard.py with faults: in the source, the target, the endpoint, and after an interrupted run."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import etl.shards.sharding as job
from etl.errors import OutputExistsError, SourceError, TableError
from etl.shards.output import ShardOutput
from etl.shards.plan import ShardPlan
from etl.sources.plan import SourcePlan
from imagestrata.devstack.servers.s3 import S3
from tests.support.s3_access import use
from tests.support.services import fresh_name
from tests.support.shard_checks import checked, contents
from tests.support.shard_jobs import MAXSIZE, plan, said, twenty_pictures


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of 20 images: five per shard."""
    return twenty_pictures(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def whole(spark: SparkSession, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shards of an undisturbed run."""
    out = tmp_path_factory.mktemp("whole")
    job.run(spark, plan=plan(root, out))
    checked(out, maxsize=MAXSIZE)
    return out


def times(out: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in out.iterdir()}


def test_a_picture_larger_than_a_shard_is_refused(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    line = said(spark, plan(root, tmp_path / "out", maxsize=100_000))
    assert "Wanted images that fit into a shard of 100,000 bytes. Found: " in line
    assert ".png in file://" in line
    assert line.endswith("Use a larger --maxsize, or make images smaller with --img-size.")
    assert not (tmp_path / "out").exists()


def test_empty_sources_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    flat = ShardPlan(source=SourcePlan(address=str(tmp_path / "empty"), label_type="none"), out=str(tmp_path / "out"))
    assert "Found: nothing there." in said(spark, flat, SourceError)
    split = ShardPlan(split=str(tmp_path / "no split"), out=str(tmp_path / "out"))
    with pytest.raises((TableError, Exception), match="Wanted a split folder"):
        job.run(spark, plan=split)
    assert not (tmp_path / "out").exists()


def test_a_failed_write_of_a_task_is_reported_in_one_line(
    spark: SparkSession, root: Path, whole: Path, tmp_path: Path
) -> None:
    place = tmp_path / "out" / min(file.name for file in whole.glob("*.tar"))
    (place / "in the way").mkdir(parents=True)
    assert said(spark, plan(root, tmp_path / "out")).endswith(f" {place}. Found: Is a directory.")
    assert not list((tmp_path / "out").glob(".*"))


def test_existing_shards_are_refused_resumed_or_replaced(
    spark: SparkSession, root: Path, whole: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    before = times(out)
    assert "Wanted a folder without shards at " in said(spark, plan(root, out), OutputExistsError)
    again = job.run(spark, plan=plan(root, out, resume=True))
    assert (again.images, again.is_new) == (20, False)
    assert str(again).startswith(f"nothing to write: {out}/")
    assert times(out) == before
    others = plan(root, out, seed=1, resume=True)
    assert "Found: complete shards of others" in said(spark, others, OutputExistsError)
    assert times(out) == before
    assert job.run(spark, plan=plan(root, out, seed=1, overwrite=True)).remarks == []
    replaced = {(one.data, one.label, one.metadata["path"]) for one in checked(out, maxsize=MAXSIZE)}
    assert replaced == {(one.data, one.label, one.metadata["path"]) for one in checked(whole, maxsize=MAXSIZE)}
    assert contents(out).keys().isdisjoint(contents(whole))


def test_a_stopped_run_resumes_where_it_stopped(
    spark: SparkSession, root: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: object, **named: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(ShardOutput, "publish", stopped)
        with pytest.raises(KeyboardInterrupt):
            job.run(spark, plan=plan(root, out))
    notes = sorted(out.glob("*.done"))
    assert len(notes) == len(list(whole.glob("*.tar")))
    assert not (out / "shards.json").exists()
    notes[1].unlink()  # as if the task of this shard had not ended
    done = {note.stem: times(out)[note.stem] for note in (notes[0], *notes[2:])}
    (out / f".{notes[1].stem}.0123").write_bytes(b"half of a shard")
    (out / "0a1b2c3d-000000.tar").write_bytes(b"of another run")
    report = job.run(spark, plan=plan(root, out, resume=True))
    assert report.images == 20
    assert report.remarks == [
        "there are also shards that no manifest names: 0a1b2c3d-*; remove them, unless their run is still active"
    ]
    (out / "0a1b2c3d-000000.tar").unlink()
    checked(out, maxsize=MAXSIZE)
    assert contents(out) == contents(whole)
    assert {name: times(out)[name] for name in done} == done  # they were not written again


def test_wrong_keys_buckets_and_endpoints_are_reported_before_listing(
    spark: SparkSession, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()  # it would be named first if it were listed first
    s3.make_bucket(bucket := fresh_name("bucket"))
    use(s3, monkeypatch, secret="wrong")
    line = said(spark, plan(tmp_path / "empty", f"s3://{bucket}/x"))
    assert f"Wanted s3://{bucket}/x at {s3.endpoint}. Found: the keys are rejected" in line
    use(s3, monkeypatch)
    line = said(spark, plan(tmp_path / "empty", "s3://no-such-bucket/x"))
    assert "Found: no bucket 'no-such-bucket' there." in line
    line = said(spark, plan(tmp_path / "empty", f"s3://{bucket}/x", endpoint="http://127.0.0.1:9"))
    assert f"Wanted s3://{bucket}/x at http://127.0.0.1:9. Found: no answer. Is it up" in line


def test_a_manifest_is_removed_before_shards_of_its_names_change(
    spark: SparkSession, root: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    tree, out = Path(shutil.copytree(root, tmp_path / "tree")), Path(shutil.copytree(whole, tmp_path / "out"))
    picture = next(path for path in sorted(tree.rglob("*")) if path.is_file())
    data = bytearray(picture.read_bytes())
    data[-20] ^= 1  # with the same name and size
    picture.write_bytes(data)
    with monkeypatch.context() as patch:
        patch.setattr(ShardOutput, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            job.run(spark, plan=plan(tree, out, overwrite=True))
        assert not (out / "shards.json").exists()
    job.run(spark, plan=plan(tree, out, resume=True))
    checked(out, maxsize=MAXSIZE)
    before = contents(whole)
    assert len([name for name, found in contents(out).items() if found != before[name]]) == 1
