"""Fixtures: real services, started once a test run for those who ask."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession
from trees import PlanOf, plan_maker

from devstack.cassandra import Cassandra
from devstack.s3 import S3
from etl.cassandra import Control

# How long an example takes says how busy the machine is, not whether it is right.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")

# Every Java that tests start, Spark's and Cassandra's, compiles quickly rather than well: none of them lasts.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# A shell has what it runs in the background ignore Ctrl-C; what tests start, and interrupt, would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take minutes come first, so that no process is left alone with one at the end."""
    items.sort(key=lambda item: item.path.name not in ("test_readme.py", "test_train.py"))


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """A fresh Cassandra of one node on free ports: `cassandra.hosts`, `cassandra.port`; ended after the last test."""
    with Cassandra(tmp_path_factory.mktemp("cassandra")) as server:
        yield server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A fresh S3 server with random keys on a free port: `s3.endpoint`, `s3.access_key`, `s3.secret_key`."""
    with S3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def spark(cassandra: Cassandra) -> Iterator[SparkSession]:
    """A session on two cores that tries a failed task again, pointed at the fixture's Cassandra."""
    session = (
        SparkSession.builder.master("local[2,3]")
        .appName("tests")
        .config("spark.cassandra.connection.host", ",".join(cassandra.hosts))
        .config("spark.cassandra.connection.port", cassandra.port)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        # Expressions of a few rows are interpreted sooner than compiled; jobs that are submitted compile theirs.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def control(spark: SparkSession) -> Iterator[Control]:
    """A connection to the fixture's Cassandra."""
    with Control.from_spark(spark) as control:
        yield control


@pytest.fixture
def plan_of() -> PlanOf:
    """Makes plans that write to a keyspace of this test's own."""
    return plan_maker()
