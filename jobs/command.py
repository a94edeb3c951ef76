"""How jobs run: the session and the last line. pyspark is imported only when a job runs."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from etl.errors import EtlError, UnreachableError
from etl.spark_process import interrupted_afterwards, spark_conf, stopping
from formats import logs
from formats.local_node import LocalNode
from jobs.flows import events_of
from jobs.messages import not_installed, spark_error
from jobs.metrics import NOT_SERVED, MetricsOptions, job_metrics

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

HOST, PORT = "spark.cassandra.connection.host", "spark.cassandra.connection.port"
USER = "spark.cassandra.auth.username"


class Report(Protocol):
    """What a job's ``run`` returns: a dataclass whose ``str`` is the last line for people."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


R = TypeVar("R", bound=Report)


def execute(
    name: str,
    work: Callable[..., R],
    plan: object,
    *,
    as_json: bool,
    metrics: MetricsOptions = NOT_SERVED,
    needs_cassandra: bool = True,
    has_events: bool = True,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> R:
    """Start a session, run ``work(spark, plan=plan)``, print the last line, and return the report. With
    ``needs_cassandra``, the cluster is printed, and a cluster that `imagestrata up` started must run. ``has_events``
    sends OpenLineage events. ``metrics`` says where metrics are served. ``settings`` are those of a new session. Raises
    `EtlError` if Spark fails or a library is missing, or as ``work`` does.
    """
    for library in ("py4j", "cassandra", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # our own messages have what matters of failures
    with logs.on_stderr(name, level=logging.INFO), _explained_failures():
        with interrupted_afterwards():
            spark, origin = _session(name, needs_cassandra=needs_cassandra, settings=settings)
        with job_metrics(spark, name=name, options=metrics) as watched, stopping(spark), watched:
            if needs_cassandra:
                from etl.cassandra.cluster import Cluster

                logs.tell(f"cassandra: {Cluster.from_spark(spark)}{origin}")
            with events_of(spark, name=name.removesuffix(".py"), plan=plan if has_events else None) as events:
                report = work(spark, plan=plan)
                watched.finish(report)
                events.complete(report)
    # After Spark has stopped, which may log: the result is the last line.
    print(_as_json(report) if as_json else str(report), flush=True)
    return report


def _as_json(report: Report) -> str:
    """The report, with the run id of the log; ``run`` and ``run_id`` of reports are runs of tables."""
    return json.dumps({**asdict(report), "log_run": logs.run_id()}, ensure_ascii=False)


@contextmanager
def _explained_failures() -> Iterator[None]:
    """Turn errors of Spark, and missing libraries of its extra, into an `EtlError` for the user."""
    try:
        import pyspark.errors
        from py4j.protocol import Py4JJavaError
    except ModuleNotFoundError as error:
        raise EtlError(not_installed(error)) from error
    try:
        yield
    except ModuleNotFoundError as error:  # the user's own Spark, without the extra's other libraries
        raise EtlError(not_installed(error)) from error
    except (pyspark.errors.PySparkException, Py4JJavaError) as error:
        raise EtlError(spark_error(error)) from error


def _session(name: str, *, needs_cassandra: bool, settings: Mapping[str, str]) -> tuple["SparkSession", str]:
    """A session that hides secrets in its logs, and where Cassandra's address comes from; the running session, if any.
    Raises `EtlError`.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from etl.secrets import HIDDEN, check_hidden

    if (running := SparkSession.getActiveSession()) is not None:
        return running, ""
    conf = spark_conf().setAppName(name).setAll([*settings.items()])
    for secret in HIDDEN:
        conf.setIfMissing(secret, "")
    origin = locate(conf, LocalNode.find(), needs_cassandra=needs_cassandra)
    check_hidden(conf)
    SparkContext.getOrCreate(conf)
    return SparkSession.builder.appName(name).getOrCreate(), origin


def locate(conf: "SparkConf", node: LocalNode | None, *, needs_cassandra: bool = True) -> str:
    """Set Cassandra's address if the configuration has none: that of the local node, else 127.0.0.1 port 9042. The
    local node's access is set, too, unless the configuration has one. Returns the end of a line that names the address:
    where it comes from. Raises `UnreachableError` if the local node has ended, or executors on other machines would not
    reach it, and `FormatsError` if its access cannot be read.
    """
    from etl.tls import BUNDLE

    if conf.get(BUNDLE):  # it names the hosts, and has certificates
        return " (from Spark's configuration)"
    if conf.get(HOST) or conf.get(PORT):
        conf.set(HOST, conf.get(HOST) or "127.0.0.1").set(PORT, conf.get(PORT) or "9042")
        _grant(conf, node)
        return " (from Spark's configuration)"
    if node is None:
        conf.set(HOST, "127.0.0.1").set(PORT, "9042")
        return " (default)"
    master = str(conf.get("spark.master", "local[*]"))
    if needs_cassandra and not master.startswith("local"):
        raise UnreachableError(
            f"Wanted {HOST} for executors of {master}. Found: not set, and `imagestrata up` serves only this machine."
        )
    if needs_cassandra and not node.is_running:
        raise UnreachableError(node.not_running(HOST))
    conf.set(HOST, ",".join(node.hosts)).set(PORT, str(node.port))
    _grant(conf, node)
    return " (started by `imagestrata up`)"


def _grant(conf: "SparkConf", node: LocalNode | None) -> None:
    """Set the access that the local node requires, if the configuration has its address and no access."""
    from etl.py4j_log import unlogged
    from etl.tls import ENABLED

    hosts, port = str(conf.get(HOST)).split(","), str(conf.get(PORT))
    is_there = node is not None and port == str(node.port) and {*hosts} <= {*node.hosts}
    if node is not None and is_there and not (conf.get(USER) or conf.get(ENABLED)):
        with unlogged():
            conf.setAll([*node.properties.items()])
