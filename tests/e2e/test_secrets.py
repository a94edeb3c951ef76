"""Jobs that read S3 and write to a Cassandra with TLS, client certificates and a password: they show no secret in logs,
pages, files or command lines.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

import loader
from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.errors import UnreachableError
from etl.tls import Tls
from formats import local_node
from formats.local_node import LocalNode
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack import jars
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.devstack.servers.s3 import S3
from jobs import ingest
from tests.support import spark_start
from tests.support.certificates import Authority
from tests.support.services import fresh_name
from tests.support.trees import picture

TOKEN = "canary-of-a-session-token"
DEBUG = """
rootLogger.level = debug
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""

PROBE = """
import hashlib, os, sys, urllib.request
from pathlib import Path
from formats import local_node
from jobs import cache_rows, delete, featurize, ingest, relabel, shard, split, verify
from jobs.command import execute
from etl.secrets import executor_storage, secrets_on_executors
from formats.stores.s3 import S3Access

plan, args = ingest.parse_args()
out = os.environ["OUT"]
local_node.PLACE = Path(os.environ["NODE"])
Path(out, "labels.csv").write_text("path,label\\ntrain/a/1.png,b\\n")
token = os.environ.pop("AWS_SESSION_TOKEN")  # the server takes none

def digests(_):
    access = executor_storage("s3://bucket/x")._access
    return [hashlib.sha256(value.encode()).hexdigest() for value in (access.key, access.secret, access.token)]

def in_batches(batches):
    import pyarrow as pa
    for _ in batches:
        yield pa.record_batch([pa.array(digests(0))], names=["digest"])

def run(spark, *, plan):
    report = ingest.run(spark, plan=plan)
    both = ["-d", "guarded.data", "-m", "guarded.metadata"]
    for job, arguments in [
        (featurize, ["--features", "sharpness"]),
        (relabel, [f"{out}/labels.csv"]),
        (split, ["-r", "2,1", "--seed", "1", "-o", f"{out}/splits"]),
        (shard, ["--split", f"{out}/splits", "-o", f"{out}/shards"]),
        (cache_rows, ["--rows-fn", f"{out}/rows"]),
        (verify, []),
        (delete, ["--where", "path = 'c/1.png'", "--reason", "a test", "--count", "1"]),
    ]:
        print(job.__name__, job.run(spark, plan=job.parse_args([*both, *arguments])[0]))
    os.environ["AWS_SESSION_TOKEN"] = token
    found = S3Access.from_environment()
    wanted = [hashlib.sha256(value.encode()).hexdigest() for value in (found.key, found.secret, found.token)]
    with secrets_on_executors(spark):
        assert spark.sparkContext.parallelize([1], 1).flatMap(digests).collect() == wanted
        frame = spark.range(1).mapInArrow(in_batches, "digest STRING")
        frame.explain("extended")
        assert [row.digest for row in frame.collect()] == wanted
    root, api = spark.sparkContext.uiWebUrl, f"api/v1/applications/{spark.sparkContext.applicationId}"
    for page in ("environment/", "jobs/", "SQL/", f"{api}/environment"):
        with urllib.request.urlopen(f"{root}/{page}", timeout=60) as answer:
            print(answer.read().decode())
    return report

execute("probe.py", run, plan, as_json=True, has_events=False)
"""
"""An ingest, then tasks that report digests of the keys they have. Pages and plans go to the log."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """A Cassandra that requires TLS, client certificates and passwords of roles."""
    with Cassandra(tmp_path_factory.mktemp("guarded"), secure=True) as server:
        yield server


def files_of(server: Cassandra) -> Path:
    assert server.access is not None
    return server.access


def secrets_of(server: Cassandra) -> dict[str, str]:
    """The writer's secrets, as Spark's properties, and a part of its key."""
    found = LocalNode.find(server.folder / "node.json")
    assert found is not None
    secret = {name: value for name, value in found.properties.items() if "password" in name}
    assert len(secret) == 3
    return {**secret, "client's key": letters_of(files_of(server) / "writer.key")}


def letters_of(key: Path) -> str:
    """A line in the middle of a key, as it is in any file of it in PEM."""
    lines = key.read_text(encoding="ascii").splitlines()
    return lines[len(lines) // 2]


@pytest.fixture(scope="module")
def pictures(s3: S3) -> str:
    """Three images on S3."""
    s3.make_bucket(bucket := fresh_name("bucket"))
    storage = Storage(f"s3://{bucket}", S3Access(s3.endpoint, s3.access_key, s3.secret_key))
    for number, name in enumerate("abc"):
        storage.write_bytes(f"set/train/{name}/1.png", picture(number))
    return f"s3://{bucket}/set"


class Place:
    """The folders of one submission: ``traces`` for all that Spark writes, ``own`` for the test."""

    def __init__(self, folder: Path) -> None:
        self.traces, self.own = folder / "traces", folder / "own"
        for name in ("events", "local", "tmp", "spark"):
            (self.traces / name).mkdir(parents=True)
        self.own.mkdir()
        for path in Path(pyspark.__file__).parent.iterdir():  # a separate Spark, because its workers write below it
            (self.traces / "spark" / path.name).symlink_to(path)
        (self.own / "log4j2.properties").write_text(DEBUG)

    def submit(self, conf: Mapping[str, str], env: Mapping[str, str], *command: str) -> str:
        """Run a job at Spark's level DEBUG and return its last line. ``conf`` is written to a defaults file."""
        log = f"-Dlog4j2.configurationFile=file:{self.own}/log4j2.properties -Djava.io.tmpdir={self.traces}/tmp"
        lines = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{self.traces}/events",
            "spark.driver.extraJavaOptions": log,
            "spark.executor.extraJavaOptions": log,
            "spark.executor.memory": "512m",
            "spark.logConf": "true",
            "spark.sql.shuffle.partitions": "2",  # each task writes much at this level
            **spark_start.INTERPRETED,
            "spark.jars": ",".join(path.as_uri() for path in jars.connector(Path(pyspark.__file__).parents[1])),
            **conf,
        }
        (self.own / "defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        folders = {
            "SPARK_HOME": str(self.traces / "spark"),
            "SPARK_LOCAL_DIRS": str(self.traces / "local"),
            "TMPDIR": str(self.traces / "tmp"),
        }
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        program = str(Path(sys.executable).with_name("spark-submit"))
        with open(self.traces / "out", "w+") as out, open(self.traces / "err", "w+") as err:
            done = subprocess.run(
                [program, "--properties-file", str(self.own / "defaults.conf"), *command],
                env={**clean, **folders, **env},
                cwd=self.traces,
                stdout=out,
                stderr=err,
                timeout=500,
            )
            out.seek(0), err.seek(0)
            assert done.returncode == 0, err.read()[-3000:]
            return out.read().splitlines()[-1]

    def events(self) -> str:
        """The decompressed event log."""
        files = [path for path in (self.traces / "events").rglob("*") if "-" in path.name and path.is_file()]
        text = b""
        for path in files:
            if path.suffix == ".zstd":
                with pa.input_stream(str(path), compression="zstd") as stream:
                    text += stream.read()
            else:
                text += path.read_bytes()
        return text.decode()

    def found(self, secrets: Mapping[str, str]) -> set[str]:
        """Which secrets are in files, and where."""
        paths = [Path(folder, name) for folder, _, names in os.walk(self.traces) for name in names]
        return {
            f"{what} in {path.relative_to(self.traces)}"
            for path in paths
            for what, secret in secrets.items()
            if secret.encode() in _bytes(path)
        }

    @contextmanager
    def watched(self, secrets: Mapping[str, str]) -> Iterator[set[str]]:
        """Secrets that are visible while the block runs: in files, even short-lived ones, and on command lines."""
        seen, is_over = set[str](), threading.Event()

        def watch() -> None:
            while not is_over.wait(0.5):
                seen.update(self.found(secrets))
                for path in Path("/proc").glob("[0-9]*/cmdline"):
                    line = _bytes(path)
                    seen.update(
                        f"{what} on a command line" for what, secret in secrets.items() if secret.encode() in line
                    )

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield seen
        finally:
            is_over.set()
            watcher.join()


