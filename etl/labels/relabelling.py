"""The steps of a run that makes a label file the next version of a label view.

A version counts when it is registered, which is the last step: rows of a run that did not get there are never read.
"""

import hashlib
import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra import registry
from etl.cassandra.control import Control, check_columns
from etl.cassandra.registry import check_view_name, register_view
from etl.cassandra.tables import append_rows, uuid_bytes, uuid_text
from etl.columns import ours
from etl.errors import ConflictError, SourceError
from etl.frames import kept, small_table
from etl.labels.plan import RelabelPlan
from etl.labels.versions import REPLACED, LabelVersions, label_views, next_version, opened_versions, with_labels
from etl.secrets import driver_storage, secrets_on_executors
from etl.sources.labels.files import opened, read_labels
from etl.sources.labels.matching import label_by_file, unmatched_labels
from etl.sources.labels.values import bare
from etl.tables.class_numbers import class_names, take_numbers
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import new_ingest_id
from etl.tables.sequence import Run, create_sequence, finish_run, take_run
from etl.tables.table_records import check_pair, check_values_table
from etl.workers import map_batches
from formats.sizes import counted
from schemas import Columns, TableName
from schemas.feature_sources import Labels
from schemas.features import FeatureView
from schemas.identity import image_ids
from schemas.tables import add_columns, create_label_values

log = logging.getLogger("imagestrata.relabel")

