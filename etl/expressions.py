"""Spark SQL expressions that users write, parsed by Spark before anything is read."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from etl.errors import ConflictError
from etl.frames import setting

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.variable.substitute": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.function.concatBinaryAsString": "false",
    "spark.sql.function.eltOutputAsString": "false",
    "spark.sql.legacy.allowHashOnMapType": "false",
    "spark.sql.legacy.allowNegativeScaleOfDecimal": "false",
    "spark.sql.legacy.codingErrorAction": "false",
    "spark.sql.legacy.createEmptyCollectionUsingStringType": "false",
    "spark.sql.legacy.duplicateBetweenInput": "false",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "false",
    "spark.sql.legacy.followThreeValuedLogicInArrayExists": "true",
    "spark.sql.legacy.interval.enabled": "false",
    "spark.sql.legacy.javaCharsets": "false",
    "spark.sql.legacy.literal.pickMinimumPrecision": "true",
    "spark.sql.legacy.lpadRpadAlwaysReturnString": "false",
    "spark.sql.legacy.negativeIndexInArrayInsert": "false",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "false",
}
"""The settings that expressions of feature views are read with: those of Spark 4, UTC, and names as they are written.
Never change one: the values of registered views would change."""

_OTHERWISE_USUALLY = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive")
"""Those of them that have another value in sessions of some versions or machines."""

_WHILE_RUNNING = {
    "spark.sql.legacy.timeParserPolicy": ("CORRECTED", "EXCEPTION"),
    "spark.sql.legacy.castComplexTypesToString.enabled": ("FALSE",),
    "spark.sql.mapKeyDedupPolicy": ("EXCEPTION",),
}
"""Settings that Spark looks up when it computes a value, and the ones that never change a value."""
_SUBQUERIES = frozenset({"ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery"})
_NAMES = frozenset({"Alias", "MultiAlias", "UnresolvedAlias"})
_CHANGING = frozenset(
    {"CurrentDate", "CurrentTime", "CurrentTimestamp", "CurrentTimestampLike", "LocalTimestamp", "Now"}
    | {"CurrentCatalog", "CurrentDatabase", "CurrentPath", "CurrentTimeZone", "CurrentUser", "SparkVersion"}
)
"""Expressions that Spark counts as deterministic, because they are constant within a query."""
_OF_SESSION = re.compile(r".*UDF|SQLScalarFunction|SQLFunctionExpression|ApplyFunctionExpression")
"""Calls of functions that a session or a catalog defines."""
_DATES = frozenset({"date", "timestamp", "timestamp_ntz"})
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
    is_constant = bool(expression.deterministic()) and not _CHANGING.intersection(_kinds(expression))
    return is_constant and not any(map(_reads_today, _parts(expression)))


def has_functions_of_session(expression: Any) -> bool:
    """Whether an analyzed expression of Spark's JVM calls functions that other sessions may not have."""
    return any(map(_OF_SESSION.fullmatch, _kinds(expression)))


@contextmanager
def fixed_settings(spark: SparkSession, *, wanted: str) -> Iterator[None]:
    """Let Spark parse and analyze expressions with `SETTINGS` for a block, whatever those of the session are. Analyzed
    expressions keep what they depend on. Raises `ConflictError`, whose message begins with ``wanted``, if the session
    has a setting that changes values later.
    """
    for name, allowed in _WHILE_RUNNING.items():
        found = spark.conf.get(name, None) or allowed[0]
        if found.upper() not in allowed:
            raise ConflictError(
                f"{wanted} Found: {name} is {found}, with which the values would be others. Set it to {allowed[0]}."
            )
    with ExitStack() as stack:
        for name, value in SETTINGS.items():
            # Spark warns of some when they are set. Without a value of the session, they have this one.
            if name in _OTHERWISE_USUALLY or spark.conf.get(name, None) not in (None, value):
                stack.enter_context(setting(spark, name, value))
        yield


def _reads_today(expression: Any) -> bool:
    """Whether Spark replaces a text by today's date or the time while it optimizes: ``date('today')``."""
    if expression.dataType().typeName() not in _DATES:
        return False
    children = (expression.children().apply(number) for number in range(expression.children().size()))
    texts = (one.eval(None) for one in children if one.foldable() and one.dataType().typeName() == "string")
    return any(text is not None and _TODAY.match(text.toString()) for text in texts)


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
