"""The steps of a featurize run: find the views, find what images lack, compute it, report."""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial, reduce

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from etl.cassandra import registry
from etl.cassandra.control import Control, check_columns
from etl.cassandra.tables import read_table, uuid_bytes, uuid_text
from etl.errors import ConflictError, FunctionError, TableError
from etl.features.computing import models
from etl.features.computing.child import Child
from etl.features.computing.functions import agreed_fields
from etl.features.computing.tasks import COUNTS, ROWS, FeatureOrder, compute_features
from etl.features.history import newest_of_images
from etl.features.offline import features_folder, publish_features, write_values
from etl.features.plan import FeaturizePlan
from etl.features.report import FeaturizeReport, ViewCounts
from etl.features.retrieval import current_values
from etl.features.vectors.index import check_vector, has_index, update_index
from etl.features.views import find_view
from etl.frames import kept, small_table
from etl.ingest.writing.progress import Counters, collect_watched
from etl.ingest.writing.tasks import task_count
from etl.secrets import secrets_on_executors
from etl.tables.metadata_table import MetadataTable, full_path
from etl.tables.runs import new_ingest_id
from etl.tables.sequence import create_sequence, in_session, take_run
from etl.tables.table_records import check_pair, check_values_table
from etl.workers import map_batches
from etl.writing.publication import Publication
from schemas import TableName
from schemas.feature_sources import Onnx, Sql
from schemas.features import FeatureView, cql_type
from schemas.tables import create_feature_values, create_metadata, create_shared, defined_columns

log = logging.getLogger("imagestrata.featurize")

_PROBES = 8
_OF_IMAGES = ("or_split", "path", "bytes", "sha256", "since")


@dataclass(frozen=True, slots=True)
class _Views:
    """The views of a run. All are registered, and those that are stored have their tables."""

    stored: tuple[FeatureView, ...]
    on_demand: tuple[FeatureView, ...]
    models: Mapping[str, str]
    """The file of each ONNX model, by the digest of its view."""


@dataclass(frozen=True, slots=True)
class _Computed:
    """What a run computed: the images that lacked values, and the numbers of computed and failed values by view."""

    images: int = 0
    order: FeatureOrder | None = None
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def run(spark: SparkSession, *, plan: FeaturizePlan) -> FeaturizeReport:
    """Compute the features that images lack. Raises `EtlError`."""
    started, names = time.monotonic(), plan.columns
    with ExitStack() as stack:
        control = stack.enter_context(Control.from_spark(spark))
        stack.enter_context(secrets_on_executors(spark))
        output = None
        if plan.offline is not None:
            output = stack.enter_context(features_folder(plan.offline, overwrite=plan.overwrite))
        check_columns(control, plan.data_table, columns=[names.id, names.data])
        check_columns(control, plan.metadata_table, columns=[names.id])
        check_pair(control, data_table=plan.data_table, metadata_table=plan.metadata_table)
        table = MetadataTable.open(spark, control, plan.metadata_table, columns=names)
        views = _find_views(table, plan=plan)
        if output is not None and views.on_demand:
            raise ConflictError(
                f"Wanted features with stored values, for --offline. Found: {views.on_demand[0].title}, which is "
                "computed when it is read. Leave it out; its definition has the features that it uses."
            )
        computed = _fill(table, views, plan=plan) if views.stored else _Computed()
        indexed = {
            view.title: update_index(table, view)
            for view in views.stored
            if plan.vector_index or has_index(control, view, metadata=table.name)
        }
        stored = {} if output is None else _write_offline(table, views.stored, output=output, plan=plan)
    order, counts = computed.order, computed.counts
    return FeaturizeReport(
        data_table=str(plan.data_table),
        metadata_table=str(plan.metadata_table),
        views={view.title: ViewCounts(*counts.get(view.title, (0, 0))) for view in views.stored},
        on_demand={view.title: view.uses for view in views.on_demand},
        indexed=indexed,
        tables={view.title: str(view.table_of(plan.metadata_table)) for view in views.stored},
        images=computed.images,
        gone=counts.get("", (0, 0))[0],
        sequence=None if order is None else order.run.sequence,
        run_id=None if order is None else str(order.run_id),
        offline=plan.offline,
        stored=stored,
        seconds=time.monotonic() - started,
    )


def _find_views(table: MetadataTable, *, plan: FeaturizePlan) -> _Views:
    """Find the views of a run, register new ones, and create tables. Raises `EtlError`."""
    stored = [request for request in plan.features if not isinstance(request.source, Sql)]
    on_demand = [request for request in plan.features if isinstance(request.source, Sql)]
    found: list[FeatureView] = []
    for requests in (stored, *([one] for one in on_demand)):  # these may use views that this run creates
        views = [find_view(table, one, probe=partial(_probe, table, plan=plan)) for one in requests]
        for view in views:
            if plan.vector_index:
                check_vector(view)
            if not view.is_on_demand:
                check_values_table(table.control, table.name, view.table_of(table.name))
            registry.check_view_name(table.control, view.name, keyspace=table.name.keyspace)
        check_names(table, views, known=registry.registered_views(table.control, keyspace=table.name.keyspace))
        create_views(table, views)
        found += views
    sources = [request.source or view.source for view, request in zip(found, [*stored, *on_demand], strict=True)]
    return _Views(
        stored=tuple(view for view in found if not view.is_on_demand),
        on_demand=tuple(view for view in found if view.is_on_demand),
        models={view.digest: one.file for view, one in zip(found, sources, strict=True) if isinstance(one, Onnx)},
    )


