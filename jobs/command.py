"""How the jobs run: the session, exit codes, the last line."""

import json
import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, ClassVar, Protocol

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from etl.errors import EtlError
from etl.secrets import HIDDEN, check_hidden
from formats.errors import FormatsError

NO_JAVA = (
    "Wanted Spark to start, on a Java 17. Found: it did not; its own words are above. "
    f"JAVA_HOME is {os.environ.get('JAVA_HOME') or 'not set'}. Set it to a Java 17, or run `make setup` again."
)


class Report(Protocol):
    """What a job's ``run`` returns: a dataclass whose ``str`` is the last line for people."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


def execute(name: str, run: Callable[[SparkSession], Report], *, as_json: bool) -> int:
    """Make the session, run the job, print its last line; returns the exit code.

    0: done. 1: failed, with one line on standard error that says why.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)  # what matters of its failures is in our own message
    try:
        spark = _session(name)
    except (EtlError, FormatsError) as error:
        return failed(name, str(error))
    except (PySparkException, Py4JJavaError) as error:
        return failed(name, NO_JAVA if "JAVA_GATEWAY_EXITED" in str(error) else f"Spark failed. {_cause(error)}")
    try:
        report = run(spark)
        print(json.dumps(asdict(report), ensure_ascii=False) if as_json else str(report), flush=True)
        return 0
    except (EtlError, FormatsError) as error:
        return failed(name, str(error))
    except (PySparkException, Py4JJavaError) as error:
        return failed(name, executor_error(str(error)) or f"Spark failed. {_cause(error)}")
    finally:
        spark.stop()


def _session(name: str) -> SparkSession:
    """The session that runs, or a new one that hides secrets in its logs. Raises `EtlError` if it would not."""
    SparkContext._ensure_initialized()  # without its JVM, SparkConf() knows nothing of spark-defaults.conf
    conf = SparkConf().setAppName(name)
    for secret in HIDDEN:
        conf.setIfMissing(secret, "")
    check_hidden(conf)
    SparkContext.getOrCreate(conf)
    return SparkSession.builder.appName(name).getOrCreate()


def failed(name: str, message: str) -> int:
    """Say in one line why a job failed; returns the exit code."""
    print(f"{name}: {message}", file=sys.stderr, flush=True)
    return 1


def executor_error(text: str) -> str | None:
    """Our own message out of the traces of an error that was raised on an executor."""
    found = re.findall(r"^(?:etl|formats|schemas)\.errors\.\w+: (.+)$", text, re.MULTILINE)
    return found[-1] if found else None


def _cause(error: PySparkException | Py4JJavaError) -> str:
    """One line of an error of Spark's own: its innermost cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return f"Found: {(causes or lines or [type(error).__name__])[-1 if causes else 0]}"
