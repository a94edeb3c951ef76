"""The versions of label views, and the labels that images have in them.

All versions of a label view are columns of one table. A version has the labels of its file, for the images that the
file names; other images keep the label of the version before, and at last that of the metadata table. A label counts
for the bytes that it was made for (`corrections`).
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.cassandra.registry import label_views_of, registered_views
from etl.cassandra.tables import read_table, uuid_text
from etl.columns import column, ours
from etl.errors import TableError
from etl.frames import small_table
from etl.labels.corrections import Seen, State, is_replaced
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import FINISHED, STARTED, RecordedRun, recorded_runs
from schemas import Columns, TableName
from schemas.features import FeatureView, ViewName
from schemas.tables import DELETED, PRUNED, label_bucket

REPLACED = ours("replaced")
"""The column that `with_labels` adds."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelVersions:
    """A version of a label view of a metadata table, and all before it, looked up once."""

    metadata: TableName
    views: tuple[FeatureView, ...]  # the newest first
    recorded: frozenset[str]  # the columns that the table of the labels has; old versions have only the labels
    # images (text) that were deleted after the first of these versions, and their corrections with them; None if there
    # are none; ``until`` is the last run that deleted them
    deleted: DataFrame | None = None

    @property
    def title(self) -> str:
        """The name with the newest version: ``label@v2``."""
        return self.views[0].title

    @property
    def table(self) -> TableName:
        """The table of the labels."""
        return self.views[0].table_of(self.metadata)

    @property
    def needs_since(self) -> bool:
        """Whether a version did not record what it corrected, so that the runs since which images are there decide."""
        return not all(view.label_columns.keys() <= self.recorded for view in self.views)

    @property
    def names(self) -> list[str]:
        """The columns of `read`, without the id."""
        names = [self._own(name) for view in self.views for name in view.label_columns if name in self.recorded]
        return names if self.deleted is None else [*names, self._own("deleted")]

    def _own(self, name: str) -> str:
        return ours(f"{self.views[0].name} {name}")

    def read(self, spark: SparkSession) -> DataFrame:
        """The labels of images, and what they were made for: ``id`` (text) and the columns `names`."""
        names = [name for view in self.views for name in view.label_columns if name in self.recorded]
        rows = read_table(spark, self.table, columns=["id", *names])
        rows = rows.select("id", *(F.col(name).alias(self._own(name)) for name in names))
        if self.deleted is None:
            return rows
        return rows.join(self.deleted.withColumnRenamed("until", self._own("deleted")), on="id", how="full")

    def correction(self, *, now: State, uses_replaced: bool = False) -> Column:
        """The ``label`` of an image and the ``run`` that added it, from the columns `names`: of the newest version that
        names it and was made for what the image is ``now``, or for anything; null if there is none.
        """
        each = []
        for label, seen in self._corrections():
            counts = label.isNotNull() if uses_replaced else label.isNotNull() & ~is_replaced(seen, now)
            run = F.lit(seen.run).cast("bigint").alias("run")
            each.append(F.when(counts, F.struct(label.alias("label"), run)))
        return F.coalesce(*each)

    def replaced(self, *, now: State, uses_replaced: bool = False) -> Column:
        """Whether an image was replaced since the version that gives its label, or with none that counts, since any
        that names it; or whether it was deleted since.
        """
        each = ((label.isNotNull(), is_replaced(seen, now)) for label, seen in self._corrections())
        # an older version counts again if an image has its bytes of then
        found = [F.when(named & (F.lit(uses_replaced) | ~other), other) for named, other in each]
        is_named = F.coalesce(*(F.when(label.isNotNull(), F.lit(True)) for label, _ in self._corrections()))
        return F.coalesce(*found, is_named, self.forgotten.isNotNull())

    @property
    def forgotten(self) -> Column:
        """The run that deleted an image and what versions said of it; null if there is none."""
        return F.lit(None).cast("bigint") if self.deleted is None else F.col(self._own("deleted"))

    def _corrections(self) -> Iterator[tuple[Column, Seen]]:
        for view in self.views:
            label, sha256, before = (F.col(self._own(name)) for name in view.label_columns)
            is_recorded = view.label_columns.keys() <= self.recorded
            told = known_state(since=None, sha256=sha256, label=before)
            yield label, Seen(view.sequence or 0, *(told[1:] if is_recorded else ()))