def _fill(table: MetadataTable, views: _Views, *, plan: FeaturizePlan) -> _Computed:
    """Compute and write the stored values that images lack. Raises `EtlError`."""
    # Runs that began while views were found may have written images.
    table = MetadataTable.open(table.spark, table.control, table.name, columns=table.columns)
    images, told = table.without_half_deleted(list_images(table))  # a run may be removing them
    for warning in told:
        log.warning("%s", warning)
    done = newest_values(table, views.stored, retry=plan.retry)
    with ExitStack() as stack:
        lacking = kept(images.transform(without_values, done=done, views=len(views.stored)), stack=stack)
        (size,) = lacking.agg(F.count("*").alias("images"), F.sum("bytes").alias("bytes")).collect()
        if not size["images"]:
            return _Computed()
        titles = ", ".join(view.title for view in views.stored)
        log.info("%s images lack values of %s", f"{size['images']:,}", titles)
        for digest, file in views.models.items():
            models.send(table.spark, file, digest=digest)
        order = _begin(table, views.stored, plan=plan)
        rows = _compute(lacking, order=order, images=size["images"], size=size["bytes"] or 0)
    return _Computed(size["images"], order, {row["view"]: (row["computed"], row["failed"]) for row in rows})


def check_names(table: MetadataTable, views: Sequence[FeatureView], *, known: Sequence[FeatureView]) -> None:
    """Raise `ConflictError` if a column of the metadata table, or of tables of values, or a field of another view,
    ``known`` or not, has the name of a field.
    """
    of_values = defined_columns(create_feature_values(table.name, {"value": "int"})).keys() - {"value"}
    # Also of columns that this table gets when a later ingest writes to it.
    defined = defined_columns(create_metadata(table.name, table.columns, label_type="multi"))
    of_images = {"id", "label", *defined, *table.fields}
    places = {
        f"a column of {table.name}": of_images,
        "a column of every table of values": of_values,
        "a column of every split": {"split", "position"},
    }
    for view in views:
        others = {f"a field of {one.title}": one.fields.keys() for one in [*known, *views] if one.name != view.name}
        for place, taken in {**places, **others}.items():
            if same := sorted(taken & view.fields.keys()):
                raise ConflictError(f"Wanted another name than {same[0]}, which is {place}.")


def create_views(table: MetadataTable, views: Sequence[FeatureView]) -> None:
    """Register views and create their tables, unless that was done. Raises `ConflictError`, `TableError`."""
    control, keyspace = table.control, table.name.keyspace
    registry.create(control, keyspace=keyspace)
    create_sequence(control, keyspace=keyspace)
    if control.columns(TableName(keyspace, "quarantine")) is None:
        control.define(create_shared("quarantine", keyspace))
    for view in views:
        registry.register_view(control, view, keyspace=keyspace)
        if view.is_on_demand:
            continue
        values = view.table_of(table.name)
        fields = {name: cql_type(kind) for name, kind in view.fields.items()}
        if control.columns(values) is None:
            log.info("create table %s", values)
            control.define(create_feature_values(values, fields))
        found = control.columns(values) or {}
        if wrong := [name for name, kind in fields.items() if found.get(name) != kind]:
            raise TableError(
                f"Wanted {', '.join(f'{name} {fields[name]}' for name in wrong)} in {values}, for {view.title}. Found: "
                f"{', '.join(f'{name} {kind}' for name, kind in found.items())}. Another tool made or changed it."
            )


