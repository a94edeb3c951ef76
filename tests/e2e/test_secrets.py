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
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack import jars
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.devstack.servers.s3 import S3
from jobs import ingest
from tests.support.access_checks import NAMES, authority, encryption_of, stranger
from tests.support.certificates import Authority, Certificate
from tests.support.services import fresh_name
from tests.support.trees import picture

__all__ = ["authority", "stranger"]  # fixtures

SECRET = fresh_name("guarded")  # other tests have passwords on their command lines
TOKEN = "canary-of-a-session-token"
SSL = "spark.cassandra.connection.ssl"
STORES = {f"{SSL}.{kind}Store.password": f"canary-of-a-{kind}-store" for kind in ("key", "trust")}

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
from jobs import featurize, ingest, split, verify
from jobs.command import execute
from etl.secrets import executor_storage, secrets_on_executors
from formats.stores.s3 import S3Access

plan, args = ingest.parse_args()
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
    tables = ["--data-table", "guarded.data", "--metadata-table", "guarded.metadata"]
    featurize.run(spark, plan=featurize.parse_args([*tables, "--features", "sharpness"])[0])
    split.run(spark, plan=split.parse_args([*tables, "-r", "2,1", "-o", os.environ["SPLITS"]])[0])
    assert verify.run(spark, plan=verify.parse_args(tables)[0]).left == 0
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
def client(authority: Authority) -> Certificate:
    return authority.issue("client")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, authority: Authority, client: Certificate) -> Iterator[Cassandra]:
    """A Cassandra that requires TLS, a client certificate and a password."""
    made = Cassandra(
        tmp_path_factory.mktemp("guarded"),
        auth=True,
        yaml=encryption_of(authority, authority.issue("server", names=NAMES)),
        tls=authority.client(client),
    )
    with made as server:
        with server.session() as cql:
            for role in ("writer", "reader"):
                cql.execute(f"CREATE ROLE {role} WITH PASSWORD = '{SECRET}' AND LOGIN = true")
            cql.execute("GRANT CREATE ON ALL KEYSPACES TO writer")  # who has all rights on what it creates
        yield server


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, authority: Authority, client: Certificate) -> dict[str, str]:
    """The settings of TLS, without passwords."""
    folder = tmp_path_factory.mktemp("stores")
    return {
        f"{SSL}.enabled": "true",
        f"{SSL}.trustStore.path": str(
            authority.trust_store(folder / "trust.p12", STORES[f"{SSL}.trustStore.password"])
        ),
        f"{SSL}.clientAuth.enabled": "true",
        f"{SSL}.keyStore.path": str(client.key_store(folder / "client.p12", STORES[f"{SSL}.keyStore.password"])),
    }


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
    guarded: Cassandra,
    s3: S3,
    pictures: str,
    tmp_path: Path,
    authority: Authority,
    client: Certificate,
    stores: dict[str, str],
) -> None:
    place = Place(tmp_path)
    (place.own / "probe.py").write_text(PROBE)
    conf = {
        "spark.cassandra.connection.port": str(guarded.port),
        "spark.cassandra.auth.username": "writer",
        "spark.cassandra.auth.password": SECRET,
        "spark.eventLog.rolling.enabled": "true",
        **stores,
        **STORES,
    }
    env = {
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        "AWS_SESSION_TOKEN": TOKEN,
        "AWS_ENDPOINT_URL": s3.endpoint,
        "SPLITS": str(place.own / "splits"),
    }
    secrets = {"password": SECRET, "key": s3.access_key, "secret": s3.secret_key, "token": TOKEN, **STORES}
    secrets["client's key"] = letters_of(client.key)
    tables = ["--data-table=guarded.data", "--metadata-table=guarded.metadata", "--split-subdir=train", "--json"]
    with place.watched(secrets) as seen:
        master = ("--master", "local-cluster[1,2,512]", "--verbose")
        line = place.submit(conf, env, *master, str(place.own / "probe.py"), pictures, *tables)
    assert json.loads(line)["images"] == 3
    assert '"spark.imagestrata.s3.secret.key":"*********(redacted)"' in place.events()
    assert list((place.traces / "spark" / "work").rglob("stderr"))  # executors with separate files
    assert seen | place.found(secrets) == set()
    with guarded.session() as cql:
        cql.execute("GRANT SELECT ON KEYSPACE guarded TO reader")
    access = loader.Access(
        username="reader", password=SECRET, ca=authority.ca, certificate=client.certificate, key=client.key
    )
    split = loader.open_split(place.own / "splits", cache=tmp_path / "cache")
    where = loader.Cluster(hosts=guarded.hosts, port=guarded.port, access=access)
    with loader.CassandraSource(split, cluster=where, batch_size=2) as source:
        assert sum(map(len, source.epoch(0))) == 2