def known_state(*, since: Column | None, sha256: Column | None, label: Column) -> State:
    """What images are, from columns with nulls; None for columns that are missing."""
    nothing = F.expr("X''")
    return State(
        F.lit(0) if since is None else since,
        nothing if sha256 is None else F.coalesce(sha256, nothing),
        F.coalesce(label, F.lit(-1)),
    )


def versions_of(table: MetadataTable, view: ViewName, *, until: int | None = None) -> LabelVersions | None:
    """A version of a label view (without a number, the newest one) and all before it. Raises `TableError` if there is
    no such version, or a later run than ``until`` added it. Without a number, None if all are later.
    """
    metadata, views = table.name, label_views(table.control, table.name, name=view.name)
    if until is not None:
        later = [one for one in views if (one.sequence or 0) > until]
        if view.version is not None and (named := [one for one in later if one.version == view.version]):
            raise TableError(
                f"Wanted labels that {metadata} had as of run {until}. Found: {view}, which run {named[0].sequence} "
                f"added. Use --label-view {view.name} for the newest version of that run or before."
            )
        views = [one for one in views if one not in later]
        if view.version is None and later and not views:
            return None  # the labels then were those of the metadata
    found = [one for one in views if view.version is None or one.version <= view.version]
    if not found or (view.version is not None and found[0].version != view.version):
        there = ", ".join(one.title for one in views) or "none"
        then = "" if until is None else f" as of run {until}"
        raise TableError(
            f"Wanted the labels {view} of {metadata}{then}. Found: {there}. jobs/relabel.py adds versions."
        )
    return opened_versions(table, found)


def opened_versions(table: MetadataTable, views: Sequence[FeatureView]) -> LabelVersions:
    """Versions of one label view, the newest first, with the columns of their table."""
    columns = (table.control.columns(views[0].table_of(table.name)) or {}).keys()
    deleted = None
    if table.history is not None:
        first = views[-1].sequence or 0
        rows = table.replaced().where((F.col("kind") == DELETED) & (F.col("until") > first))
        deleted = rows.groupBy("id").agg(F.max("until").alias("until"))
    return LabelVersions(metadata=table.name, views=tuple(views), recorded=frozenset(columns), deleted=deleted)


def unfinished_labels(
    runs: Sequence[RecordedRun], versions: LabelVersions | None, /, *, until: int
) -> list[RecordedRun]:
    """The runs up to ``until`` that may still register a version of a label view: after that, the labels as of this run
    are others. ``versions`` are those of `versions_of` until then.
    """
    newest = 0 if versions is None else versions.views[0].sequence or 0
    return [run for run in runs if run.kind == "labels" and run.state == STARTED and newest < run.sequence <= until]


def labels_of_image(control: Control, metadata: TableName, image: uuid.UUID, *, now: State) -> dict[str, int]:
    """The corrections of an image, by the title of their version: the newest one of each label view that counts for
    what the image is ``now``, and newer ones as ``label@v2 (replaced since)``.
    """
    found: dict[str, int] = {}
    counted: set[str] = set()
    for view in label_views(control, metadata):  # the newest version first
        values = view.table_of(metadata)
        there = (control.columns(values) or {}).keys()
        names = [name for name in view.label_columns if name in there]
        if view.name in counted or view.column not in names:
            continue
        query = f"SELECT {', '.join(names)} FROM {values.quoted} WHERE bucket = ? AND id = ?"
        for label, *seen in control.execute(query, (label_bucket(image), image)):
            if label is None:
                continue
            sha256, before = seen or (None, None)
            told = Seen(view.sequence or 0, sha256 or b"", -1 if before is None else before)
            is_old = is_replaced(told if seen else Seen(view.sequence or 0), now)
            found[f"{view.title} (replaced since)" if is_old else view.title] = label
            counted |= set() if is_old else {view.name}
    return found


