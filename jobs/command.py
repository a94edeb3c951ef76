"""How jobs run: the session, the exit code, the last line. pyspark is imported only when a job runs."""

import json
import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from etl.errors import EtlError, UnreachableError
from formats.errors import FormatsError
from formats.local_node import LocalNode
from schemas.errors import SchemaError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

HOST, PORT = "spark.cassandra.connection.host", "spark.cassandra.connection.port"

NO_JAVA = (
    "Wanted Spark to start on Java 17. Found: it did not start; its own messages are above. "
    f"JAVA_HOME is {os.environ.get('JAVA_HOME') or 'not set'}. Set it to a Java 17, or run `make setup` again."
)


NO_SPARK = "Wanted pyspark. Found: none. Install it: pip install 'imagestrata[spark]'"


class Report(Protocol):
    """What a job's ``run`` returns: a dataclass whose ``str`` is the last line for people."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


def execute(name: str, run: Callable[["SparkSession"], Report], *, as_json: bool, needs_cassandra: bool = True) -> int:
    """Start a session, run a job and print its last line.

    Args:
        name: The job's name in messages.
        run: Does the work; raises `EtlError` or `FormatsError`.
        as_json: Print the report as JSON.
        needs_cassandra: Print the cluster, and refuse to start if `imagestrata up` started it and it no longer runs.

    Returns:
        The exit code: 0 when the job is done; 1 when it failed, after one line on standard error that says why.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)  # our own messages have what matters of its failures
    try:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException
    except ImportError:
        return failed(name, NO_SPARK)
    try:
        spark, origin = _session(name, needs_cassandra=needs_cassandra)
    except (EtlError, FormatsError, SchemaError) as error:
        return failed(name, str(error))
    except (PySparkException, Py4JJavaError) as error:
        return failed(name, NO_JAVA if "JAVA_GATEWAY_EXITED" in str(error) else f"Spark failed. {_cause(error)}")
    try:
        if needs_cassandra:
            from etl.cassandra.cluster import Cluster

            print(f"cassandra: {Cluster.from_spark(spark)}{origin}", file=sys.stderr, flush=True)
        report = run(spark)
        print(json.dumps(asdict(report), ensure_ascii=False) if as_json else str(report), flush=True)
        return 0
    except (EtlError, FormatsError) as error:
        return failed(name, str(error))
    except (PySparkException, Py4JJavaError) as error:
        return failed(name, executor_error(str(error)) or f"Spark failed. {_cause(error)}")
    finally:
        spark.stop()


def _session(name: str, *, needs_cassandra: bool) -> tuple["SparkSession", str]:
    """A session that hides secrets in its logs, and where Cassandra's address comes from; the running session, if any.

    Raises `EtlError`.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from etl.secrets import HIDDEN, check_hidden

    if (running := SparkSession.getActiveSession()) is not None:
        return running, ""
    SparkContext._ensure_initialized()  # SparkConf() reads spark-defaults.conf only once the JVM runs
    conf = SparkConf().setAppName(name)
    for secret in HIDDEN:
        conf.setIfMissing(secret, "")
    check_hidden(conf)
    origin = locate(conf, LocalNode.find(), needs_cassandra=needs_cassandra)
    SparkContext.getOrCreate(conf)
    return SparkSession.builder.appName(name).getOrCreate(), origin


def locate(conf: "SparkConf", node: LocalNode | None, *, needs_cassandra: bool = True) -> str:
    """Set Cassandra's address if the configuration has none: that of the local node, else 127.0.0.1 port 9042.

    Args:
        conf: The configuration of a session to be started.
        node: The Cassandra that `imagestrata up` started in this checkout.
        needs_cassandra: Refuse a local node that has ended.

    Returns:
        The end of a line that names the address: where it comes from.

    Raises:
        UnreachableError: The local node has ended, or executors on other machines would not reach it.
    """
    if conf.get(HOST) or conf.get(PORT):
        conf.set(HOST, conf.get(HOST) or "127.0.0.1").set(PORT, conf.get(PORT) or "9042")
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
    return " (started by `imagestrata up` in this checkout)"


def failed(name: str, message: str) -> int:
    """Print one line that says why a job failed; returns the exit code."""
    print(f"{name}: {message}", file=sys.stderr, flush=True)
    return 1


def executor_error(text: str) -> str | None:
    """Our own message in the traces of an error that an executor raised; None if there is none."""
    found = re.findall(r"^(?:etl|formats|schemas)\.errors\.\w+: (.+)$", text, re.MULTILINE)
    return found[-1] if found else None


def _cause(error: Exception) -> str:
    """The innermost cause of one of Spark's own errors, as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return f"Found: {(causes or lines or [type(error).__name__])[-1 if causes else 0]}"
