"""How jobs parse their command lines: defaults come from Spark's configuration, and the first line lists them."""

import argparse
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TypeVar

from etl.errors import EtlError
from etl.spark_process import spark_conf
from formats import logs
from formats.command_line import Parser
from formats.stores.addresses import check_store
from jobs.messages import NO_JAVA, misplaced, not_installed
from jobs.metrics import add_metrics_options

PREFIX = "spark.imagestrata."
# The two tables of an ingest. The command line gives both or neither; Spark's configuration gives the default.
PAIR = ("data_table", "metadata_table")
_LISTS = {"split_subdir"}  # options whose configured value is a comma-separated list

# Options that are paths or addresses.
_PLACES = (
    *("source", "labels", "masks", "arrays", "target_dir", "out", "rows_fn", "split", "split_ofn", "extend"),
    *("metadata_ifn", "metadata_ofn"),
)

Needed = Mapping[str, Sequence[str]]
P = TypeVar("P")


def make_parser(name: str, *, manual: str | None, epilog: str) -> Parser:
    """A job's parser: its help is a manual page, and it knows the options of spark-submit."""
    made = Parser(name, manual=manual, epilog=epilog, explain=misplaced)
    add_metrics_options(made)
    return made


def both_tables(args: argparse.Namespace) -> Needed:
    """The options that most jobs need."""
    return dict.fromkeys(PAIR, ())


def parse(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    *,
    plan: Callable[[argparse.Namespace], P],
    needed: Callable[[argparse.Namespace], Needed] = both_tables,
    check: Callable[[argparse.Namespace], object] | None = None,
    finish: Callable[[P], object] = lambda plan: None,
    usual: Callable[[argparse.Namespace], Mapping[str, str]] = lambda args: {},
    lone: str | None = None,
) -> tuple[P, argparse.Namespace]:
    """Parse a command line, and print the tables and every default with its origin. Exits with 2 if it is wrong.
    Options that are ``needed`` and missing come from ``spark.imagestrata.NAME``. Each maps to the options that are
    configured together with it: a configured source also has the configured split folders, a source from the command
    line does not. ``usual`` gives the built-in defaults to print. ``check`` is called before the configuration is read,
    by default ``plan`` with names in place of missing tables; ``finish`` checks the plan at the end, and may start a
    JVM. ``lone`` is the table that may be given without the other.
    """
    args = parser.parse_args(argv)
    wanted = needed(args)
    try:
        _check_places(args)
        _check_pair(parser, args, lone=lone)
        if check is not None:
            check(args)
        else:
            plan(_with_tables(args, wanted))
    except ValueError as error:
        parser.error(str(error))
    # Spark's configuration is read only if an option is missing, because reading it may start a JVM.
    configured = _configure(parser, args, needed=wanted)
    if origins := _origins(parser, args, configured=configured, usual=usual(args)):
        logs.tell(f"options: {origins}")
    try:
        _check_places(args)
        made = plan(args)
        finish(made)
        return made, args
    except ValueError as error:
        parser.error(str(error))


def _with_tables(args: argparse.Namespace, needed: Needed) -> argparse.Namespace:
    """The options with a name for each table that is needed and missing."""
    missing = [name for name in PAIR if name in needed and getattr(args, name) is None]
    return argparse.Namespace(**vars(args) | {name: f"ks.{name.removesuffix('_table')}" for name in missing})


def _check_places(args: argparse.Namespace) -> None:
    """Raise ValueError for an address that no store has."""
    for name in _PLACES:
        if (address := getattr(args, name, None)) is not None:
            check_store(address)


def _check_pair(parser: argparse.ArgumentParser, args: argparse.Namespace, *, lone: str | None) -> None:
    """Raise ValueError if the command line has one of the two tables without the other."""
    typed = [name for name in PAIR if getattr(args, name, None) is not None]
    if len(typed) == 1 and typed[0] != lone:
        other = _spelling(parser, PAIR[1 - PAIR.index(typed[0])])
        raise ValueError(
            f"Wanted both {' and '.join(_spelling(parser, name) for name in PAIR)}. "
            f"Found: only {_spelling(parser, typed[0])} {getattr(args, typed[0])}. Add {other}."
        )


def _configure(parser: argparse.ArgumentParser, args: argparse.Namespace, *, needed: Needed) -> Set[str]:
    """Take needed options that the command line lacks from Spark's configuration; returns those that it has."""
    configured: set[str] = set()
    missing = [name for name in needed if getattr(args, name) is None]
    if not missing:
        return configured
    try:
        from pyspark.errors import PySparkException

        conf = spark_conf()
    except ModuleNotFoundError as error:
        raise EtlError(not_installed(error)) from error
    except PySparkException as error:
        raise EtlError(NO_JAVA) from error
    for name in (one for wanted in missing for one in (wanted, *needed[wanted])):
        value = conf.get(_key(name))
        if value is not None and getattr(args, name) in (None, []):
            setattr(args, name, value.split(",") if name in _LISTS else value)
            configured.add(name)
    if still := [name for name in missing if getattr(args, name) is None]:
        names = ", ".join(_spelling(parser, name) for name in still)
        parser.error(f"Wanted {names}, or {', '.join(map(_key, still))} in spark-defaults.conf. Found: neither")
    return configured


def _origins(
    parser: argparse.ArgumentParser, args: argparse.Namespace, *, configured: Set[str], usual: Mapping[str, str]
) -> str:
    """The tables, and the other options that have a default, each with its origin."""
    found = []
    for action in parser._actions:
        name = action.dest
        value = getattr(args, name, None)
        text = ",".join(map(str, value)) if isinstance(value, list) else value
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
