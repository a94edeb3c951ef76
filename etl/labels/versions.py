"""The versions of label views, and the labels that images have in them.

All versions of a label view are columns of one table. A version has the labels of its file, for the images that the
file names; other images keep the label of the version before, and at last that of the metadata table.
"""

import uuid
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.cassandra.registry import label_views_of, registered_views
from etl.cassandra.tables import read_table, uuid_text
from etl.columns import column, ours
from etl.errors import TableError
from etl.frames import small_table
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import FINISHED, recorded_runs
from schemas import Columns, TableName
from schemas.features import FeatureView, ViewName
from schemas.tables import DELETED, PRUNED, label_bucket


def label_views(control: Control, metadata: TableName, *, name: str | None = None) -> list[FeatureView]:
    """The versions of a label view of a metadata table, or of all by name, the newest first."""
    return registered_views(control, keyspace=metadata.keyspace, name=name, kind=label_views_of(metadata))


def next_version(control: Control, metadata: TableName, *, name: str) -> int:
    """The number of the next version of a label view: no other version ever had it, also none that was removed."""
    known = label_views(control, metadata, name=name)
    columns = (control.columns(metadata.derived(f"_{name}")) or {}).keys()
    finished = (run for run in recorded_runs(control, metadata) if run.state == FINISHED)  # once it was registered
    ever = sum(f"run_{run.sequence}" in columns for run in finished)
    return max([ever, *(view.version for view in known)]) + 1


def newest_label_views(control: Control, metadata: TableName, *, until: int | None = None) -> list[FeatureView]:
    """The newest version of each label view of a metadata table, by name; without those of runs after ``until``."""
    newest: dict[str, FeatureView] = {}
    for view in label_views(control, metadata):
        if until is None or (view.sequence or 0) <= until:
            newest.setdefault(view.name, view)
    return [newest[name] for name in sorted(newest)]


def versions_of(
    control: Control, metadata: TableName, view: ViewName, *, until: int | None = None
) -> list[FeatureView]:
    """A version of a label view (without a number, the newest one) and all before it, the newest first.
    Raises `TableError` if there is no such version, or a later run than ``until`` added it. Without a number, there are
    none if all are later."""
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


def labels_of_image(control: Control, metadata: TableName, image: uuid.UUID) -> dict[str, int]:
    """The label of an image in each label view that has one, by the title of the version that it comes from."""
    found: dict[str, tuple[str, int]] = {}
    for view in label_views(control, metadata):  # the newest version first
        values = view.table_of(metadata)
        if view.name not in found and control.columns(values) is not None:
            query = f'SELECT "{view.column}" AS label FROM {values.quoted} WHERE bucket = ? AND id = ?'
            for row in control.execute(query, (label_bucket(image), image)):
                if row.label is not None:
                    found[view.name] = (view.title, row.label)
    return dict(found.values())


def with_labels(
    rows: DataFrame, /, *, metadata: TableName, versions: Sequence[FeatureView], columns: Columns
) -> DataFrame:
    """Replace the labels of images (ids as text) by the newest ones of these versions, where they have one.
    ``versions`` are those of `versions_of`, the newest first.
    """
    if not versions:
        return rows
    names = [view.column for view in versions]
    values = read_table(rows.sparkSession, versions[0].table_of(metadata), columns=["id", *names])
    of_image, newest = ours("id"), ours("label")
    labels = values.select(F.col("id").alias(of_image), F.coalesce(*names).alias(newest))
    joined = rows.join(labels, on=F.col(columns.id) == F.col(of_image), how="left")
    label = F.coalesce(newest, columns.label).alias(columns.label)
    return joined.select(*(label if name == columns.label else column(name) for name in rows.columns))


def label_values(table: MetadataTable, view: ViewName) -> DataFrame:
    """The labels of a version of a label view and of all before it, as values of a feature view: ``id`` (text),
    ``sequence`` and ``event_timestamp`` of the run that wrote the label, and the class number in a column with the name
    of the view; a row for each version that names an image. Raises `TableError`.
    """
    versions = versions_of(table.control, table.name, view)
    # Now, not those of the opened table: a version may have been added since.
    clocks = {run.sequence: run.clock for run in recorded_runs(table.control, table.name)}
    rows = read_table(table.spark, versions[0].table_of(table.name), columns=["id", *(one.column for one in versions)])
    each = [
        F.struct(
            F.lit(one.sequence).cast("bigint").alias("sequence"),
            F.timestamp_micros(F.lit(clocks[one.sequence or 0])).alias("event_timestamp"),
            F.col(one.column).alias(view.name),
        )
        for one in versions
    ]
    return rows.select("id", F.inline(F.array(*each))).where(F.col(view.name).isNotNull())


def states_in_time(table: MetadataTable) -> DataFrame:
    """The states of images, now and earlier, as values of a feature view.
    These are ``id`` (text), ``sequence`` and ``event_timestamp`` of the run since which the image has the state,
    ``label`` and ``sha256``: a row for each state of an image, and one without values for each removal."""
    rows = table.rows(["since", "label", "sha256"]).withColumn("id", uuid_text("id"))
    state = (F.coalesce("since", F.lit(0)).alias("sequence"), "label", "sha256")
    states = rows.select("id", *state)
    if table.history is not None:  # otherwise the metadata is read once
        states = states.union(_earlier_states(table.replaced(), rows, state=state))
    clocks = {"sequence": [0, *table.clocks], "clock": [0, *table.clocks.values()]}
    known = F.broadcast(small_table(table.spark, clocks, "sequence BIGINT, clock BIGINT"))
    joined = states.join(known, on="sequence", how="left")
    started = F.timestamp_micros(F.coalesce("clock", F.lit(0))).alias("event_timestamp")
    return joined.select("id", "sequence", started, "label", "sha256")


def _earlier_states(history: DataFrame, rows: DataFrame, *, state: Sequence[Column | str]) -> DataFrame:
    """The states that runs replaced or removed, and a row without values for each removal."""
    # An image that outlived a run which pruned was not removed: that run was killed, or a later one wrote it again.
    removed = history.where(F.col("kind").isin(DELETED, PRUNED)).select("id", "until", "kind")
    removed = removed.join(rows.select("id", "since"), on="id", how="left")
    removed = removed.where((F.col("kind") == DELETED) | F.col("since").isNull() | (F.col("since") >= F.col("until")))
    none = (F.lit(None).cast("int").alias("label"), F.lit(None).cast("binary").alias("sha256"))
    return history.select("id", *state).union(removed.select("id", "until", *none))