def with_labels(
    rows: DataFrame, /, *, versions: LabelVersions | None, columns: Columns, uses_replaced: bool = False
) -> DataFrame:
    """Replace the labels of images (ids as text) by the newest ones of these versions that were made for what the
    images are in these rows, or with ``uses_replaced`` for anything. Adds the column `REPLACED`: whether the image was
    replaced since the newest version that names it. ``rows`` have ``sha256`` if the table has it, and ``since`` if the
    versions need it.
    """
    if versions is None:
        return rows
    now = known_state(
        since=F.col("since") if versions.needs_since else None,
        sha256=F.col("sha256") if "sha256" in rows.columns else None,
        label=F.col(columns.label),
    )
    of_image = ours("id")
    values = versions.read(rows.sparkSession).withColumnRenamed("id", of_image)
    joined = rows.join(values, on=F.col(columns.id) == F.col(of_image), how="left")
    found = versions.correction(now=now, uses_replaced=uses_replaced)
    label = F.coalesce(found["label"], columns.label).alias(columns.label)
    shown = (label if name == columns.label else column(name) for name in rows.columns)
    return joined.select(*shown, versions.replaced(now=now, uses_replaced=uses_replaced).alias(REPLACED))


def label_values(table: MetadataTable, view: ViewName) -> tuple[DataFrame, LabelVersions]:
    """The labels of a version of a label view and of all before it, as values of a feature view: ``id`` (text),
    ``sequence`` and ``event_timestamp`` of the run that wrote a label, and `LabelVersions.names` as they were after
    this run; a row for each version that names an image, and for the first one, what was deleted since. Raises
    `TableError`.
    """
    versions = versions_of(table, view)
    assert versions is not None  # without a run until which they count
    # Now, not those of the opened table: a version may have been added since.
    clocks = {run.sequence: run.clock for run in recorded_runs(table.control, table.name)}
    rows, each = versions.read(table.spark), []
    for number, one in enumerate(versions.views):
        then = replace(versions, views=versions.views[number:]).names
        known = [(F.col(name) if name in then else F.lit(None)).alias(name) for name in versions.names]
        run = F.lit(one.sequence).cast("bigint").alias("sequence")
        started = F.timestamp_micros(F.lit(clocks[one.sequence or 0])).alias("event_timestamp")
        is_named = F.col(then[0]).isNotNull()
        if one == versions.views[-1]:
            is_named |= versions.forgotten.isNotNull()
        each.append(F.when(is_named, F.struct(run, started, *known)))
    return rows.select("id", F.inline(F.array_compact(F.array(*each)))), versions


def states_in_time(table: MetadataTable) -> DataFrame:
    """The states of images, now and earlier, as values of a feature view.
    These are ``id`` (text), ``sequence`` and ``event_timestamp`` of the run since which the image has the state, which
    is ``since`` too, ``label`` and ``sha256``: a row for each state of an image, and one without label and ``sha256``
    for each removal."""
    rows = table.rows(["since", "label", "sha256"]).withColumn("id", uuid_text("id"))
    state = (F.coalesce("since", F.lit(0)).alias("sequence"), "label", "sha256")
    states = rows.select("id", *state)
    if table.history is not None:  # otherwise the metadata is read once
        states = states.union(_earlier_states(table.replaced(), rows, state=state))
    clocks = {"sequence": [0, *table.clocks], "clock": [0, *table.clocks.values()]}
    known = F.broadcast(small_table(table.spark, clocks, "sequence BIGINT, clock BIGINT"))
    joined = states.join(known, on="sequence", how="left")
    started = F.timestamp_micros(F.coalesce("clock", F.lit(0))).alias("event_timestamp")
    return joined.select("id", "sequence", started, F.col("sequence").alias("since"), "label", "sha256")


def _earlier_states(history: DataFrame, rows: DataFrame, *, state: Sequence[Column | str]) -> DataFrame:
    """The states that runs replaced or removed, and a row without values for each removal."""
    # An image that outlived a run which pruned was not removed: that run was killed, or a later one wrote it again.
    removed = history.where(F.col("kind").isin(DELETED, PRUNED)).select("id", "until", "kind")
    removed = removed.join(rows.select("id", "since"), on="id", how="left")
    removed = removed.where((F.col("kind") == DELETED) | F.col("since").isNull() | (F.col("since") >= F.col("until")))
    none = (F.lit(None).cast("int").alias("label"), F.lit(None).cast("binary").alias("sha256"))
    return history.where(F.col("sha256").isNotNull()).select("id", *state).union(removed.select("id", "until", *none))
