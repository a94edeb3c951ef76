"""The feature views of a keyspace: built-in ones, registered ones, and new ones, which are registered.

On-demand views are SQL expressions over the metadata and over other views, computed when they are read.
"""

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from etl.cassandra.registry import registered_views
from etl.cassandra.tables import read_table
from etl.errors import ConflictError, FunctionError
from etl.expressions import check_expression, fixed_settings, has_functions_of_session, is_repeatable, names_in
from etl.features.columns import find_fields
from etl.features.computing import builtin
from etl.features.computing.functions import digest_of, is_unchanged, load, modules_unknown
from etl.features.computing.models import digest_of_model
from etl.features.plan import FeatureRequest
from etl.tables.metadata_table import OF_THE_INGEST, MetadataTable
from schemas.feature_sources import Builtin, FeatureSource, Onnx, Python, Sql, typed
from schemas.features import FeatureView, ViewName, spark_type

log = logging.getLogger("imagestrata.featurize")

Probe = Callable[[FeatureView], dict[str, str]]

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


def find_view(table: MetadataTable, request: FeatureRequest, *, probe: Probe) -> FeatureView:
    """The definition of a requested view, registered or not yet; writes nothing. ``probe`` returns the fields of a new
    view, from the values that its function returns. Raises `FunctionError` if there is no such view or function, and
    `ConflictError` if the view is registered with another source, or its function has changed since.
    """
    name, version, source = request.view.name, request.view.version, request.source
    if name in builtin.VIEWS:
        return _builtin(request)
    known = registered_views(table.control, keyspace=table.name.keyspace, name=name)
    newest = known[0].version if known else 0
    following = max(newest, _newest_ever(table, name)) + 1
    current = next((view for view in known if view.version == (version or newest)), None)
    if current is None and source is None:
        views = registered_views(table.control, keyspace=table.name.keyspace)
        names = ", ".join(view.title for view in views) or "none"
        raise FunctionError(
            f"Wanted a feature view that is built in ({', '.join(builtin.VIEWS)}) or registered ({names}). "
            f"Found: {request.view}. Define a new one: {name}=MODULE:FUNCTION, onnx:FILE or sql:EXPRESSION"
        )
    if current is not None:
        _check_same(current, source=source or current.source, following=following)
        return current
    if version not in (None, following):
        raise ConflictError(f"Wanted {name}@v{following}, the next version. Found: {request.view}")
    if isinstance(source, Sql):
        return _on_demand(table, name, source, version=following)
    assert source is not None
    own, digest = _absolute(source), digest_of_source(source)
    draft = FeatureView(name=name, version=following, fields={name: "blob"}, source=own, digest=digest)
    return replace(draft, fields=probe(draft))


def _newest_ever(table: MetadataTable, name: str) -> int:
    """The newest version of a view that a run has computed, also one that was removed: its run may still write."""
    titles = (title for run in table.runs if run.kind == "features" for title in run.source.split(","))
    # A run that makes an index has a word after the title.
    views = (ViewName.parse(title.partition(" ")[0]) for title in titles if title.startswith(f"{name}@"))
    return max((view.version or 0 for view in views), default=0)


def digest_of_source(source: FeatureSource) -> str:
    """The SHA-256 of what makes a view's values: a module or a model, and the decoder. Raises `FunctionError`."""
    match source:
        case Python():
            return digest_of(source)
        case Onnx():
            return digest_of_model(source.file)
    raise FunctionError(f"Wanted a function or a model that this version can read. Found: {source}")


def _builtin(request: FeatureRequest) -> FeatureView:
    view = builtin.view_of(request.view.name)
    if request.source is not None:
        raise ConflictError(f"Wanted another name for {request.source}. Found: {view.name}, which is built in")
    if request.view.version not in (None, view.version):
        raise FunctionError(f"Wanted {view.title}, which this version computes. Found: {request.view}")
    load(Builtin(view.name))
    return view


def _check_same(view: FeatureView, *, source: FeatureSource, following: int) -> None:
    """Raise `ConflictError` unless a registered view has this source, unchanged."""
    source = _absolute(source)
    new = f"{view.name}@v{following}={typed(source)}"
    is_same_source = _is_same(view.source, source)
    if is_same_source and _is_unchanged(view, source, new=new):
        return
    found = str(source)
    if is_same_source:
        what = "model" if isinstance(source, Onnx) else "module, or one that it imports,"
        found = f"the {what} has changed since then, or how images are decoded"
    remedy = f"Values of both would be mixed. Make it a new version: {new}"
    if isinstance(source, Sql):
        remedy = f'Make it a new version: --features "{new}"'
    raise ConflictError(f"Wanted {view.title} as it was registered, from {view.source}. Found: {found}. {remedy}")


