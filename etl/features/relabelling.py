"""Labels with a history: a label file becomes the next version of a label view.

All versions of a label view are in one table. A version has the labels of its file, for the images that the file names;
other images keep the label of the version before, and at last that of the metadata table. A version counts when it is
registered, which is the last step: rows of a run that did not get there are never read.
"""

import hashlib
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra import registry
from etl.cassandra.control import Control, check_columns
from etl.cassandra.tables import append_rows, read_table, uuid_text
from etl.columns import column, ours
from etl.errors import ConflictError, SourceError, TableError
from etl.features.plan import RelabelPlan
from etl.features.views import register_view, registered_views
from etl.frames import kept, small_table
from etl.secrets import driver_storage, secrets_on_executors
from etl.sources.labels.files import read_labels
from etl.sources.labels.matching import label_by_file, unmatched_labels
from etl.tables.class_numbers import class_names, take_numbers
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import new_ingest_id, recorded_runs
from etl.tables.sequence import create_sequence, take_run
from etl.tables.table_records import check_pair, dataset_of, record_of
from schemas import Columns, TableName
from schemas.feature_sources import Labels
from schemas.features import FeatureView, ViewName
from schemas.tables import DELETED, PRUNED, add_label_column, create_label_values

log = logging.getLogger("imagestrata.relabel")

_SHOWN = 5
_CHUNK = 1 << 20
_NOT_NAMED = "no label: not in "


@dataclass(frozen=True, slots=True, kw_only=True)
class RelabelReport:
    """What a run wrote: the version, and the number of images that the file names and whose label it changes."""

    metadata_table: str
    view: str
    is_new: bool
    images: int
    changed: int
    new_classes: list[str]
    sequence: int
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        if not self.is_new:
            return f"{self.view} of {self.metadata_table} has these labels already"
        more = f", and the new classes {', '.join(self.new_classes)}" if self.new_classes else ""
        return (
            f"{self.view} of {self.metadata_table}: labels of {self.images:,} images, {self.changed:,} of them other "
            f"than before{more}, in {self.seconds:,.1f} s. Use them: split.py --label-view {self.view}"
        )


def run(spark: SparkSession, *, plan: RelabelPlan) -> RelabelReport:
    """Add a version of a label view from a label file.

    Args:
        spark: The session.
        plan: The options.

    Returns:
        The report.

    Raises:
        EtlError: The file does not match the images; nothing was published.
    """
    started, table = time.monotonic(), plan.metadata_table
    with ExitStack() as stack:
        control = stack.enter_context(Control.from_spark(spark))
        stack.enter_context(secrets_on_executors(spark))
        check_columns(control, table, columns=[plan.columns.id, plan.columns.label, "or_split", "path"])
        check_pair(control, data_table=plan.data_table, metadata_table=table)
        if (record := record_of(control, table)) is not None and record.label_type != "int":
            raise ConflictError(f"Wanted images of one class each in {table}. Found: {record.content}.")
        known = label_views(control, table, name=plan.view)
        digest = _digest(spark, plan)
        if known and known[0].digest == digest:
            return RelabelReport(
                metadata_table=str(table), view=known[0].title, is_new=False, images=0, changed=0, new_classes=[],
                sequence=known[0].sequence or 0, seconds=time.monotonic() - started,
            )  # fmt: skip
        before = labels_of(spark, table, known, columns=plan.columns)
        rows, new = _numbered(spark, control, kept(_labelled(spark, before, plan=plan), stack=stack), plan=plan)
        view, clock = _begin(control, plan, version=known[0].version + 1 if known else 1, digest=digest)
        _write(control, rows, view=view, table=table, clock=clock)
        changed = F.count_if(~F.col("label").eqNullSafe(F.col("number")))
        (counts,) = rows.agg(F.count("*").alias("images"), changed.alias("changed")).collect()
        register_view(control, view, keyspace=table.keyspace, kind=registry.label_views_of(table))
    return RelabelReport(
        metadata_table=str(table), view=view.title, is_new=True, images=counts["images"], changed=counts["changed"],
        new_classes=new, sequence=view.sequence or 0, seconds=time.monotonic() - started,
    )  # fmt: skip


