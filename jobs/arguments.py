"""How the jobs parse command lines: defaults from Spark's configuration, and a first line that tells of them."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TypeVar

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from jobs.command import NO_JAVA, failed

PREFIX = "spark.imagestrata."
PAIR = ("data_table", "metadata_table")
"""The two tables of one ingest: both are typed, or both come from Spark's configuration."""
_LISTS = {"split_subdir"}
"""Options whose configured value is a list with commas."""

Needed = Mapping[str, Sequence[str]]
P = TypeVar("P")


def make_parser(name: str, *, manual: str | None, epilog: str | None = None) -> argparse.ArgumentParser:
    """A parser whose help is a manual page."""
    layout = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(name, description=manual, epilog=epilog, formatter_class=layout, allow_abbrev=False)


def parse(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    *,
    plan: Callable[[argparse.Namespace], P],
    needed: Callable[[argparse.Namespace], Needed],
    check: Callable[[argparse.Namespace], object],
    usual: Callable[[argparse.Namespace], Mapping[str, str]] = lambda args: {},
    lone: str | None = None,
) -> tuple[P, argparse.Namespace]:
    """Parse a command line, and print its tables and where each option came from that was not typed.

    What the command line lacks of what is ``needed`` comes from ``spark.imagestrata.NAME``. Spark's configuration is
    read only when something is missing, because reading it may start a JVM. The data table and the metadata table are
    a pair: both are typed, or both come from the configuration.

    Args:
        parser: The job's options.
        argv: The command line; None means that of the process.
        plan: Makes the job's plan of all options; raises ValueError.
        needed: Gives, for what was typed, the destinations of options that must have a value, each with those that come
            along with it: a configured source brings its configured split folders, a typed source does not.
        check: Looks at what was typed before Spark's configuration is read; raises ValueError.
        usual: Gives built-in defaults that are worth a word, by destination, for options that have no value yet.
        lone: The destination of the one table that may be typed without the other.

    Returns:
        The plan and the options. Exits with 2 for bad arguments.
    """
    args = parser.parse_args(argv)
    try:
        _check_pair(parser, args, lone=lone)
        check(args)
    except ValueError as error:
        parser.error(str(error))
    configured = _configure(parser, args, needed=needed(args))
    if origins := _origins(parser, args, configured=configured, usual=usual(args)):
        print(f"options: {origins}", file=sys.stderr, flush=True)
    try:
        return plan(args), args
    except ValueError as error:
        parser.error(str(error))


def _check_pair(parser: argparse.ArgumentParser, args: argparse.Namespace, *, lone: str | None) -> None:
    """Raise ValueError if one of the two tables was typed without the other."""
    typed = [name for name in PAIR if getattr(args, name, None) is not None]
    if len(typed) == 1 and typed[0] != lone:
        other = _spelling(parser, PAIR[1 - PAIR.index(typed[0])])
        raise ValueError(
            f"Wanted {' and '.join(_spelling(parser, name) for name in PAIR)} together, the two tables of one ingest. "
            f"Found: {_spelling(parser, typed[0])} {getattr(args, typed[0])} alone. Add {other}."
        )


def _configure(parser: argparse.ArgumentParser, args: argparse.Namespace, *, needed: Needed) -> Set[str]:
    """Set what is needed and was not typed from Spark's configuration; returns what was set."""
    configured: set[str] = set()
    missing = [name for name in needed if getattr(args, name) is None]
    if not missing:
        return configured
    try:
        SparkContext._ensure_initialized()  # without its JVM, SparkConf() knows nothing of spark-defaults.conf
    except PySparkException:
        sys.exit(failed(parser.prog, NO_JAVA))
    conf = SparkConf()
    for name in (one for wanted in missing for one in (wanted, *needed[wanted])):
        value = conf.get(_key(name))
        if value is not None and getattr(args, name) in (None, []):
            setattr(args, name, value.split(",") if name in _LISTS else value)
            configured.add(name)
    if still := [name for name in missing if getattr(args, name) is None]:
        names = ", ".join(_spelling(parser, name) for name in still)
        parser.error(f"wanted {names} (or {', '.join(map(_key, still))} in spark-defaults.conf). Found: neither.")
    return configured


def _origins(
    parser: argparse.ArgumentParser, args: argparse.Namespace, *, configured: Set[str], usual: Mapping[str, str]
) -> str:
    """The tables, and all options that were not typed, each with its origin."""
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


def _key(name: str) -> str:
    """The name of an option in Spark's configuration."""
    return PREFIX + name.replace("_", "-")


def _spelling(parser: argparse.ArgumentParser, name: str) -> str:
    action = next(action for action in parser._actions if action.dest == name)
    return action.option_strings[-1] if action.option_strings else str(action.metavar)
