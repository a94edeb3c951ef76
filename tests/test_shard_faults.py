"""jobs/shard.py when something is wrong: its arguments, the place, the endpoint, a kill in the middle, a second run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pictures import texture
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from shard_checks import assert_whole, checked, contents, downloaded, manifest_of
from trees import plant

import jobs.shards.run as job
from devstack.s3 import S3
from etl.errors import EtlError, OutputExistsError, SourceError, TableError
from etl.shards.output import ShardOutput
from etl.shards.plan import ShardPlan
from etl.sources.plan import SourcePlan
from formats.s3 import S3Access
from formats.shards import ShardWriter, keys
from formats.storage import Storage
from jobs.command import executor_error
from jobs.shard import parse_args
from schemas.shards import PIECE_BYTES

ROOT = Path(__file__).resolve().parent.parent
MAXSIZE = 1_000_000
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of 20 pictures of about 190 kB: five a shard."""
    files = {f"{'ab'[i % 2]}/{i}.png": texture(i, width=250, height=250) for i in range(20)}
    return plant(tmp_path_factory.mktemp("tree"), files)


@pytest.fixture(scope="module")
def whole(spark: SparkSession, root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Its shards, from a run that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole")
    job.run(spark, plan=plan(root, out))
    checked(out, maxsize=MAXSIZE)
    return contents(out)


def plan(source: Path | str, out: Path | str, **options: Any) -> ShardPlan:
    return ShardPlan(source=SourcePlan(address=str(source)), out=str(out), **{"maxsize": MAXSIZE, **options})


def use(server: S3, monkeypatch: pytest.MonkeyPatch, *, secret: str | None = None) -> None:
    """Name a server and its keys in the environment, as users do."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret or server.secret_key)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)


def await_it(what: Callable[[], object], *, why: str) -> None:
    """Poll until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)


def said(spark: SparkSession, wanted: ShardPlan, kind: type[Exception] = EtlError) -> str:
    """What a run that cannot be says; nothing was published."""
    with pytest.raises((kind, PySparkException)) as told:
        job.run(spark, plan=wanted)
    message = str(told.value)
    if not isinstance(told.value, kind):
        found = executor_error(message)
        assert found is not None, message
        message = found
    (line,) = message.splitlines()
    assert "Wanted" in line
    assert "Found: " in line
    return line


BAD_ARGUMENTS = [
    ([], "the following arguments are required: -o/--out"),
    (["-o", "x"], "Wanted a SOURCE, --data-table and --metadata-table, or --split. Found: none."),
    (["nowhere", "-o", "x"], "Wanted a folder at "),
    (["."], "required: -o/--out"),
    ([".", "-o", "/dev/null"], "Wanted a folder, or nothing yet, at '/dev/null'. Found: a file."),
    ([".", "-o", "./x"], "Wanted --out outside of SOURCE"),
    ([".", "-o", "s3://b", "--overwrite", "--resume"], "Wanted --overwrite or --resume. Found: both."),
    ([".", "-o", "s3://b", "--maxsize", "many"], "wanted a number of bytes, as 100000000 or 1e8. Found: 'many'"),
    ([".", "-o", "s3://b", "--maxsize", "inf"], "wanted a number of bytes"),
    ([".", "-o", "s3://b", "--maxsize", "1e3"], "Wanted --maxsize of 10,240 bytes or more. Found: 1,000"),
    ([".", "-o", "s3://b", "--maxsize", "1e11"], "on S3, which takes so many in parts. Found: 100,000,000,000"),
    ([".", "-o", "s3://b", "--maxcount", "0"], "Wanted --maxcount of 1 or more. Found: 0"),
    ([".", "-o", "s3://b", "--index", "1"], "Wanted --index with --split. Found: it alone."),
    ([".", "-o", "s3://b", "--split", "s", "--index", "-1"], "Wanted --index of 0 or more. Found: -1"),
    ([".", "-o", "s3://b", "--split", "s", "--seed", "3"], "Wanted --seed without --split"),
    ([".", "-o", "s3://b", "-d", "k.d", "-m", "k.m"], "Wanted images from a SOURCE or from tables. Found: both."),
    (["-o", "s3://b", "-d", "k.d"], "Wanted --data-table and --metadata-table. Found: one of them."),
    (["-o", "s3://b", "-d", "k.d", "-m", "k.d"], "Wanted two tables, for data and for metadata. Found: k.d for both."),
    (["-o", "s3://b", "-d", "kd", "-m", "k.m"], "Found: 'kd'"),
    (["-o", "s3://b", "-d", "k.d", "-m", "k.m", "--dataset", "x"], "Wanted --dataset with a SOURCE."),
    (["-o", "s3://b", "--split", "s", "--labels", "l.csv"], "Wanted a SOURCE for the options that say how to read it."),
    (["-o", "s3://b", "--split", "s", "--read", "sequential"], "Found: --read alone."),
    ([".", "-o", "s3://b", "--id-col", "x"], "Wanted --id-col, --label-col and --data-col with tables."),
    ([".", "-o", "s3://b", "--read", "sequential"], "Wanted --read sequential with tars."),
    ([".", "-o", "/tmp/x", "--endpoint", "http://h:1"], "Wanted --endpoint with an address on S3. Found: none."),
    ([".", "-o", "s3://b", "--endpoint", "h:1"], "Wanted an --endpoint as http://HOST:PORT or https://HOST."),
    ([".", "-o", "s3://b", "--compress", "gzip"], "invalid choice: 'gzip'"),
    ([".", "-o", "s3://b", "--crop"], "Wanted "),
    ([".", "-o", "s3://b", "--max-errors", "some"], "Found: 'some'"),
]  # fmt: skip