_SHOWN = 5
_OF_NAMES = "name STRING, id BINARY"
_CHUNK = 1 << 20
_NOT_NAMED = "no label: not in "
_SEEN = (ours("sha256"), ours("label"))
"""The columns with what an image is when it gets a label: its SHA-256, and its class number in the metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelabelReport:
    """What a run wrote: the version, and the number of images that the file names and whose label it changes."""

    metadata_table: str
    view: str
    is_new: bool
    images: int
    changed: int
    new_classes: list[str]
    deleted: int  # paths of images that were deleted, which are left out
    deleted_paths: list[str]  # the first of them
    sequence: int
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        paths = f"{counted(self.deleted, 'path')} of deleted images: {_listed(self.deleted_paths, of=self.deleted)}"
        told = f"left out: {paths}\n" if self.deleted else ""
        if not self.is_new:
            return f"{told}{self.view} of {self.metadata_table} has these labels already"
        more = f", and the new classes {', '.join(self.new_classes)}" if self.new_classes else ""
        return (
            f"{told}{self.view} of {self.metadata_table}: labels of {counted(self.images, 'image')}, "
            f"{self.changed:,} of them other than before{more}, in {self.seconds:,.1f} s. "
            f"Use them: split.py --label-view {self.view}"
        )


def run(spark: SparkSession, *, plan: RelabelPlan) -> RelabelReport:
    """Add a version of a label view from a label file. Raises `EtlError`, and publishes nothing, if the file does not
    match the images.
    """
    started, table = time.monotonic(), plan.metadata_table
    with ExitStack() as stack:
        control = stack.enter_context(Control.from_spark(spark))
        stack.enter_context(secrets_on_executors(spark))
        check_columns(control, table, columns=[plan.columns.id, plan.columns.label, "or_split", "path"])
        check_pair(control, data_table=plan.data_table, metadata_table=table)
        opened = MetadataTable.open(spark, control, table, columns=plan.columns)
        if opened.record is not None and opened.record.label_type != "int":
            raise ConflictError(f"Wanted images of one class each in {table}. Found: {opened.record.content}.")
        check_values_table(control, table, table.derived(f"_{plan.view}"))
        check_view_name(control, plan.view, keyspace=table.keyspace, kind=registry.label_views_of(table))
        views = label_views(control, table, name=plan.view)
        known = opened_versions(opened, views) if views else None
        digest = digest_of_labels(spark, plan)
        found = _labelled(opened, known, plan=plan)
        labelled = kept(found.images, stack=stack)
        report = partial(RelabelReport, metadata_table=str(table), deleted=found.deleted, deleted_paths=found.first)
        rows, new = _numbered(opened, labelled, deleted=found.deleted, plan=plan)
        changed = F.count_if(~F.col("label").eqNullSafe(F.col("number")))
        replaced = F.count_if(F.col(REPLACED)).alias("replaced")
        (counts,) = rows.agg(F.count("*").alias("images"), changed.alias("changed"), replaced).collect()
        # The same file is another version if images were replaced since: they have other labels now, or the labels were
        # not made for their bytes.
        if known and known.views[0].digest == digest and not counts["changed"] and not counts["replaced"]:
            return report(
                view=known.title, is_new=False, images=0, changed=0, new_classes=[],
                sequence=known.views[0].sequence or 0, seconds=time.monotonic() - started,
            )  # fmt: skip
        view, taken = _begin(opened, plan, version=next_version(control, table, name=plan.view), digest=digest)
        _check_there(opened, rows)
        _write(control, rows, view=view, table=table, clock=taken.clock)
        register_view(control, view, keyspace=table.keyspace, kind=registry.label_views_of(table))
        finish_run(control, taken)
    return report(
        view=view.title, is_new=True, images=counts["images"], changed=counts["changed"], new_classes=new,
        sequence=view.sequence or 0, seconds=time.monotonic() - started,
    )  # fmt: skip


def _begin(table: MetadataTable, plan: RelabelPlan, *, version: int, digest: str) -> tuple[FeatureView, Run]:
    """Create the table of the labels, and take a run for a version: the version, not registered yet, and the run."""
    control, name = table.control, table.name
    registry.create(control, keyspace=name.keyspace)
    create_sequence(control, keyspace=name.keyspace)
    # before the run: a deletion that begins after it finds the table
    control.create_table(values := name.derived(f"_{plan.view}"), create_label_values(values))
    taken = take_run(
        control, table=name, kind="labels", dataset=table.dataset, source=plan.labels, ingest_id=new_ingest_id()
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
    return view, taken


def _check_there(table: MetadataTable, rows: DataFrame) -> None:
    """Raise `ConflictError` if some of the images were deleted before the run was taken: their labels would be left."""
    now = MetadataTable.open(table.spark, table.control, table.name, columns=table.columns)
    deleted = now.deleted()
    gone = 0 if deleted is None else rows.join(deleted, on="id", how="left_semi").count()
    if gone:
        raise ConflictError(
            f"Wanted images of {table.name} that are not deleted while their labels are read. Found: "
            f"{counted(gone, 'image')} deleted meanwhile. Nothing was added; run this again."
        )


def _write(control: Control, rows: DataFrame, *, view: FeatureView, table: TableName, clock: int) -> None:
    """Write the labels of a version, and what they were made for. Creates the columns."""
    values = view.table_of(table)
    if view.column not in (control.columns(values) or {}):
        control.define(add_columns(values, view.label_columns))
    of_version = zip(("number", *_SEEN), view.label_columns, strict=True)
    labels = [F.col(name).alias(new) for name, new in of_version]
    written = rows.select(_bucket().alias("bucket"), uuid_text("id").alias("id"), *labels)
    append_rows(written, table=values, clock=clock)


def _bucket() -> Column:
    """`schemas.tables.label_bucket` of the column ``id``, 16 bytes."""
    return F.conv(F.substring(F.hex("id"), 1, 3), 16, 10).cast("int")


@dataclass(frozen=True, slots=True)
class _Labelled:
    """The images that a file names: ``id`` (16 bytes), ``label`` before, ``or_label``, `_SEEN` and `REPLACED`; and the
    number of paths of deleted images, with the first of them.
    """

    images: DataFrame
    deleted: int
    first: list[str]


def _labelled(table: MetadataTable, versions: LabelVersions | None, *, plan: RelabelPlan) -> _Labelled:
    """The images that the file names. Raises `SourceError`."""
    spark, (sha256, of_metadata) = table.spark, _SEEN
    needed = ["since"] if versions is not None and versions.needs_since else []
    rows = table.rows(["label", "or_split", "path", "sha256", *needed])
    if (half := table.half_deleted()) is not None:  # what an interrupted deletion left counts as deleted
        rows = rows.join(half, on="id", how="left_anti")
    rows = rows.withColumn("id", uuid_text("id"))
    rows = rows.withColumn(of_metadata, F.col("label"))
    before = rows.transform(with_labels, versions=versions, columns=Columns())
    entries = before.select(
        uuid_bytes("id").alias("id"),
        F.encode(F.coalesce("or_split", F.lit("")), "UTF-8").alias("or_split"),
        F.encode("path", "UTF-8").alias("path"),
        "label",
        F.col("sha256").alias(sha256),
        of_metadata,
        (F.lit(False) if versions is None else F.col(REPLACED)).alias(REPLACED),
        *(F.lit(None).cast("string").alias(name) for name in ("or_label", "group_id", "reason")),
    )
    labels = read_labels(spark, plan.labels, path_column=plan.path_column, label_column=plan.label_column).rows
    name = plan.labels.rpartition("/")[2]
    deleted, first = _check_strays(table, unmatched_labels(entries, labels=labels), plan=plan)
    found = label_by_file(entries, labels=labels, name=name)
    named = found.where(F.col("reason").isNull() | ~F.col("reason").startswith(_NOT_NAMED))
    if wrong := named.where(F.col("reason").isNotNull()).limit(_SHOWN + 1).collect():
        lines = [f"{bytes(row['path']).decode(errors='replace')}: {row['reason']}" for row in wrong]
        raise SourceError(f"Wanted one label for each path in {plan.labels}. Found: {_listed(lines)}")
    return _Labelled(named.select("id", "label", "or_label", *_SEEN, REPLACED), deleted, first)


def _check_strays(table: MetadataTable, strays: DataFrame, *, plan: RelabelPlan) -> tuple[int, list[str]]:
    """The number of paths that are those of deleted images, of paths that no image has (``name``), and the first of
    them. Raises `SourceError` if there are others.
    """
    names, count = _first(strays)
    if not count:
        return 0, []
    gone, deleted = strays.limit(0), table.deleted()
    if deleted is not None:
        gone = strays.transform(_with_ids, table=table).join(deleted, on="id", how="left_semi").select("name")
    first, known = _first(gone.distinct())
    if unknown := count - known:
        names, _ = _first(strays.join(gone, on="name", how="left_anti"))
        more = f", and {counted(known, 'path')} of deleted images: {_listed(first, of=known)}" if known else ""
        raise SourceError(
            f"Wanted paths of images of {plan.metadata_table} in {plan.labels}. Found: paths that no image has: "
            f"{_listed(names, of=unknown)}{more}"
        )
    return known, first


def _first(names: DataFrame) -> tuple[list[str], int]:
    return [row["name"] for row in names.orderBy("name").limit(_SHOWN).collect()], names.count()


def _with_ids(names: DataFrame, /, *, table: MetadataTable) -> DataFrame:
    """Add the ``id`` (16 bytes) of each image that may have had a path: a row for each split folder."""
    history = table.replaced().select(F.coalesce("or_split", F.lit("")).alias("split"))
    splits = [row["split"] for row in history.distinct().collect()]
    return map_batches(
        names.select("name"), task=partial(_ids_of, dataset=table.dataset, splits=splits), schema=_OF_NAMES
    )


def _ids_of(batches: Iterable[pa.RecordBatch], *, dataset: str, splits: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = ids_of_paths(batch.column(0).to_pylist(), dataset=dataset, splits=splits)
        yield pa.RecordBatch.from_arrays([[name for name, _ in found], [image for _, image in found]], ["name", "id"])


def ids_of_paths(paths: Iterable[str], *, dataset: str, splits: Sequence[str]) -> list[tuple[str, bytes]]:
    """Each path with the ids of images that may have it: in these split folders, with which it may begin."""
    number = {split: image_ids(dataset, os.fsencode(split)) for split in splits}
    return [
        (path, number[split](os.fsencode(name)))
        for path in paths
        for split in splits
        for name in dict.fromkeys((path, path.removeprefix(f"{split}/")))
    ]


def _listed(names: Sequence[str], *, of: int | None = None) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if (len(names) if of is None else of) > _SHOWN else "")


def _numbered(
    table: MetadataTable, labelled: DataFrame, *, deleted: int, plan: RelabelPlan
) -> tuple[DataFrame, list[str]]:
    """Add the ``number`` of each ``or_label``; also the names of new classes. Raises `SourceError`, `ConflictError`."""
    texts = [row["or_label"] for row in labelled.select("or_label").distinct().collect()]
    if not texts:
        found = "labels of deleted images only" if deleted else "an empty table"
        raise SourceError(f"Wanted labels of images in {plan.labels}. Found: {found}.")
    control, keyspace, dataset = table.control, table.name.keyspace, table.dataset
    known = class_names(control, keyspace=keyspace, dataset=dataset)
    if not known:  # splits would take the names of classes from the folders of relabelled images
        raise ConflictError(
            f"Wanted a dataset whose classes have numbers by name, in {keyspace}.classes. Found: no classes of "
            f"{dataset!r}. Labels of --class-names number, and of tables of other tools, cannot be changed."
        )
    # As in an ingest; a class of an earlier version may have blanks around its name.
    meant = {text: text if text in known else bare(text) for text in texts}
    if "" in meant.values():
        raise SourceError(f"Wanted a label for each path in {plan.labels}. Found: blanks alone. Leave such rows out.")
    new = sorted({*meant.values()} - known.keys())
    if new and not plan.new_classes:
        raise SourceError(
            f"Wanted classes of dataset {dataset!r} in {plan.labels}. Found: {_listed(new)}. The classes are "
            f"{_listed(sorted(known))}. Set --new-classes if these are meant."
        )
    numbers = take_numbers(control, keyspace=keyspace, dataset=dataset, names=sorted({*meant.values()}))
    columns = {"or_label": [*meant], "number": [numbers[name] for name in meant.values()]}
    classes = F.broadcast(small_table(table.spark, columns, "or_label STRING, number INT"))
    return labelled.join(classes, on="or_label", how="inner"), new


def digest_of_labels(spark: SparkSession, plan: RelabelPlan) -> str:
    """The SHA-256 of the file, and of the columns that are read from it."""
    digest = hashlib.sha256(repr((plan.path_column or "path", plan.label_column or "label")).encode())
    with opened(plan.labels, partial(driver_storage, spark)) as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest()