def list_images(table: MetadataTable, /) -> DataFrame:
    """All images of a metadata table as `ROWS`, without ``todo``. ``sequence`` is the run since which the image has its
    label and bytes, and ``event_time`` that run's clock; 0 if no run is recorded.
    """
    clocks: dict[str, Sequence[object]] = {
        "sequence": [*table.clocks],
        "event_time": [clock // 1000 for clock in table.clocks.values()],
    }
    known = small_table(table.spark, clocks, "sequence BIGINT, event_time BIGINT")
    rows = table.rows(_OF_IMAGES).withColumnRenamed("since", "sequence")
    rows = rows.join(F.broadcast(known), on="sequence", how="left")
    return rows.select(
        "id",
        F.coalesce(full_path(F.col("or_split"), F.col("path")), uuid_text("id")).alias("path"),
        "bytes",
        "sequence",
        F.coalesce("event_time", F.lit(0)).cast("bigint").alias("event_time"),
        "sha256",
    )


def newest_values(table: MetadataTable, views: Sequence[FeatureView], *, retry: bool) -> DataFrame:
    """The values that exist: ``id, sha256, done``, with a bit in ``done`` for each view with values of these bytes.
    Only the newest value of an image counts. With ``retry``, values that could not be computed do not exist.
    """
    parts = []
    for number, view in enumerate(views):
        rows = read_table(table.spark, view.table_of(table.name), columns=["id", "sequence", "sha256", "error"])
        rows = rows.transform(newest_of_images)
        if retry:
            rows = rows.where(F.col("error").isNull())
        parts.append(rows.select("id", "sha256", F.lit(1 << number).cast("bigint").alias("bit")))
    found = reduce(DataFrame.union, parts).groupBy("id", "sha256").agg(F.bit_or("bit").alias("done"))
    return found.select(uuid_bytes("id").alias("id"), "sha256", "done")


def without_values(images: DataFrame, /, *, done: DataFrame, views: int) -> DataFrame:
    """The images of `list_images` that lack values in `newest_values`, with a bit in ``todo`` for each view that has no
    value for their bytes.
    """
    done = done.select(F.col("id").alias("image"), F.col("sha256").alias("of"), "done")
    is_same = (F.col("id") == F.col("image")) & F.col("sha256").eqNullSafe(F.col("of"))
    every = F.lit((1 << views) - 1).cast("bigint")
    todo = every.bitwiseAND(F.bitwise_not(F.coalesce("done", F.lit(0).cast("bigint"))))
    found = images.join(done, on=is_same, how="left").withColumn("todo", todo)
    return found.where("todo != 0").select(*images.columns, "todo")


def _begin(table: MetadataTable, views: tuple[FeatureView, ...], *, plan: FeaturizePlan) -> FeatureOrder:
    run_id, control = new_ingest_id(), table.control
    titles = ",".join(view.title for view in views)
    taken = take_run(control, table=table.name, kind="features", dataset=table.dataset, source=titles, ingest_id=run_id)
    log.info("this is %s", taken)
    return FeatureOrder(
        cluster=control.located,
        data=plan.data_table,
        metadata=plan.metadata_table,
        columns=plan.columns,
        views=views,
        run=in_session(taken, table.spark),
        run_id=run_id,
        timeout=plan.timeout,
        counters=Counters(table.spark.sparkContext),
    )


def _compute(lacking: DataFrame, *, order: FeatureOrder, images: int, size: int) -> list[Row]:
    """Compute and write what images lack; the sums of `COUNTS` by view."""
    cores = lacking.sparkSession.sparkContext.defaultParallelism
    tasks = task_count(rows=images, size=size, cores=cores)
    spread = lacking.repartition(tasks, "id").select(*(column.split()[0] for column in ROWS.split(", ")))
    counts = map_batches(spread, task=partial(compute_features, order=order), schema=COUNTS)
    summed = counts.groupBy("view").agg(F.sum("computed").alias("computed"), F.sum("failed").alias("failed"))
    group, description = f"features {order.run_id}", f"compute {', '.join(view.title for view in order.views)}"
    rows = collect_watched(
        summed, group=group, description=description, counters=order.counters, files=images, allowed=images
    )
    return rows or []


def _write_offline(
    table: MetadataTable, views: Sequence[FeatureView], *, output: Publication, plan: FeaturizePlan
) -> dict[str, int]:
    """Write the values that all images have now to Parquet; the number of rows by view."""
    for view in views:
        log.info("write %s to %s", view.title, plan.offline)
        write_values(output, view, current_values(table, view))
    return {one.view: one.rows for one in publish_features(output, views, metadata=table.name).views}


def _probe(table: MetadataTable, draft: FeatureView, *, plan: FeaturizePlan) -> dict[str, str]:
    """The fields of a new view, from the values of two images that agree: a single image may be an exception, for which
    its function returns something else. Raises `FunctionError`.
    """
    control, names = table.control, plan.columns
    ids = control.execute(f'SELECT "{names.id}" AS id FROM {plan.metadata_table.quoted} LIMIT {_PROBES}')
    query = f'SELECT "{names.data}" AS data FROM {plan.data_table.quoted} WHERE "{names.id}" = ?'
    reason = f"no images in {plan.metadata_table}"
    model, seen = None, list[dict[str, str]]()
    if isinstance(draft.source, Onnx):
        model = models.send(table.spark, draft.source.file, digest=draft.digest)
    with closing(Child(draft, timeout=plan.timeout, model=model)) as child:
        for row in ids:
            for found in control.execute(query, (row.id,)):
                if found.data is not None:
                    fields, failure = child.fields(found.data)
                    if fields is None:
                        reason = failure
                        continue
                    agreed = [both for one in seen if (both := agreed_fields(one, fields)) is not None]
                    if agreed:
                        return agreed[0]
                    seen.append(fields)
    if seen:
        return seen[0]
    raise FunctionError(
        f"Wanted a value of {draft.source} for one of the first {_PROBES} images, from which the type of {draft.name} "
        f"follows. Found: {reason}"
    )