def _begin(control: Control, plan: RelabelPlan, *, version: int, digest: str) -> tuple[FeatureView, int]:
    """Take a run for a version: the version, which is not registered yet, and the run's clock."""
    table = plan.metadata_table
    registry.create(control, keyspace=table.keyspace)
    create_sequence(control, keyspace=table.keyspace)
    dataset = dataset_of(control, table)
    taken = take_run(
        control, table=table, kind="labels", dataset=dataset, source=plan.labels, ingest_id=new_ingest_id()
    )
    log.info("this is %s", taken)
    view = FeatureView(
        name=plan.view,
        version=version,
        fields={plan.view: "int"},
        source=Labels(plan.labels.rpartition("/")[2]),
        digest=digest,
        sequence=taken.sequence,
    )
    return view, taken.clock


def _write(control: Control, rows: DataFrame, *, view: FeatureView, table: TableName, clock: int) -> None:
    """Write class numbers to the column of a version. Creates the column and its table if they are missing."""
    values = view.table_of(table)
    if control.columns(values) is None:
        log.info("create table %s", values)
        control.define(create_label_values(values, view.column))
    if view.column not in (control.columns(values) or {}):
        control.define(add_label_column(values, view.column))
    label = F.col("number").alias(view.column)
    written = rows.select(_bucket().alias("bucket"), uuid_text("id").alias("id"), label)
    append_rows(written, table=values, clock=clock)


def label_views(control: Control, metadata: TableName, *, name: str) -> list[FeatureView]:
    """The versions of a label view of a metadata table, the newest first."""
    return registered_views(control, keyspace=metadata.keyspace, name=name, kind=registry.label_views_of(metadata))


def newest_label_views(control: Control, metadata: TableName, *, until: int | None = None) -> list[FeatureView]:
    """The newest version of each label view of a metadata table.

    Args:
        control: The session.
        metadata: The metadata table.
        until: The last run whose version counts; None for all.

    Returns:
        The versions, by name.
    """
    newest: dict[str, FeatureView] = {}
    for view in registered_views(control, keyspace=metadata.keyspace, kind=registry.label_views_of(metadata)):
        if until is None or (view.sequence or 0) <= until:
            newest.setdefault(view.name, view)  # the newest comes first
    return [newest[name] for name in sorted(newest)]


def versions_of(
    control: Control, metadata: TableName, view: ViewName, *, until: int | None = None
) -> list[FeatureView]:
    """A version of a label view and all before it, the newest first.

    Args:
        control: The session.
        metadata: The metadata table.
        view: The version; without a number, the newest one.
        until: The last run whose version counts; None for all.

    Returns:
        The versions; none if the first one is later than ``until``, and no number was given.

    Raises:
        TableError: There is no such version, or it is later than ``until``.
    """
    views = label_views(control, metadata, name=view.name)
    if until is not None:
        later = [one for one in views if (one.sequence or 0) > until]
        if view.version is not None and (named := [one for one in later if one.version == view.version]):
            raise TableError(
                f"Wanted labels that {metadata} had as of run {until}. Found: {view}, which run {named[0].sequence} "
                f"added. Use --label-view {view.name} for the newest version of that run or before."
            )
        views = [one for one in views if one not in later]
        if view.version is None and later and not views:
            return []  # the labels then were those of the metadata
    found = [one for one in views if view.version is None or one.version <= view.version]
    if not found or (view.version is not None and found[0].version != view.version):
        there = ", ".join(one.title for one in views) or "none"
        then = "" if until is None else f" as of run {until}"
        raise TableError(
            f"Wanted the labels {view} of {metadata}{then}. Found: {there}. jobs/relabel.py adds versions."
        )
    return found


