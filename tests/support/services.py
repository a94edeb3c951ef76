"""The services of a test run, as fixtures: one Cassandra and one S3 server for all tests, and Spark sessions.

The first process that needs a server starts it, others use it too, and the last one ends it. Each test uses a keyspace,
a bucket or a folder of its own.
"""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from filelock import FileLock

from imagestrata.devstack.servers import processes
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.devstack.servers.s3 import S3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl.cassandra.control import Control
    from tests.support.trees import PlanOf

Server = TypeVar("Server", Cassandra, S3)

__all__ = ["cassandra", "control", "keyspace", "plan_of", "s3", "spark"]


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """A Cassandra of one node on free ports: `cassandra.hosts`, `cassandra.port`."""
    # Tests create tables by the hundred. A node that is never restarted need not write the schema to files each time.
    options = ["-Dcassandra.test.flush_local_schema_changes=false"]
    folder = _folder_of_the_run(tmp_path_factory) / "cassandra"
    # Nobody kills it, so no write must wait until it is on the disk. Spark sends a query for each token. A heap of
    # 512 MB is full with 1,000 tables.
    settings = {"commitlog_sync": "periodic", "commitlog_sync_period": "10s", "num_tokens": 1}
    with shared(Cassandra(folder, heap_mb=1024, yaml=settings, options=options)) as server:
        yield server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """An S3 server with random keys on a free port: `s3.endpoint`, `s3.access_key`, `s3.secret_key`."""
    with shared(S3(_folder_of_the_run(tmp_path_factory) / "s3")) as server:
        yield server


@pytest.fixture(scope="session")
def spark(cassandra: Cassandra) -> Iterator["SparkSession"]:
    """A session on two cores that retries failed tasks, pointed at the fixture's Cassandra."""
    from pyspark.sql import SparkSession

    from etl.secrets import HIDDEN

    session = (
        SparkSession.builder.master("local[2,3]")
        .appName("tests")
        .config("spark.cassandra.connection.host", ",".join(cassandra.hosts))
        .config("spark.cassandra.connection.port", cassandra.port)
        .config(map=HIDDEN)
        # A fourteenth less CPU time than with the usual G1, and a twentieth less without the slow compiler.
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")  # as many as cores: four cost a twentieth more CPU time
        # Expressions over a few rows run faster interpreted; submitted jobs compile theirs.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        # Spark would note the line of the program for each expression, by several calls into the JVM.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .getOrCreate()
    )
    # pyspark looks for these classes in hundreds of jars each time that an expression is built.
    jvm: Any = session.sparkContext._jvm
    for name in ("functions", "PythonUtils"):
        setattr(jvm, name, getattr(jvm, name))
    java = session.sparkContext._gateway.proc
    yield session
    session.stop()
    java.stdin.close()  # ends it and waits, so that its CPU time counts for this run
    java.wait(timeout=60)


@pytest.fixture
def control(spark: "SparkSession") -> Iterator["Control"]:
    """A connection to the fixture's Cassandra."""
    from etl.cassandra.control import Control

    with Control.from_spark(spark) as control:
        yield control


@pytest.fixture
def keyspace() -> str:
    """A keyspace or bucket name that nobody else uses."""
    return fresh_name("test")


@pytest.fixture
def plan_of() -> "PlanOf":
    """A maker of plans that write to separate tables for each test."""
    from tests.support.trees import plan_maker  # imports Spark

    return plan_maker()


def fresh_name(prefix: str) -> str:
    """A name that no other test and no other run uses, of letters and digits, for a keyspace or a bucket."""
    return f"{prefix}{uuid.uuid4().hex[:12]}"


@contextmanager
def shared(server: Server) -> Iterator[Server]:
    """A running server that the processes of a test run share. The process that started it ends it after all others."""
    users = server.folder.with_name(f"{server.folder.name}.users")
    users.mkdir(parents=True, exist_ok=True)
    lock, mine = FileLock(users.with_suffix(".lock")), users / fresh_name("user")  # a process may share several
    with lock:
        is_ours = server.start(tied=True)  # it ends with this process in any case
        processes.remember(os.getpid(), mine)
    try:
        yield server
    finally:
        mine.unlink()
        while is_ours:
            with lock:
                if not any(processes.recall(user) for user in users.iterdir()):
                    server.clean()
                    is_ours = False
            time.sleep(0.1)


def _folder_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run use: pytest gives each process one below it."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "services"