def _bytes(path: Path) -> bytes:
    with suppress(OSError):  # the file is gone
        return path.read_bytes()
    return b""


def test_secrets_reach_executors_and_leave_no_trace(
    guarded: Cassandra, s3: S3, pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    (place.own / "probe.py").write_text(PROBE)
    env = {
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        "AWS_SESSION_TOKEN": TOKEN,
        "AWS_ENDPOINT_URL": s3.endpoint,
        "NODE": str(guarded.folder / "node.json"),
        "OUT": str(place.own),
    }
    secrets = {"key": s3.access_key, "secret": s3.secret_key, "token": TOKEN, **secrets_of(guarded)}
    tables = ["--data-table=guarded.data", "--metadata-table=guarded.metadata", "--split-subdir=train", "--json"]
    with place.watched(secrets) as seen:
        master = ("--master", "local-cluster[1,2,512]", "--verbose")
        line = place.submit(
            {"spark.eventLog.rolling.enabled": "true"}, env, *master, str(place.own / "probe.py"), pictures, *tables
        )
    assert json.loads(line)["images"] == 3
    assert '"spark.imagestrata.s3.secret.key":"*********(redacted)"' in place.events()
    assert list((place.traces / "spark" / "work").rglob("stderr"))  # executors with separate files
    assert seen | place.found(secrets) == set()
    monkeypatch.setattr(local_node, "PLACE", guarded.folder / "node.json")
    assert loader.Cluster().access.username == "reader"
    images = 0
    for index in range(2):
        split = loader.open_split(place.own / "splits", index=index, cache=tmp_path / "cache")
        with loader.CassandraSource(split, batch_size=2, on_missing="skip") as source:
            images += sum(map(len, source.epoch(0)))
    assert images == 3 - 1  # one was deleted


def test_secrets_of_the_configuration_and_the_command_line_are_not_logged(
    guarded: Cassandra, s3: S3, pictures: str, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    ssl = "spark.cassandra.connection.ssl"
    conf = {
        "spark.cassandra.connection.port": str(guarded.port),
        "spark.cassandra.auth.username": "writer",
        f"{ssl}.enabled": "true",
        f"{ssl}.trustStore.path": str(files_of(guarded) / "authority.p12"),
        f"{ssl}.clientAuth.enabled": "true",
        f"{ssl}.keyStore.path": str(files_of(guarded) / "writer.p12"),
        "spark.imagestrata.s3.endpoint": s3.endpoint,
        "spark.imagestrata.s3.access.key": s3.access_key,
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
        "spark.ui.enabled": "false",
    }
    letters = secrets_of(guarded).pop("client's key")
    typed = {"spark.imagestrata.s3.secret.key": s3.secret_key, **secrets_of(guarded)}
    del typed["client's key"]
    env = {
        "AWS_ACCESS_KEY_ID": "canary-of-a-key",
        "AWS_SECRET_ACCESS_KEY": "canary-of-a-secret",
        "AWS_SESSION_TOKEN": TOKEN,
        "IMAGESTRATA_PASSWORD": "canary-of-the-loader",
    }
    secrets = {"key": s3.access_key, "client's key": letters, **env, **typed}
    given = [text for name, value in typed.items() for text in ("--conf", f"{name}={value}")]
    tables = ["--data-table=typed.data", "--metadata-table=typed.metadata", "--split-subdir=train", "--json"]
    line = place.submit(conf, env, "--master", "local[2]", "--verbose", *given, ingest.__file__, pictures, *tables)
    assert json.loads(line)["images"] == 3
    events = place.events()
    assert '"spark.imagestrata.s3.secret.key":"*********(redacted)"' in events
    assert {what for what, secret in secrets.items() if secret in events} == set()
    assert place.found(secrets) == set()


def test_what_a_cluster_refuses_is_reported_in_one_line_without_secrets(guarded: Cassandra, tmp_path: Path) -> None:
    folder = files_of(guarded)
    texts = [(folder / name).read_text(encoding="ascii") for name in ("authority.pem", "writer.pem", "writer.key")]
    tls, key = Tls(*texts[:2]), texts[2]
    cluster = Cluster(tuple(guarded.hosts), guarded.port, username="writer", tls=tls)
    with pytest.raises(UnreachableError, match="refuses user 'writer'") as caught:
        Control(cluster, password="wrong-8", tls=tls.context(key)).__enter__()
    assert "wrong-8" not in str(caught.value)
    with pytest.raises(UnreachableError, match=r"spark\.cassandra\.auth"):
        Control(replace(cluster, username=None), tls=tls.context(key)).__enter__()
    false = Authority(tmp_path / "stranger").ca.read_text(encoding="ascii")
    for other, found in [
        (None, r"requires TLS \(spark\.cassandra\.connection\.ssl\.enabled, or"),
        (Tls(false, texts[1]), r"is its authority in .*trustStore\.path"),
        (Tls(texts[0]), r"requires a client certificate \(.*clientAuth\.enabled, or"),
    ]:
        password = secrets_of(guarded)["spark.cassandra.auth.password"]
        with pytest.raises(UnreachableError, match=found) as caught:
            context = None if other is None else other.context(key)
            Control(replace(cluster, tls=other), password=password, tls=context).__enter__()
        assert letters_of(folder / "writer.key") not in str(caught.value)
