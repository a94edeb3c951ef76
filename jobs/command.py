"""What the jobs' command lines share: defaults from Spark's configuration, the session, exit codes, the last line."""

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict
from typing import Any, ClassVar, Protocol

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from etl.errors import EtlError
from etl.secrets import HIDDEN, check_hidden
from formats.errors import FormatsError

PREFIX = "spark.imagestrata."
PAIR = ("data_table", "metadata_table")
"""The two tables of one ingest: both are typed, or both come from Spark's configuration."""
_LISTS = {"split_subdir"}
"""Options whose configured value is a list with commas."""

_NO_JAVA = (
    "Wanted Spark to start, on a Java 17. Found: it did not; its own words are above. "
    f"JAVA_HOME is {os.environ.get('JAVA_HOME') or 'not set'}. Set it to a Java 17, or run `make setup` again."
)


class Report(Protocol):
    """What a job's ``run`` returns: a dataclass whose ``str`` is the last line for people."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


def parse(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    *,
    needed: Callable[[argparse.Namespace], Mapping[str, Sequence[str]]],
    check: Callable[[argparse.Namespace], object],
    usual: Callable[[argparse.Namespace], Mapping[str, str]] = lambda args: {},
    lone: str | None = None,
) -> argparse.Namespace:
    """Parse a command line, and print its tables and where each option came from that was not typed.

    What the command line lacks of what is ``needed`` comes from ``spark.imagestrata.NAME``. Spark's configuration is
    read only when something is missing, because reading it may start a JVM. The data table and the metadata table are
    a pair: both are typed, or both come from the configuration.

    Args:
        parser: The job's options.
        argv: The command line; None means that of the process.
        needed: Gives, for what was typed, the destinations of options that must have a value, each with those that come
            along with it: a configured source brings its configured split folders, a typed source does not.
        check: Looks at what was typed before Spark's configuration is read; raises ValueError.
        usual: Gives built-in defaults that are worth a word, by destination, for options that have no value yet.
        lone: The destination of the one table that may be typed without the other.

    Returns:
        The options. Exits with 2 for bad arguments.
    """
    args = parser.parse_args(argv)
    try:
        _check_pair(parser, args, lone=lone)
        check(args)
    except ValueError as error:
        parser.error(str(error))
    wanted = needed(args)
    missing = [name for name in wanted if getattr(args, name) is None]
    configured: set[str] = set()
    if missing:
        try:
            SparkContext._ensure_initialized()  # without its JVM, SparkConf() knows nothing of spark-defaults.conf
        except PySparkException:
            sys.exit(_failed(parser.prog, _NO_JAVA))
        conf = SparkConf()
        for name in missing:
            for one in (name, *wanted[name]):
                value = conf.get(_key(one))
                if value is not None and getattr(args, one) in (None, []):
                    setattr(args, one, value.split(",") if one in _LISTS else value)
                    configured.add(one)
    if still := [name for name in missing if getattr(args, name) is None]:
        names = ", ".join(_spelling(parser, name) for name in still)
        parser.error(f"wanted {names} (or {', '.join(map(_key, still))} in spark-defaults.conf). Found: neither.")
    if told := _told(parser, args, configured=configured, usual=usual(args)):
        print(f"options: {told}", file=sys.stderr, flush=True)
    return args


def _check_pair(parser: argparse.ArgumentParser, args: argparse.Namespace, *, lone: str | None) -> None:
    """Raise ValueError if one of the two tables was typed without the other."""
    typed = [name for name in PAIR if getattr(args, name, None) is not None]
    if len(typed) == 1 and typed[0] != lone:
        other = _spelling(parser, PAIR[1 - PAIR.index(typed[0])])
        raise ValueError(
            f"Wanted {' and '.join(_spelling(parser, name) for name in PAIR)} together, the two tables of one ingest. "
            f"Found: {_spelling(parser, typed[0])} {getattr(args, typed[0])} alone. Add {other}."
        )


def _told(
    parser: argparse.ArgumentParser, args: argparse.Namespace, *, configured: Set[str], usual: Mapping[str, str]
) -> str:
    """The tables, and all options that were not typed, each with the place that it came from."""
    found = []
    for action in parser._actions:
        name = action.dest
        value = getattr(args, name, None)
        text = ",".join(value) if isinstance(value, list) else value
        if name in configured:
            found.append(f"{_spelling(parser, name)} {text} (from {_key(name)})")
        elif name in PAIR and value is not None:
            found.append(f"{_spelling(parser, name)} {text}")
        elif name in usual:
            found.append(f"{_spelling(parser, name)} {usual[name]}")
    return ", ".join(found)


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
        return _failed(name, str(error))
    except (PySparkException, Py4JJavaError) as error:
        return _failed(name, _NO_JAVA if "JAVA_GATEWAY_EXITED" in str(error) else f"Spark failed. {_cause(error)}")
    try:
        report = run(spark)
        print(json.dumps(asdict(report), ensure_ascii=False) if as_json else str(report), flush=True)
        return 0
    except (EtlError, FormatsError) as error:
        return _failed(name, str(error))
    except (PySparkException, Py4JJavaError) as error:
        return _failed(name, executor_error(str(error)) or f"Spark failed. {_cause(error)}")
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


def _failed(name: str, message: str) -> int:
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


def _key(name: str) -> str:
    """The name of an option in Spark's configuration."""
    return PREFIX + name.replace("_", "-")


def _spelling(parser: argparse.ArgumentParser, name: str) -> str:
    for action in parser._actions:
        if action.dest == name:
            return action.option_strings[-1] if action.option_strings else str(action.metavar)
    raise KeyError(name)
