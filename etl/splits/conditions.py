"""Conditions over metadata columns as Spark SQL expressions, which are validated before anything is read."""

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.errors import TableError

_SUBQUERIES = frozenset({"ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery"})
_NAMES = frozenset({"Alias", "MultiAlias", "UnresolvedAlias"})
_TIMES = frozenset({"CurrentDate", "CurrentTimestamp", "CurrentTimestampLike", "LocalTimestamp", "Now"})
"""Expressions that Spark counts as deterministic, because they are constant within a query."""


def check_condition(text: str) -> None:
    """Parse a condition with Spark's parser. Raises ValueError unless the text is exactly one condition."""
    wanted = "Wanted a condition in Spark SQL for --where."
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    try:
        parsed = jvm.org.apache.spark.sql.execution.SparkSqlParser().parseExpression(text)
    except (Py4JJavaError, ParseException) as error:  # Java's exception, or the one that a session translates it to
        told = " ".join(str(getattr(error, "java_exception", error)).partition(":")[2].split())[:200]
        raise ValueError(f"{wanted} Found: {text!r} ({told})") from None
    kinds = set(_kinds(parsed))
    if kinds & _SUBQUERIES:
        raise ValueError(f"{wanted} Found: {text!r}, which queries other tables")
    if kinds & _NAMES:
        raise ValueError(f"{wanted} Found: {text!r}, which names a column")


def names_in(text: str) -> set[str]:
    """The names of columns in a condition that `check_condition` accepts."""
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    parsed = jvm.org.apache.spark.sql.execution.SparkSqlParser().parseExpression(text)
    return {
        str(part.name()).replace("`", "")
        for part in _parts(parsed)
        if part.getClass().getSimpleName() == "UnresolvedAttribute"
    }


def check_answers(rows: DataFrame, where: str) -> None:
    """Raise `TableError` for a condition that cannot be evaluated on these rows, or is not deterministic."""
    wanted = f"Wanted a condition over the columns {', '.join(rows.columns)} for --where."
    try:
        chosen = rows.where(F.expr(where))
    except (AnalysisException, ParseException) as error:
        raise TableError(f"{wanted} Found: {where!r}: {str(error).splitlines()[0]}") from None
    condition = chosen._jdf.queryExecution().analyzed().condition()
    if not condition.deterministic() or _TIMES.intersection(_kinds(condition)):
        raise TableError(f"{wanted} Found: {where!r}, whose result changes from run to run.")


def _kinds(expression: Any) -> Iterator[str]:
    """The classes of all parts of a Spark expression."""
    return (part.getClass().getSimpleName() for part in _parts(expression))


def _parts(expression: Any) -> Iterator[Any]:
    yield expression
    children = expression.children()
    for number in range(children.size()):
        yield from _parts(children.apply(number))
