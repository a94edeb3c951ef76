"""Spark SQL expressions that users write, parsed by Spark before anything is read."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import ParseException

_SUBQUERIES = frozenset({"ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery"})
_NAMES = frozenset({"Alias", "MultiAlias", "UnresolvedAlias"})
_CHANGING = frozenset(
    {"CurrentDate", "CurrentTimestamp", "CurrentTimestampLike", "LocalTimestamp", "Now"}
    | {"CurrentCatalog", "CurrentDatabase", "CurrentTimeZone", "CurrentUser"}
)
"""Expressions that Spark counts as deterministic, because they are constant within a query."""
_CODE = re.compile(r"^(?:[\w.$]+(?:Exception|Error): ?)?(?:\[[A-Z_.]+\] ?)?")
_TIMES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"})
_TODAY = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Texts that Spark replaces by a time while it parses ``date 'today'``, so that the parsed expression lacks them."""


def check_expression(text: str, *, wanted: str) -> None:
    """Raise ValueError, whose message begins with ``wanted``, unless Spark's parser takes a text for one expression,
    without subqueries, and without names for columns.
    """
    try:
        kinds = set(_kinds(_parsed(text)))
    except (Py4JJavaError, ParseException) as error:  # Java's exception, or the one that a session translates it to
        raise ValueError(f"{wanted} Found: {text!r} ({reason_of(error)})") from None
    if kinds & _SUBQUERIES:
        raise ValueError(f"{wanted} Found: {text!r}, which queries other tables")
    if kinds & _NAMES:
        raise ValueError(f"{wanted} Found: {text!r}, which names a column")
    if day := _literal_of_today(text):
        raise ValueError(f"{wanted} Found: {text!r}, where {day} depends on the day")


def reason_of(error: Exception) -> str:
    """Why Spark refuses an expression, as one line: without the exception's class, its code and the expression."""
    told = str(getattr(error, "java_exception", error)).partition("== SQL ==")[0]
    told = _CODE.sub("", " ".join(told.split()))
    return told.replace(".(line ", " (line ")[:200]


def names_in(text: str) -> set[str]:
    """The names of columns in an expression that `check_expression` accepts."""
    return {
        str(part.nameParts().mkString("."))
        for part in _parts(_parsed(text))
        if part.getClass().getSimpleName() == "UnresolvedAttribute"
    }


def is_repeatable(expression: Any) -> bool:
    """Whether an analyzed expression of Spark's JVM has the same value for the same row in every run."""
    return bool(expression.deterministic()) and not _CHANGING.intersection(_kinds(expression))


def _literal_of_today(text: str) -> str | None:
    """The first literal of an expression that means another time on each day, such as ``date 'today'``."""
    jvm: Any = SparkContext._jvm
    parsing = jvm.org.apache.spark.sql.catalyst.parser
    stream = parsing.UpperCaseCharStream(jvm.org.antlr.v4.runtime.CharStreams.fromString(text))
    tokens = [token for token in parsing.SqlBaseLexer(stream).getAllTokens() if not token.getChannel()]
    for kind, value in pairwise(tokens):
        literal = value.getText()
        is_time = kind.getText().strip("`").upper() in _TIMES and literal.lstrip("rR")[:1] in ("'", '"')
        if is_time and _TODAY.match(_parsed(literal).value().toString()):
            return f"{kind.getText()} {literal}"
    return None


def _parsed(text: str) -> Any:
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    return jvm.org.apache.spark.sql.execution.SparkSqlParser().parseExpression(text)


def _kinds(expression: Any) -> Iterator[str]:
    """The classes of all parts of a Spark expression."""
    return (part.getClass().getSimpleName() for part in _parts(expression))


def _parts(expression: Any) -> Iterator[Any]:
    yield expression
    children = expression.children()
    for number in range(children.size()):
        yield from _parts(children.apply(number))
