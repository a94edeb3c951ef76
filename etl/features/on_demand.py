"""On-demand feature views: SQL expressions over the metadata and over other views, computed when they are read."""

import hashlib
from collections.abc import Sequence

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from etl.cassandra.control import Control
from etl.cassandra.registry import registered_views
from etl.cassandra.tables import read_table
from etl.errors import ConflictError, FunctionError
from etl.expressions import check_expression, is_repeatable, names_in
from etl.features.columns import find_fields
from schemas import Columns, TableName
from schemas.feature_sources import Sql, typed
from schemas.features import FeatureView, ViewName, spark_type

_TYPES = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "bigint",
    "float": "float",
    "double": "double",
    "string": "text",
    "binary": "blob",
}
"""The type of a field by that of an expression."""


def define(
    spark: SparkSession, control: Control, view: ViewName, source: Sql, *, metadata: TableName, columns: Columns
) -> FeatureView:
    """The definition of an on-demand view: the registered one if it has this expression. Writes nothing. The versions
    of the views that its expression names are part of it. Raises `FunctionError` if the expression is wrong, or names
    what is no column and no field of a stored view, and `ConflictError` if the view is registered with another one.
    """
    name, version = view.name, view.version
    known = registered_views(control, keyspace=metadata.keyspace, name=name)
    newest = known[0].version if known else 0
    current = next((one for one in known if one.version == (version or newest)), None)
    if current is not None:
        if current.source != source:
            raise ConflictError(
                f"Wanted {current.title} as it was registered, from {current.source}. Found: {source}. Make it a new "
                f'version: --features "{name}@v{newest + 1}={typed(source)}"'
            )
        return current
    if version not in (None, newest + 1):
        raise ConflictError(f"Wanted {name}@v{newest + 1}, the next version. Found: {view}")
    expression, wanted = source.expression, f"Wanted an expression in Spark SQL for {name}."
    try:
        check_expression(expression, wanted=wanted)
    except ValueError as error:
        raise FunctionError(str(error)) from None
    names = names_in(expression)
    of_table = sorted(names & (control.columns(metadata) or {}).keys() - {columns.id, columns.label})
    inputs = find_fields(control, metadata, names=names - set(of_table))
    fields = {field: one.view.fields[field] for one in inputs for field in one.names if not one.view.is_on_demand}
    if missing := sorted(names - set(of_table) - fields.keys()) or ([] if names else ["no name of a column"]):
        raise FunctionError(
            f"Wanted columns of {metadata} other than ids and labels, or fields of stored views, in {expression!r} for "
            f"{name}. Found: {', '.join(missing)}. Compute a view first: --features NAME"
        )
    given = read_table(spark, metadata, columns=of_table).schema if of_table else StructType()
    types = {one.name: one.dataType.simpleString() for one in given}
    types |= {field: spark_type(kind) for field, kind in fields.items()}
    schema = ", ".join(f"`{field}` {kind}" for field, kind in types.items())
    uses = tuple(one.view.title for one in inputs)
    kind = _type_of(spark, expression, schema=schema, wanted=wanted)
    digest = digest_of_expression(source, uses=uses)
    return FeatureView(name=name, version=newest + 1, fields={name: kind}, source=source, digest=digest, uses=uses)


def _type_of(spark: SparkSession, expression: str, *, schema: str, wanted: str) -> str:
    """The type of an expression over columns. Raises `FunctionError` if it has none that a field can have."""
    try:
        plan = spark.createDataFrame([], schema).select(F.expr(expression).alias("value"))
    except (AnalysisException, ParseException) as error:
        raise FunctionError(f"{wanted} Found: {expression!r}: {str(error).splitlines()[0]}") from None
    analyzed = plan._jdf.queryExecution().analyzed()
    if analyzed.getClass().getSimpleName() != "Project" or not analyzed.child().children().isEmpty():
        raise FunctionError(f"{wanted} Found: {expression!r}, which needs more than the row of one image.")
    if not is_repeatable(analyzed.projectList().apply(0)):
        raise FunctionError(f"{wanted} Found: {expression!r}, whose result changes from run to run.")
    found = plan.schema[0].dataType.simpleString()
    if found not in _TYPES:
        raise FunctionError(
            f"{wanted} Found: {expression!r}, of type {found}. Convert it, for example with int(...), double(...) or "
            "string(...)."
        )
    return _TYPES[found]


def digest_of_expression(source: Sql, *, uses: Sequence[str]) -> str:
    """The SHA-256 of an expression and of the views that it uses, in hexadecimal."""
    return hashlib.sha256("\n".join((str(source), *uses)).encode()).hexdigest()