def test_secrets_of_the_configuration_and_the_command_line_are_not_logged(
    guarded: Cassandra, s3: S3, pictures: str, tmp_path: Path, client: Certificate, stores: dict[str, str]
) -> None:
    place = Place(tmp_path)
    conf = {
        **stores,
        "spark.cassandra.connection.port": str(guarded.port),
        "spark.cassandra.auth.username": "writer",
        "spark.imagestrata.s3.endpoint": s3.endpoint,
        "spark.imagestrata.s3.access.key": s3.access_key,
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
        "spark.ui.enabled": "false",
    }
    typed = {"spark.cassandra.auth.password": SECRET, "spark.imagestrata.s3.secret.key": s3.secret_key, **STORES}
    env = {
        "AWS_ACCESS_KEY_ID": "canary-of-a-key",
        "AWS_SECRET_ACCESS_KEY": "canary-of-a-secret",
        "AWS_SESSION_TOKEN": TOKEN,
        "IMAGESTRATA_PASSWORD": "canary-of-the-loader",
    }
    secrets = {"key": s3.access_key, "client's key": letters_of(client.key), **env, **typed}
    given = [text for name, value in typed.items() for text in ("--conf", f"{name}={value}")]
    tables = ["--data-table=typed.data", "--metadata-table=typed.metadata", "--split-subdir=train", "--json"]
    line = place.submit(conf, env, "--master", "local[2]", "--verbose", *given, ingest.__file__, pictures, *tables)
    assert json.loads(line)["images"] == 3
    events = place.events()
    assert '"spark.imagestrata.s3.secret.key":"*********(redacted)"' in events
    assert {what for what, secret in secrets.items() if secret in events} == set()
    assert place.found(secrets) == set()


def test_what_a_cluster_refuses_is_reported_in_one_line_without_secrets(
    guarded: Cassandra, authority: Authority, stranger: Authority, client: Certificate
) -> None:
    texts = authority.ca.read_text(encoding="ascii"), client.certificate.read_text(encoding="ascii")
    key = client.key.read_text(encoding="ascii")
    cluster = Cluster(tuple(guarded.hosts), guarded.port, username="writer", tls=Tls(*texts))
    with pytest.raises(UnreachableError, match="refuses user 'writer'") as caught:
        Control(cluster, password="wrong-8", key=key).__enter__()
    assert "wrong-8" not in str(caught.value)
    with pytest.raises(UnreachableError, match=r"spark\.cassandra\.auth"):
        Control(replace(cluster, username=None), key=key).__enter__()
    false = stranger.ca.read_text(encoding="ascii")
    for tls, found in [
        (None, r"requires TLS \(spark\.cassandra\.connection\.ssl\.enabled\)"),
        (Tls(false, texts[1]), r"is its authority in .*trustStore\.path"),
        (Tls(texts[0]), r"requires a client certificate \(.*clientAuth\.enabled\)"),
    ]:
        with pytest.raises(UnreachableError, match=found) as caught:
            Control(replace(cluster, tls=tls), password=SECRET, key=key).__enter__()
        assert letters_of(client.key) not in str(caught.value)
