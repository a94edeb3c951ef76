"""Conditions over metadata columns as Spark SQL expressions, which are validated before anything is read."""

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.columns import names_in_any_case, theirs
from etl.errors import TableError
from etl.expressions import check_expression, fixed_settings, is_repeatable


def check_condition(text: str) -> None:
    """Parse a condition with Spark's parser. Raises ValueError unless the text is exactly one condition."""
    check_expression(text, wanted="Wanted a condition in Spark SQL for --where.")


def meeting(rows: DataFrame, where: str) -> DataFrame:
    """The rows that meet a condition, which is read with fixed settings of Spark: times are in UTC. Use it inside a
    block of `etl.columns.exact_names`. The case of names matters only if names of columns differ in nothing else.
    Raises `TableError` for a condition that cannot be evaluated on these rows, or is not deterministic, and
    `ConflictError` for settings with which Spark would evaluate it otherwise.
    """
    wanted = f"Wanted a condition over the columns {', '.join(theirs(rows))} for --where."
    try:
        with fixed_settings(rows.sparkSession, wanted=wanted):
            chosen = _chosen(rows, where)
    except (AnalysisException, ParseException) as error:
        raise TableError(f"{wanted} Found: {where!r}: {str(error).strip().splitlines()[0]}") from None
    plan = chosen._jdf.queryExecution().analyzed()
    if plan.nodeName() != "Filter":  # Spark also finds columns that these were selected from, and projects them away
        raise TableError(f"{wanted} Found: {where!r}, which has another column, such as the table's name of a label.")
    if not is_repeatable(plan.condition()):
        raise TableError(f"{wanted} Found: {where!r}, whose result changes from run to run.")
    return chosen


def _chosen(rows: DataFrame, where: str) -> DataFrame:
    try:
        return rows.where(F.expr(where))
    except AnalysisException as error:
        with names_in_any_case(rows.sparkSession):
            try:
                return rows.where(F.expr(where))
            except AnalysisException:
                raise error from None