def _is_unchanged(view: FeatureView, source: FeatureSource, *, new: str) -> bool:
    """Whether a view's source makes the values that it made when the view was registered. Raises `FunctionError`."""
    if isinstance(source, Sql):
        return True
    if not isinstance(source, Python):
        return view.digest == digest_of_source(source)
    if others := modules_unknown(source, view.digest):
        log.warning(
            "%s was registered by an earlier version of imagestrata, which did not record the modules that %s imports: "
            "%s. If they have changed, values of both are mixed. Make it a new version: %s",
            view.title, source.module, ", ".join(others), new,
        )  # fmt: skip
    return is_unchanged(source, view.digest)


def _absolute(source: FeatureSource) -> FeatureSource:
    return replace(source, file=os.path.abspath(source.file)) if isinstance(source, Onnx) else source


def _is_same(one: FeatureSource, other: FeatureSource) -> bool:
    """Whether two sources are the same, wherever the file of a model is."""
    if isinstance(one, Onnx) and isinstance(other, Onnx):
        return one.preprocess == other.preprocess
    return one == other


def _on_demand(table: MetadataTable, name: str, source: Sql, *, version: int) -> FeatureView:
    """The definition of a new on-demand view. The versions of the views that its expression names are part of it.
    Raises `FunctionError` if the expression is wrong, or names what is no column and no field of a stored view.
    """
    spark, expression, wanted = table.spark, source.expression, f"Wanted an expression in Spark SQL for {name}."
    with fixed_settings(spark, wanted=wanted):
        try:
            check_expression(expression, wanted=wanted)
        except ValueError as error:
            raise FunctionError(str(error)) from None
        names = names_in(expression)
    # A value belongs to the bytes of an image, so it must not change when the same image is ingested again.
    of_table = sorted(names & table.fields.keys() - {table.columns.id, table.columns.label, *OF_THE_INGEST})
    inputs = find_fields(table.control, table.name, names=names - set(of_table))
    fields = {field: one.view.fields[field] for one in inputs for field in one.names if not one.view.is_on_demand}
    if missing := sorted(names - set(of_table) - fields.keys()) or ([] if names else ["no name of a column"]):
        raise FunctionError(
            f"Wanted columns of {table.name} other than ids, labels and {', '.join(OF_THE_INGEST)}, or fields of "
            f"stored views, in {expression!r} for {name}. Found: {', '.join(missing)}. "
            "Compute a view first: --features NAME"
        )
    given = read_table(spark, table.name, columns=of_table).schema if of_table else StructType()
    types = {one.name: one.dataType.simpleString() for one in given}
    types |= {field: spark_type(kind) for field, kind in fields.items()}
    schema = ", ".join(f"`{field}` {kind}" for field, kind in types.items())
    uses = tuple(one.view.title for one in inputs)
    kind = _type_of(spark, expression, schema=schema, wanted=wanted)
    digest = hashlib.sha256("\n".join((str(source), *uses)).encode()).hexdigest()
    return FeatureView(name=name, version=version, fields={name: kind}, source=source, digest=digest, uses=uses)


def _type_of(spark: SparkSession, expression: str, *, schema: str, wanted: str) -> str:
    """The type of an expression over columns. Raises `FunctionError` if it has none that a field can have."""
    try:
        with fixed_settings(spark, wanted=wanted):
            plan = spark.createDataFrame([], schema).select(F.expr(expression).alias("value"))
    except (AnalysisException, ParseException) as error:
        raise FunctionError(f"{wanted} Found: {expression!r}: {str(error).splitlines()[0]}") from None
    analyzed = plan._jdf.queryExecution().analyzed()
    if analyzed.getClass().getSimpleName() != "Project" or not analyzed.child().children().isEmpty():
        raise FunctionError(f"{wanted} Found: {expression!r}, which needs more than the row of one image.")
    if not is_repeatable(analyzed.projectList().apply(0)):
        raise FunctionError(f"{wanted} Found: {expression!r}, whose result changes from run to run.")
    if has_functions_of_session(analyzed.projectList().apply(0)):
        raise FunctionError(f"{wanted} Found: {expression!r}, with a function that other sessions do not have.")
    found = plan.schema[0].dataType.simpleString()
    if found not in _TYPES:
        raise FunctionError(
            f"{wanted} Found: {expression!r}, of type {found}. Convert it, for example with int(...), double(...) or "
            "string(...)."
        )
    return _TYPES[found]