def label_values(spark: SparkSession, control: Control, metadata: TableName, view: ViewName) -> DataFrame:
    """The labels of a version of a label view and of all before it, as values of a feature view.

    Args:
        spark: The session.
        control: The session for small queries.
        metadata: The metadata table.
        view: The version; without a number, the newest one.

    Returns:
        ``id`` (text), ``sequence`` and ``event_timestamp`` of the run that wrote the label, and the class number in a
        column with the name of the view. Images have a row for each version that names them.

    Raises:
        TableError: There is no such version.
    """
    versions = versions_of(control, metadata, view)
    clocks = {run.sequence: run.clock for run in recorded_runs(control, metadata)}
    rows = read_table(spark, versions[0].table_of(metadata), columns=["id", *(one.column for one in versions)])
    each = [
        F.struct(
            F.lit(one.sequence).cast("bigint").alias("sequence"),
            F.timestamp_micros(F.lit(clocks[one.sequence or 0])).alias("event_timestamp"),
            F.col(one.column).alias(view.name),
        )
        for one in versions
    ]
    return rows.select("id", F.inline(F.array(*each))).where(F.col(view.name).isNotNull())


def ingested_labels(spark: SparkSession, control: Control, metadata: TableName) -> DataFrame:
    """The labels that images were ingested with, now and earlier, as values of a feature view.

    Args:
        spark: The session.
        control: The session for small queries.
        metadata: The metadata table.

    Returns:
        ``id`` (text), ``sequence`` and ``event_timestamp`` of the run since which the image has the label, and
        ``label``. Images have a row for each of their states, and one without a label for each removal.
    """
    table = MetadataTable.open(spark, control, metadata)
    rows = table.rows(["since", "label"]).select(uuid_text("id").alias("id"), F.col("since").alias("sequence"), "label")
    if (history := table.replaced()) is not None:
        earlier = history.select("id", F.coalesce("since", F.lit(0)).alias("sequence"), "label")
        removed = history.where(F.col("kind").isin(DELETED, PRUNED))
        rows = rows.union(earlier).union(removed.select("id", "until", F.lit(None).cast("int").alias("label")))
    clocks = {"sequence": [0, *table.clocks], "clock": [0, *table.clocks.values()]}
    known = F.broadcast(small_table(spark, clocks, "sequence BIGINT, clock BIGINT"))
    joined = rows.join(known, on="sequence", how="left")
    started = F.timestamp_micros(F.coalesce("clock", F.lit(0))).alias("event_timestamp")
    return joined.select("id", "sequence", started, "label")


def labels_of(
    spark: SparkSession, metadata: TableName, versions: Sequence[FeatureView], *, columns: Columns
) -> DataFrame:
    """The images of a metadata table with their labels in the first of these versions of a label view.

    Args:
        spark: The session.
        metadata: The metadata table.
        versions: A version of a label view and all before it, the newest first.
        columns: The names of the id and label columns.

    Returns:
        ``id`` (text), ``or_split, path, label``: the newest label of these versions, else that of the metadata table.
    """
    rows = read_table(spark, metadata, columns=[columns.id, columns.label, "or_split", "path"])
    found = with_labels(spark, rows, metadata, versions, columns=columns)
    return found.select(F.col(columns.id).alias("id"), F.col(columns.label).alias("label"), "or_split", "path")


def with_labels(
    spark: SparkSession, rows: DataFrame, metadata: TableName, versions: Sequence[FeatureView], *, columns: Columns
) -> DataFrame:
    """Replace the labels of images by those of the first of these versions of a label view, where they have one.

    Args:
        spark: The session.
        rows: Rows of the metadata table, as `read_table` returns them.
        metadata: The metadata table.
        versions: A version of a label view and all before it, the newest first.
        columns: The names of the id and label columns.

    Returns:
        The rows with the same columns.
    """
    if not versions:
        return rows
    names = [view.column for view in versions]
    values = read_table(spark, versions[0].table_of(metadata), columns=["id", *names])
    of_image, newest = ours("id"), ours("label")
    labels = values.select(F.col("id").alias(of_image), F.coalesce(*names).alias(newest))
    joined = rows.join(labels, on=F.col(columns.id) == F.col(of_image), how="left")
    label = F.coalesce(newest, columns.label).alias(columns.label)
    return joined.select(*(label if name == columns.label else column(name) for name in rows.columns))


