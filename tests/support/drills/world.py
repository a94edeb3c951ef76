"""The servers of the drills, the images, and what ran before."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cassandra import ConsistencyLevel, InvalidRequest, ReadFailure
from cassandra.query import SimpleStatement

from formats.local_node import variables_in
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.devstack.servers.s3 import S3
from imagestrata.devstack.servers.spark import Spark
from tests.support import spark_start
from tests.support.drills.proxy import FaultyProxy
from tests.support.pictures import texture
from tests.support.trees import plant

ROOT = Path(__file__).resolve().parents[3]
CLASSES = ("ant", "bee", "cow", "doe")
_SMALL_MIB = 1024  # of the disk of the last node, which the drills fill up


@dataclass
class World:
    """The servers, and the images that the tables of a keyspace must have: paths, with SHA-256 and class number."""

    folder: Path
    server: Cassandra
    spark: Spark
    s3: S3
    proxy: FaultyProxy  # to the first node
    tree: Path
    images: dict[str, tuple[str, int]]
    conf: dict[str, str] = field(default_factory=dict)  # further properties of the jobs of a drill
    number: int = 0  # of the ingest
    source: str = ""  # of the ingest: the tree, or its copy in S3
    place: tuple[str, int] | None = None  # where epochs read, if not from the nodes
    features: dict[bytes, float] = field(default_factory=dict)  # the values of an undisturbed run

    @property
    def keyspace(self) -> str:
        """The keyspace of the newest ingest."""
        return f"drill{self.number}"

    @property
    def tables(self) -> list[str]:
        """The options of jobs that name its tables."""
        return ["-d", f"{self.keyspace}.data", "-m", f"{self.keyspace}.metadata"]

    def submit(self, name: str, *options: str) -> "subprocess.Popen[str]":
        """Start a job on the Spark cluster as users do, in its own process group."""
        conf = [text for one, value in self.conf.items() for text in ("--conf", f"{one}={value}")]
        program = str(Path(sys.executable).with_name("spark-submit"))
        command = [program, "--properties-file", str(self.spark.submit_conf), *conf, str(ROOT / "jobs" / f"{name}.py")]
        return self._launch([*command, *options], {})

    def start(self, command: Sequence[str]) -> "subprocess.Popen[str]":
        """Start a program that reads, in its own process group."""
        access = self.server.access
        return self._launch(command, {} if access is None else variables_in(access / "reader.env"))

    def _launch(self, command: Sequence[str], variables: Mapping[str, str]) -> "subprocess.Popen[str]":
        """Start a program with the keys of the S3 server; its output goes to a pipe."""
        keys = {
            "AWS_ENDPOINT_URL": self.s3.endpoint,
            "AWS_ACCESS_KEY_ID": self.s3.access_key,
            "AWS_SECRET_ACCESS_KEY": self.s3.secret_key,
            "PYTHONPATH": str(ROOT),
        }
        return subprocess.Popen(
            command, cwd=self.folder, env={**os.environ, **keys, **variables}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """The rows of a query, which a quorum of the nodes has."""
        statement = SimpleStatement(query, fetch_size=50, consistency_level=ConsistencyLevel.QUORUM)
        end = time.monotonic() + 60  # so long may a node take that was stopped while tables were made
        with self.server.session() as cql:
            while True:
                try:
                    return [tuple(row) for row in cql.execute(statement)]
                except (ReadFailure, InvalidRequest):
                    if time.monotonic() > end:
                        raise
                time.sleep(1)  # the node tells nobody when it has learned of them

    def restore(self) -> None:
        """Start whatever does not run."""
        self.server.start(tied=True)
        if not self.s3.is_up():
            self.s3.start(tied=True)
        for name in self.spark.names:
            if self.spark.pid(name) is None:
                self.spark.start_process(name, tied=True)
        self.spark.start(settings=settings_of(self.server), tied=True)


def settings_of(server: Cassandra) -> dict[str, str]:
    """The properties of jobs that name a Cassandra."""
    return {
        **server.spark_properties,
        **spark_start.executors("-XX:+UseSerialGC -XX:TieredStopAtLevel=1"),  # they live for seconds
        "spark.executor.memory": "768m",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "4",
    }


def end_group(process: "subprocess.Popen[str]") -> None:
    """Kill a program with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def sources(folder: Path, images: int) -> dict[str, tuple[str, int]]:
    """Write a tree of images; returns their SHA-256 and class number by path."""
    files = {f"{CLASSES[one % len(CLASSES)]}/{one}.png": texture(one, width=96, height=96) for one in range(images)}
    plant(folder, files)
    return {
        path: (hashlib.sha256(data).hexdigest(), CLASSES.index(path.partition("/")[0])) for path, data in files.items()
    }


@contextmanager
def world(folder: Path, *, images: int, secure: bool = False) -> Iterator[World]:
    """Start three nodes, the last one on a small disk if this user may mount one, Spark, and S3. ``secure`` nodes
    require TLS, certificates and passwords: jobs have the role writer, epochs the role reader.
    """
    tree = folder / "tree"
    known = sources(tree, images)
    with ExitStack() as stack:
        small = folder / "cassandra" / "node3"
        small.mkdir(parents=True)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SMALL_MIB}m", "tmpfs", small], check=False)
        if mounted.returncode == 0:
            stack.callback(lambda: subprocess.run(["umount", "-l", small], check=False))
        yaml = {"commitlog_total_space": "256MiB"}
        quick = ["-XX:TieredStopAtLevel=1"]  # faults start nodes anew, which live for a minute
        server = Cassandra(folder / "cassandra", nodes=3, secure=secure, heap_mb=384, yaml=yaml, options=quick)
        stack.enter_context(server)
        s3 = stack.enter_context(S3(folder / "s3"))
        s3.make_bucket("drills")
        storage = Storage("s3://drills/tree", S3Access(s3.endpoint, s3.access_key, s3.secret_key))
        for path in known:
            storage.write_bytes(path, (tree / path).read_bytes())
        spark = Spark(folder / "spark", workers=2, cores=1, memory_mb=1024)
        stack.callback(spark.stop)
        spark.start(settings=settings_of(server), tied=True)
        proxy = stack.enter_context(FaultyProxy(server.port))
        yield World(folder, server, spark, s3, proxy, tree, known)


def ended(process: "subprocess.Popen[str]", *, seconds: float) -> tuple[int | None, str]:
    """Wait for a program: its exit code, or None if it had to be killed, and its output."""
    try:
        said = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        end_group(process)
        return None, process.communicate()[0]
    return process.returncode, said


def environment_of(values: Mapping[str, str]) -> dict[str, str]:
    """Properties that set variables of the executors' Python."""
    return {f"spark.executorEnv.{name}": value for name, value in values.items()}
