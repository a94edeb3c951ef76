"""A shard job or its server is killed with -9: nothing partial is published, and a second run completes it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import etl.shards.sharding as job
from etl.errors import EtlError
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from loader.shards import make_client
from tests.support.begun_uploads import begun
from tests.support.s3_access import use
from tests.support.shard_checks import assert_whole, checked, contents, downloaded, manifest_of
from tests.support.shard_folders import samples_in, upload
from tests.support.shard_jobs import MAXSIZE, plan, said, twenty_pictures
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of 20 images: five per shard."""
    return twenty_pictures(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def whole(spark: SparkSession, root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The shards of an undisturbed run."""
    out = tmp_path_factory.mktemp("whole")
    job.run(spark, plan=plan(root, out))
    checked(out, maxsize=MAXSIZE)
    return contents(out)


@pytest.fixture
def killed(root: Path, tmp_path: Path) -> Path:
    """Run spark-submit, kill it and all its processes with -9 after a shard or two, and return what is left."""
    out = tmp_path / "out"
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[1]"]
    command += ["--conf", "spark.ui.enabled=false", str(ROOT / "jobs" / "shard.py"), str(root)]
    command += ["--out", str(out), "--maxsize", str(MAXSIZE)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        command, cwd="/", env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: list(out.glob("*.done")) or process.poll() is not None, "a shard", seconds=PATIENCE_S)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    output = process.communicate(timeout=PATIENCE_S)[0]
    assert list(out.glob("*.done")), output[-4000:]
    assert not (out / "shards.json").exists()
    return out


def test_a_killed_job_resumes_where_it_stopped(
    spark: SparkSession, root: Path, whole: dict[str, bytes], killed: Path
) -> None:
    done = {Path(file).stem: (killed / Path(file).stem).stat().st_mtime_ns for file in killed.glob("*.done")}
    (killed / f".{min(whole)[:8]}-000001.tar.0123").write_bytes(b"half of a shard")
    assert job.run(spark, plan=plan(root, killed, resume=True)).images == 20
    checked(killed, maxsize=MAXSIZE)
    assert contents(killed) == whole
    assert {name: (killed / name).stat().st_mtime_ns for name in done} == done  # they were not written again
    (killed / "shards.json").unlink()
    job.run(spark, plan=plan(root, killed))  # also over the existing files, without an error
    assert contents(killed) == whole
    assert all((killed / name).stat().st_mtime_ns > at for name, at in done.items())


def test_a_job_that_loses_its_endpoint_in_mid_write_publishes_nothing(
    spark: SparkSession, root: Path, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with S3(tmp_path / "s3") as server:
        use(server, monkeypatch)
        server.make_bucket("faults")
        storage = Storage("s3://faults/set", S3Access(server.endpoint, server.access_key, server.secret_key))
        written = server.folder / "buckets" / "faults" / "set"

        def stop() -> None:
            until(lambda: list(written.glob("*.tar")), "a shard", seconds=PATIENCE_S)
            server.stop()

        stopper = threading.Thread(target=stop)
        stopper.start()
        line = said(spark, plan(root, "s3://faults/set"))
        stopper.join()
        assert server.endpoint in line or "s3://faults/set" in line
        server.start(tied=True)
        assert not storage.exists("shards.json")
        assert job.run(spark, plan=plan(root, "s3://faults/set")).images == 20
        assert begun(storage) == []
        here = downloaded(storage, tmp_path / "here")
        checked(here, maxsize=MAXSIZE)
        assert contents(here) == whole


@pytest.mark.parametrize("seeds", [(1, 2), (1, 1)])
def test_one_of_two_concurrent_jobs_is_published_whole(
    spark: SparkSession, root: Path, tmp_path: Path, seeds: tuple[int, int]
) -> None:
    ends: list[object] = []

    def run(seed: int) -> None:
        try:
            ends.append(job.run(spark, plan=plan(root, tmp_path / "out", seed=seed)).fingerprint)
        except (EtlError, PySparkException) as error:
            ends.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_whole(tmp_path / "out")
    manifest = manifest_of(tmp_path / "out")
    assert manifest.samples == 20
    assert manifest.fingerprint in ends
    if seeds == (1, 1):
        checked(tmp_path / "out", maxsize=MAXSIZE)
    for one in ends:
        assert isinstance(one, str) or "Wanted" in str(one)


def test_a_killed_upload_publishes_nothing_and_can_be_made_again(tmp_path: Path) -> None:
    script = (
        "from loader.shards import make_client\nfrom tests.support.shard_folders import upload\n"
        f"upload(make_client({str(tmp_path)!r}), 'b', 'x', count=600, maxsize=30_000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until(lambda: list(tmp_path.rglob("*.tar")) or process.poll() is not None, "a shard", seconds=PATIENCE_S)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not list(tmp_path.rglob("shards.json"))
    shards = upload(make_client(tmp_path), "b", "x", count=600, maxsize=30_000)
    assert len(samples_in(tmp_path / "b" / "x")) == 600
    names = {shard.name for shard in shards.contents.shards}
    assert {path.name for path in (tmp_path / "b" / "x").glob("*.tar")} == names
    assert not list((tmp_path / "b" / "x").glob(".*"))