def _bucket() -> Column:
    """`schemas.tables.label_bucket` of the column ``id``, 16 bytes."""
    return F.conv(F.substring(F.hex("id"), 1, 3), 16, 10).cast("int")


def _labelled(spark: SparkSession, before: DataFrame, *, plan: RelabelPlan) -> DataFrame:
    """The images that the file names: ``id`` (16 bytes), ``label`` before, ``or_label``. Raises `SourceError`."""
    entries = before.select(
        F.unhex(F.replace("id", F.lit("-"), F.lit(""))).alias("id"),
        F.encode(F.coalesce("or_split", F.lit("")), "UTF-8").alias("or_split"),
        F.encode("path", "UTF-8").alias("path"),
        "label",
        *(F.lit(None).cast("string").alias(name) for name in ("or_label", "group_id", "reason")),
    )
    labels = read_labels(spark, plan.labels, path_column=plan.path_column, label_column=plan.label_column)
    name = plan.labels.rpartition("/")[2]
    if strays := unmatched_labels(entries, labels=labels).limit(_SHOWN + 1).collect():
        raise SourceError(
            f"Wanted paths of images of {plan.metadata_table} in {plan.labels}. Found: paths that no image has: "
            f"{_listed([row['name'] for row in strays])}"
        )
    found = label_by_file(entries, labels=labels, name=name)
    named = found.where(F.col("reason").isNull() | ~F.col("reason").startswith(_NOT_NAMED))
    if wrong := named.where(F.col("reason").isNotNull()).limit(_SHOWN + 1).collect():
        lines = [f"{bytes(row['path']).decode(errors='replace')}: {row['reason']}" for row in wrong]
        raise SourceError(f"Wanted one label for each path in {plan.labels}. Found: {_listed(lines)}")
    return named.select("id", "label", "or_label")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _numbered(
    spark: SparkSession, control: Control, labelled: DataFrame, *, plan: RelabelPlan
) -> tuple[DataFrame, list[str]]:
    """Add the ``number`` of each ``or_label``; also the names of new classes. Raises `SourceError`, `ConflictError`."""
    names = [row["or_label"] for row in labelled.select("or_label").distinct().collect()]
    if not names:
        raise SourceError(f"Wanted labels of images in {plan.labels}. Found: an empty table.")
    keyspace, dataset = plan.metadata_table.keyspace, dataset_of(control, plan.metadata_table)
    known = class_names(control, keyspace=keyspace, dataset=dataset)
    if not known:  # splits would take the names of classes from the folders of relabelled images
        raise ConflictError(
            f"Wanted a dataset whose classes have numbers by name, in {keyspace}.classes. Found: no classes of "
            f"{dataset!r}. Labels of --class-names number, and of tables of other tools, cannot be changed."
        )
    new = sorted(set(names) - known.keys())
    if new and not plan.new_classes:
        raise SourceError(
            f"Wanted classes of dataset {dataset!r} in {plan.labels}. Found: {_listed(new)}. The classes are "
            f"{_listed(sorted(known))}. Set --new-classes if these are meant."
        )
    numbers = take_numbers(control, keyspace=keyspace, dataset=dataset, names=names)
    columns = {"or_label": names, "number": [numbers[name] for name in names]}
    classes = F.broadcast(small_table(spark, columns, "or_label STRING, number INT"))
    return labelled.join(classes, on="or_label", how="inner"), new


def _digest(spark: SparkSession, plan: RelabelPlan) -> str:
    """The SHA-256 of the file, and of the columns that are read from it."""
    address = plan.labels
    folder, _, name = address.rpartition("/")
    digest = hashlib.sha256(repr((plan.path_column or "path", plan.label_column or "label")).encode())
    try:
        with driver_storage(spark, folder or ".").open(name) as file:
            while piece := file.read(_CHUNK):
                digest.update(piece)
    except FileNotFoundError:
        raise SourceError(f"Wanted a label file at {address}. Found: nothing there.") from None
    return digest.hexdigest()