def test_arguments_that_cannot_be_end_with_2_before_anything_starts(tmp_path: Path) -> None:
    program = (
        "import contextlib, io, json, sys, jobs.shard\n"
        "from pyspark import SparkContext\n"
        "told = []\n"
        "for argv in json.load(sys.stdin):\n"
        "    with contextlib.redirect_stderr(io.StringIO()) as text:\n"
        "        try:\n"
        "            told.append([jobs.shard.main(argv), text.getvalue()])\n"
        "        except SystemExit as error:\n"
        "            told.append([error.code, text.getvalue()])\n"
        "assert SparkContext._gateway is None\n"
        "print(json.dumps(told))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps([argv for argv, _ in BAD_ARGUMENTS]), text=True,
        cwd=tmp_path, capture_output=True, check=True,
    )  # fmt: skip
    for (argv, wanted), (code, text) in zip(BAD_ARGUMENTS, json.loads(done.stdout), strict=True):
        assert (code, wanted in text) == (2, True), (argv, code, text)
    assert list(tmp_path.iterdir()) == []


def test_the_manual_page_and_the_options(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    found, as_json = parse_args(
        [str(tmp_path / "t"), "--out", "s3://b/p", "--maxsize", "1e6", "--seed", "7", "--img-size", "64",
         "--img-format", "JPEG", "--compress", "zstd", "--endpoint", "http://127.0.0.1:9", "--json"]
    )  # fmt: skip
    assert as_json
    assert (found.maxsize, found.maxcount, found.seed, found.out) == (1_000_000, 100_000, 7, "s3://b/p")
    assert (found.recode.size, found.compress, found.endpoint) == (64, "zstd", "http://127.0.0.1:9")
    assert parse_args([str(tmp_path / "t"), "-o", "s3://b/p"])[0].maxsize == 100_000_000
    assert parse_args([str(tmp_path / "t"), "-o", str(tmp_path / "o")])[0].maxsize == 2_000_000_000
    help_text = subprocess.run(
        [sys.executable, str(ROOT / "jobs" / "shard.py"), "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "exit codes:" in help_text
    assert max(map(len, help_text.splitlines())) <= 120


def test_a_picture_that_is_larger_than_a_shard(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    line = said(spark, plan(root, tmp_path / "out", maxsize=100_000))
    assert "Wanted images that fit into a shard of 100,000 bytes. Found: " in line
    assert ".png in file://" in line
    assert line.endswith("Take a larger --maxsize, or make pictures smaller with --img-size.")
    assert not (tmp_path / "out").exists()


def test_sources_with_nothing_in_them(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    flat = ShardPlan(source=SourcePlan(address=str(tmp_path / "empty"), label_type="none"), out=str(tmp_path / "out"))
    assert "Found: nothing there." in said(spark, flat, SourceError)
    split = ShardPlan(split=str(tmp_path / "no split"), out=str(tmp_path / "out"))
    with pytest.raises((TableError, Exception), match="Wanted a split folder"):
        job.run(spark, plan=split)
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_to(
    spark: SparkSession, root: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert f"{tmp_path}/file is no folder" in said(spark, plan(root, tmp_path / "file" / "out"))
    assert "Wanted a folder to write to at /proc/out. Found: /proc: " in said(spark, plan(root, "/proc/out"))
    (tmp_path / "out" / min(whole) / "in the way").mkdir(parents=True)  # found when a shard is to take its place
    (tmp_path / "out" / min(whole)).rename(place := (tmp_path / "out" / min(whole)).with_suffix(".tar"))
    line = said(spark, plan(root, tmp_path / "out"))
    assert line == f"Wanted to write {place}. Found: Is a directory."
    assert not list((tmp_path / "out").glob(".*"))


def test_shards_that_are_there_are_refused_replaced_or_taken_as_done(
    spark: SparkSession, root: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = plan(root, out, seed=1)
    job.run(spark, plan=first)
    line = said(spark, first, OutputExistsError)
    assert line == (
        f"Wanted a place without shards at {out}. Found: {len(manifest_of(out).shards)} of them, 20 images. "
        "Say --overwrite to replace them, or name another place."
    )
    before = {file.name: file.stat().st_mtime_ns for file in out.iterdir()}
    assert job.run(spark, plan=replace(first, resume=True)).images == 20
    assert {file.name: file.stat().st_mtime_ns for file in out.iterdir()} == before
    assert "Found: shards of others, whole" in said(spark, plan(root, out, resume=True), OutputExistsError)
    assert job.run(spark, plan=plan(root, out, overwrite=True)).remarks == []
    checked(out, maxsize=MAXSIZE)
    assert contents(out) == whole  # those of the first seed are gone


def test_a_manifest_is_withdrawn_before_shards_of_the_same_names_get_other_bytes(
    spark: SparkSession, root: Path, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*args: object, **named: object) -> None:
        raise KeyboardInterrupt

    tree, out = Path(shutil.copytree(root, tmp_path / "tree")), tmp_path / "out"
    job.run(spark, plan=plan(tree, out))
    with monkeypatch.context() as patch:
        patch.setattr(ShardOutput, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            job.run(spark, plan=plan(tree, out, overwrite=True))
        assert (out / "shards.json").exists()  # it is right as it was
        picture = next(path for path in sorted(tree.rglob("*")) if path.is_file())
        data = bytearray(picture.read_bytes())
        data[-20] ^= 1  # of the same name and size
        picture.write_bytes(data)
        with pytest.raises(KeyboardInterrupt):
            job.run(spark, plan=plan(tree, out, overwrite=True))
        assert not (out / "shards.json").exists()
    job.run(spark, plan=plan(tree, out, resume=True))
    checked(out, maxsize=MAXSIZE)
    assert [name for name, found in contents(out).items() if found != whole[name]]


def test_a_manifest_without_its_shards_and_one_that_is_damaged(
    spark: SparkSession, root: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    job.run(spark, plan=plan(root, out))
    gone = out / manifest_of(out).shards[1].name
    gone.unlink()
    assert "Wanted a place without shards" in said(spark, plan(root, out), OutputExistsError)
    job.run(spark, plan=plan(root, out, resume=True))
    checked(out, maxsize=MAXSIZE)
    assert contents(out) == whole
    text = (out / "shards.json").read_text()
    wrong = [text.replace('"pieces": [[', '"pieces": [[['), text.replace('"samples": 20', '"samples": 21')]
    for damaged in (b"\xff\xfe", b"{}", b"[]", text[:200].encode(), *(one.encode() for one in wrong)):
        (out / "shards.json").write_bytes(damaged)
        for options in ({}, {"overwrite": True}, {"resume": True}):
            line = said(spark, plan(root, out, **options), OutputExistsError)
            assert f"{out}/shards.json" in line
            assert line.endswith("Remove it, or name another place.")
    assert contents(out) == whole


def test_keys_buckets_and_endpoints_that_are_wrong_are_told_before_anything_is_listed(
    spark: SparkSession, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()  # which would be told first if it were listed first
    s3.make_bucket("faults")
    use(s3, monkeypatch, secret="wrong")
    line = said(spark, plan(tmp_path / "empty", "s3://faults/x"))
    assert f"Wanted s3://faults/x at {s3.endpoint}. Found: it refuses the keys" in line
    use(s3, monkeypatch)
    line = said(spark, plan(tmp_path / "empty", "s3://no-such-bucket/x"))
    assert "Found: no bucket 'no-such-bucket' there." in line
    line = said(spark, plan(tmp_path / "empty", "s3://faults/x", endpoint="http://127.0.0.1:9"))
    assert "Wanted s3://faults/x at http://127.0.0.1:9. Found: no answer. Is it up" in line


@pytest.mark.parametrize("place", ["folder", "s3"])
def test_no_shard_is_held_in_memory(s3: S3, tmp_path: Path, place: str) -> None:
    s3.make_bucket("faults")
    access = S3Access(s3.endpoint, s3.access_key, s3.secret_key)
    storage = Storage("s3://faults/large", access) if place == "s3" else Storage(tmp_path)
    picture = bytes(1_000_000)
    tracemalloc.start()
    try:
        with storage.create("a.tar") as write:
            writer = ShardWriter(write)
            for key in keys(0, 100, 100):
                writer.add(key, {"jpg": picture})
            row = writer.end("a.tar")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (storage.size("a.tar"), row.samples) == (row.bytes, 100)
    assert peak < 5 * PIECE_BYTES  # one is made, put together and sent


def test_an_endpoint_that_goes_away_in_mid_write(
    spark: SparkSession, root: Path, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with S3(tmp_path / "s3") as server:
        use(server, monkeypatch)
        server.make_bucket("faults")
        storage = Storage("s3://faults/set", S3Access(server.endpoint, server.access_key, server.secret_key))
        written = server.folder / "buckets" / "faults" / "set"

        def stop() -> None:
            await_it(lambda: list(written.glob("*.tar")), why="no shard came")
            server.stop()

        stopper = threading.Thread(target=stop)
        stopper.start()
        line = said(spark, plan(root, "s3://faults/set"))
        stopper.join()
        assert server.endpoint in line or "s3://faults/set" in line
        server.start(tied=True)
        assert not storage.exists("shards.json")
        assert job.run(spark, plan=plan(root, "s3://faults/set")).images == 20
        assert not storage.ask("list_multipart_uploads").get("Uploads")
        here = downloaded(storage, tmp_path / "here")
        checked(here, maxsize=MAXSIZE)
        assert contents(here) == whole


@pytest.fixture
def killed(root: Path, tmp_path: Path) -> Path:
    """What spark-submit leaves that is killed -9, with all its processes, once it has written a shard or two."""
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
        await_it(lambda: list(out.glob("*.done")) or process.poll() is not None, why="no shard was written")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    told = process.communicate(timeout=PATIENCE_S)[0]
    assert list(out.glob("*.done")), told[-4000:]
    assert not (out / "shards.json").exists()
    return out


def test_a_killed_run_goes_on_where_it_was(
    spark: SparkSession, root: Path, whole: dict[str, bytes], killed: Path
) -> None:
    done = {Path(file).stem: (killed / Path(file).stem).stat().st_mtime_ns for file in killed.glob("*.done")}
    (killed / f".{min(whole)[:8]}-000001.tar.0123").write_bytes(b"half of a shard")
    (killed / "0a1b2c3d-000000.tar").write_bytes(b"of another run")
    report = job.run(spark, plan=plan(root, killed, resume=True))
    assert report.images == 20
    assert report.remarks == [
        "shards that no manifest names lie there, too: 0a1b2c3d-*; remove them, unless their run is under way"
    ]
    (killed / "0a1b2c3d-000000.tar").unlink()
    checked(killed, maxsize=MAXSIZE)
    assert contents(killed) == whole
    assert {name: (killed / name).stat().st_mtime_ns for name in done} == done  # they were not written again
    (killed / "shards.json").unlink()
    job.run(spark, plan=plan(root, killed))  # and over what lies there, without a word
    assert contents(killed) == whole
    assert all((killed / name).stat().st_mtime_ns > at for name, at in done.items())


@pytest.mark.parametrize("seeds", [(1, 2), (1, 1)])
def test_of_two_runs_at_once_one_is_published_whole(
    spark: SparkSession, root: Path, tmp_path: Path, seeds: tuple[int, int]
) -> None:
    told: list[object] = []

    def run(seed: int) -> None:
        try:
            told.append(job.run(spark, plan=plan(root, tmp_path / "out", seed=seed)).fingerprint)
        except (EtlError, PySparkException) as error:
            told.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_whole(tmp_path / "out")
    manifest = manifest_of(tmp_path / "out")
    assert manifest.samples == 20
    assert manifest.fingerprint in told
    if seeds == (1, 1):
        checked(tmp_path / "out", maxsize=MAXSIZE)
    for one in told:
        assert isinstance(one, str) or "Wanted" in str(one)
