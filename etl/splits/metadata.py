"""The input of a split: a metadata table, copied once to Parquet, or a metadata cache.

Counting and choosing must see the same rows, so the table is read only once. The copy of a run is in its attempt and is
removed with it. A cache (Parquet files and ``cache.json``) is kept, and can be used without Cassandra.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from etl.cassandra.control import Control, check_columns
from etl.cassandra.tables import read_table, uuid_bytes
from etl.columns import check_theirs, column, ours
from etl.errors import TableError
from etl.expressions import names_in
from etl.features.columns import LACKS, Fields, check_complete, find_fields, metadata_columns, with_fields
from etl.features.services import with_services
from etl.labels.versions import (
    REPLACED,
    LabelVersions,
    newest_label_views,
    unfinished_labels,
    versions_of,
    with_labels,
)
from etl.splits.plan import LABELS, SplitPlan
from etl.splits.positions import added_up, fingerprint_sums
from etl.tables.class_numbers import class_names
from etl.tables.earlier import THEN, EarlierMetadata
from etl.tables.metadata_table import OF_THE_INGEST, MetadataTable
from etl.tables.runs import expiring, unfinished
from etl.writing.publication import Kind, Publication
from formats import checksums
from formats.origin import created
from formats.splits.fingerprint import rows_fingerprint
from formats.stores.storage import Storage
from schemas import Columns, SchemaError, SplitFile, TableName
from schemas.cache import NAME as MANIFEST
from schemas.cache import CacheManifest
from schemas.feature_sources import typed
from schemas.features import FeatureView, ViewName
from schemas.manifest import NEWER

ID_AND_LABEL = ("id", "label")
CLASS_NAME = "or_label"  # the column with the class names if the tables have no list of classes
_SIMPLE = re.compile(
    r"ascii|bigint|blob|boolean|date|double|float|int|smallint|text|timestamp|tinyint|uuid|varchar|varint"
)
CHECKSUM = ours("checksum")  # the column with the checksums of images, if the table has those of this data table
EXPIRES = ours("expires")  # the column with the time at which an image expires, if images of the table do
_EXPIRY = ("ingested_at", "ingest_id")
# The fields that `Metadata` has in common with the manifests of caches and splits.
_IN_MANIFESTS = (
    *("columns", "label_type", "class_names", "features", "label_view", "labels_of_replaced"),
    *("as_of", "sequence", "unfinished"),
)
_ROWS = "rows"
_CACHE = Kind(
    new="metadata",
    old="cache",
    otherwise="read it with --metadata-ifn",
    manifests=(MANIFEST,),
    folders=_ROWS.__eq__,
    files=re.compile(f"{_ROWS}/.*").fullmatch,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The rows of a metadata table, ``id, label`` and others, and the properties of the tables. ``label`` is -1 if
    labels are not class numbers. ``cache`` is the manifest of the cache that the rows come from, until they have been
    compared with it.
    """

    rows: DataFrame
    data_table: TableName
    metadata_table: TableName
    columns: Columns
    label_type: str
    class_names: Mapping[int, str]
    cache: CacheManifest | None = None
    features: tuple[str, ...] = ()  # the feature views that columns come from, with their versions
    stored: tuple[FeatureView, ...] = ()  # the feature views whose values are stored beside the split
    services: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the feature services that name some of them
    label_view: str | None = None  # the version of the label view that the labels come from
    labels_of_replaced: str | None = None  # as in a split manifest, as ``replaced``
    replaced: int = 0
    as_of: int | None = None  # the run whose rows these are, if they are not the newest ones
    sequence: int | None = None  # the newest run when the table was read; None if no run is recorded
    unfinished: tuple[int, ...] = ()  # the runs that could still write images then
    warnings: tuple[str, ...] = ()
    expires: str | None = None  # when the first images of the split expire, ISO 8601, UTC

    @property
    def in_manifests(self) -> dict[str, Any]:
        """What the manifests of caches and splits say of the metadata, by their fields."""
        tables = {"data_table": str(self.data_table), "metadata_table": str(self.metadata_table)}
        class_names = dict(sorted(self.class_names.items()))
        return {**tables, **{name: getattr(self, name) for name in _IN_MANIFESTS}, "class_names": class_names}

    @property
    def stratify_by(self) -> str:
        """The default column to stratify by; none for images without classes."""
        return {"int": "label", "multi": LABELS}.get(self.label_type, "")


def no_images(metadata: Metadata) -> TableError:
    """The error if there are no images to choose from, with what was left out of an earlier run."""
    if metadata.as_of is None and not metadata.warnings:
        return TableError(
            f"Wanted images in {metadata.metadata_table}. Found: an empty table. Fill it with jobs/ingest.py."
        )
    then = "" if metadata.as_of is None else f" as of run {metadata.as_of}"
    told = "".join(f" {warning[:1].upper()}{warning[1:]}." for warning in metadata.warnings)
    remedy = "" if metadata.as_of is None else " Set --as-of to a later run."
    return TableError(f"Wanted images in {metadata.metadata_table}{then}. Found: none.{told}{remedy}")


def read_cache(spark: SparkSession, address: str, *, plan: SplitPlan) -> Metadata:
    """Open a metadata cache, and check that its files are unchanged. Raises `TableError` if there is no cache, the
    cache is of other tables than the plan's, or files were changed.
    """
    storage = Storage(address)
    try:
        manifest = CacheManifest.from_json(storage.read_text(MANIFEST), place=f"{storage.address}/{MANIFEST}")
    except (FileNotFoundError, NotADirectoryError):
        raise TableError(
            f"Wanted a metadata cache at {storage.address}. Found: no {MANIFEST} there. Make one with --metadata-ofn."
        ) from None
    except SchemaError as error:
        raise TableError(str(error)) from None
    for wanted, found in ((plan.data_table, manifest.data_table), (plan.metadata_table, manifest.metadata_table)):
        if wanted is not None and str(wanted) != found:
            raise TableError(f"Wanted a metadata cache of {wanted} at {storage.address}. Found: one of {found}.")
    if plan.columns not in (Columns(), manifest.columns):
        names, found = (f"{each.id}, {each.label}, {each.data}" for each in (plan.columns, manifest.columns))
        raise TableError(f"Wanted a metadata cache of columns {names} at {storage.address}. Found: one of {found}.")
    paths = [storage.url(file.path) for file in manifest.files]
    if missing := [file.path for file in manifest.files if not storage.exists(file.path)]:
        raise TableError(f"Wanted the files of the metadata cache {storage.address}. Found: no {missing[0]}.")
    schema = _schema(storage, manifest)
    rows = (spark.read.schema(schema) if schema else spark.read).parquet(*paths)
    if manifest.format == 1 and ("expires", "timestamp") in rows.dtypes:  # ours, or one of the table: nobody can tell
        raise TableError(
            f"Wanted a metadata cache of format 2 at {storage.address}, because it has a column expires. Found: format "
            "1, in which this may be the time when images expire. Make a new cache with --metadata-ofn."
        )
    return Metadata(
        rows=rows if manifest.label_type == "int" else rows.withColumn("label", F.lit(-1)),
        data_table=TableName.parse(manifest.data_table),
        metadata_table=TableName.parse(manifest.metadata_table),
        cache=manifest,
        **{name: getattr(manifest, name) for name in _IN_MANIFESTS},
        warnings=()
        if manifest.as_of is None
        else (f"{storage.address} has the images as of run {manifest.as_of}, not the newest ones",),
    )


def _schema(storage: Storage, manifest: CacheManifest) -> StructType | None:
    """The schema that Spark stored in the files, so that Spark need not infer it; None for files of other writers."""
    for file in manifest.files[:1]:
        try:
            with storage.open(file.path) as stream:
                told = pq.read_metadata(stream).metadata or {}
        except pa.ArrowInvalid as error:
            raise TableError(
                f"Wanted Parquet files in the metadata cache {storage.address}. "
                f"Found: {file.path} is damaged ({error}). Make the cache again with --metadata-ofn."
            ) from None
        if text := told.get(b"org.apache.spark.sql.parquet.row.metadata"):
            return StructType.fromJson(json.loads(text))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """The tables of a plan, and what is read with their rows. ``has_label`` is whether the data table has labels,
    ``relabelled`` the versions of the label view that labels come from, ``unused`` the label views that the plan does
    not use, ``pinned`` the feature views whose values are stored, and ``services`` those that it names.
    """

    table: MetadataTable
    data: TableName
    label_type: str
    has_label: bool
    classes: Mapping[str, int]
    is_key: bool
    earlier: EarlierMetadata | None
    relabelled: LabelVersions | None
    unused: Sequence[FeatureView]
    views: Sequence[Fields]
    pinned: Sequence[ViewName]
    services: Mapping[str, tuple[str, ...]]

    @classmethod
    def open(cls, spark: SparkSession, *, plan: SplitPlan) -> "_Tables":
        """Look the tables up. Raises `TableError`, `UnreachableError`."""
        data, name, names = plan.data_table, plan.metadata_table, plan.columns
        if data is None or name is None:
            raise TableError("Wanted a data table and a metadata table. Found: neither.")
        with Control.from_spark(spark) as control:
            check_columns(control, data, columns=[names.id, names.data])
            check_columns(control, name, columns=[names.id])
            table = MetadataTable.open(spark, control, name, columns=names)
            label_type = table.label_type(data)
            has_label = label_type != "none"
            if not has_label and names.label in table.fields:
                label_type = "int"  # labels that only the metadata has, unless all are null
            if not has_label and LABELS in table.fields:
                label_type = "multi"
            if label_type == "int" and (kind := table.fields.get(names.label, "no such column")) != "int":
                raise TableError(f"Wanted whole numbers (int) in {name}.{names.label}. Found: {kind}")
            earlier = EarlierMetadata.open(table, label_type=label_type, as_of=plan.as_of, skips=plan.skip_replaced)
            until = None if earlier is None else earlier.sequence
            asked = {*plan.named_columns, *(names_in(plan.where) if plan.where else ())}
            asked -= {*table.fields, *ID_AND_LABEL}
            dataset = plan.dataset or table.dataset
            pinned, services = with_services(control, plan.features, keyspace=name.keyspace)
            return cls(
                table=table,
                data=data,
                label_type=label_type,
                has_label=has_label,
                classes=class_names(control, keyspace=name.keyspace, dataset=dataset),
                is_key=control.key(name) == [names.id],
                earlier=earlier,
                relabelled=versions_of(table, plan.label_view, until=until) if plan.label_view else None,
                unused=() if plan.label_view else newest_label_views(control, name, until=until),
                views=find_fields(control, name, names=asked, pinned=pinned),
                pinned=pinned,
                services=services,
            )

    @property
    def fields(self) -> list[str]:
        """The columns that are features."""
        return [name for view in self.views for name in view.names]

    def of_labels(self, plan: SplitPlan) -> list[str]:
        """Warnings about label views that are not used, and about versions that may still come."""
        told = [_of_label_view(view, self.table.name) for view in self.unused]
        if plan.label_view is not None and plan.label_view.version is None and self.earlier is not None:
            told += [
                f"{run} has not finished: it was killed, or can still add labels of that time"
                for run in unfinished_labels(self.table.runs, self.relabelled, until=self.earlier.sequence)
            ]
        return told

    def others(self, plan: SplitPlan, *, only: Sequence[str] | None) -> list[str]:
        """The columns of the table that are copied, besides id and label. Raises `TableError` for missing ones."""
        found, names = self.table.fields, self.table.columns
        others = [name for name, kind in found.items() if _SIMPLE.fullmatch(kind) or (name == LABELS and "int" in kind)]
        left_out = {*ID_AND_LABEL, names.id, names.label, *OF_THE_INGEST, *self.fields}
        others = [name for name in others if name not in left_out and '"' not in name]  # the connector cannot read "
        check_theirs(others, place=self.table.name)
        if missing := [name for name in plan.named_columns if name not in (*ID_AND_LABEL, *others, *self.fields)]:
            raise TableError(
                f"Wanted the column {missing[0]} in the metadata of {self.table.name}, or a feature that featurize.py "
                f"has computed. Found: {', '.join((*ID_AND_LABEL, *sorted(others)))}."
            )
        if only is None:
            return others
        wanted = {*only, *(() if self.classes else (CLASS_NAME,))}
        return [name for name in others if name in wanted]

    def rows(self, others: Sequence[str], *, uses_replaced: bool) -> DataFrame:
        """``id``, ``label``, these columns, and what later steps need of features, labels, expiry and earlier runs."""
        table, names, earlier = self.table, self.table.columns, self.earlier
        ttls = expiring(table.runs)
        has_number = self.label_type == "int"
        read = [names.id, *([names.label] if has_number else []), *others]
        relabelled = self.relabelled
        read += ["sha256"] if (self.views or relabelled) and "sha256" in table.fields else []
        if relabelled is not None and relabelled.needs_since:
            read += [name for name in ("ingest_id", "since") if name in table.fields]
        read += [*sorted(metadata_columns(self.views)), *(earlier.needed if earlier else [])]
        read += _EXPIRY if ttls else ()
        has_checksums = table.has_checksums(self.data)
        read += [checksums.COLUMN] if has_checksums else []
        of_table = read_table(table.spark, table.name, columns=list(dict.fromkeys(read)))
        if earlier is not None:
            of_table = earlier.rows(of_table)
        elif relabelled is not None and relabelled.needs_since:
            of_table = of_table.transform(table.with_since)
        if relabelled is not None:
            if not has_number:
                raise TableError(
                    f"Wanted images of one class each, for --label-view. Found: labels of type {self.label_type}."
                )
            of_table = of_table.transform(with_labels, versions=relabelled, columns=names, uses_replaced=uses_replaced)
        label = F.col(names.label) if has_number else F.lit(-1)
        of_then = earlier is not None
        return of_table.transform(with_fields, fields=self.views, key=names.id, of_then=of_then).select(
            uuid_bytes(names.id).alias("id"),
            label.cast("int").alias("label"),
            *(
                uuid_bytes(column(name)).alias(name) if table.fields[name] == "uuid" else column(name)
                for name in others
            ),
            *self.fields,
            *([expires_at(ttls)] if ttls else []),
            *([F.col(checksums.COLUMN).alias(CHECKSUM)] if has_checksums else []),
            *(f"`{LACKS} {number}`" for number in range(len(self.views))),
            *([THEN] if earlier and earlier.states else []),
            *([REPLACED] if relabelled else []),
        )

    def usable(self, rows: DataFrame, *, address: str | None) -> tuple[DataFrame, tuple[str, ...]]:
        """Copy rows to ``address`` if there is one, without images that are deleted or replaced; and warnings. Raises
        `TableError` for ids that occur twice, and if a run replaces or removes images in the meantime.
        """
        earlier = self.earlier
        rows, told = self.table.without_half_deleted(rows)
        if earlier is not None:
            if earlier.states is not None and address is not None:  # read the table once
                rows = _copied(rows, f"{address}-then")
            rows, of_then = earlier.checked(rows)
            told = (*told, *of_then)
        if address is not None:
            rows = _copied(rows, address)
            if not self.is_key and (repeated := count_repeated(rows)):
                place = f"{self.table.name} ({self.table.columns.id})"
                raise TableError(f"Wanted each id once in {place}. Found: {repeated:,} more than once.")
        if earlier is not None:
            earlier.confirm()
        return rows, told


def copy_table(spark: SparkSession, address: str | None, *, plan: SplitPlan, only: Sequence[str] | None) -> Metadata:
    """Copy a metadata table to Parquet files at ``address``, once: ids, labels, and the columns in ``only``, or all.
    Class names are copied too if no table lists them. Without an address, the rows are read from the table each time.
    Raises `TableError` for tables that are missing, empty or have other columns; `UnreachableError`.
    """
    tables = _Tables.open(spark, plan=plan)
    table, label_type = tables.table, tables.label_type
    copied = tables.rows(tables.others(plan, only=only), uses_replaced=plan.labels_of_replaced != NEWER)
    rows, told = tables.usable(copied, address=address)
    rows, warnings = check_complete(rows, fields=tables.views, metadata=table.name, data=tables.data)
    if label_type == "int" and not tables.has_label and rows.where(F.col("label").isNotNull()).isEmpty():
        label_type, rows = "none", rows.withColumn("label", F.lit(-1))
    pinned = {view.name for view in tables.pinned}
    return Metadata(
        rows=rows,
        data_table=tables.data,
        metadata_table=table.name,
        columns=table.columns,
        label_type=label_type,
        class_names={number: name for name, number in tables.classes.items()},
        features=tuple(one.view.title for one in tables.views),
        stored=tuple(one.view for one in tables.views if one.view.name in pinned),
        services=tables.services,
        label_view=tables.relabelled.title if tables.relabelled else None,
        labels_of_replaced=plan.labels_of_replaced if tables.relabelled else None,
        as_of=None if tables.earlier is None else tables.earlier.sequence,
        sequence=table.newest,
        unfinished=tuple(sorted(run.sequence for run in unfinished(table.runs))),
        warnings=(*told, *warnings, *tables.of_labels(plan)),
    )


def _of_label_view(view: FeatureView, metadata: TableName) -> str:
    return (
        f"the labels are those of {metadata}, not those of {view.title} ({typed(view.source)}), which "
        f"relabel.py has added: split.py --label-view {view.name} takes them"
    )


def _copied(rows: DataFrame, address: str) -> DataFrame:
    rows.write.option("compression", "zstd").parquet(address)
    return rows.sparkSession.read.parquet(address)


def expires_at(ttls: Mapping[str, int]) -> Column:
    """When an image expires at the earliest, as the column `EXPIRES`, from ``ingest_id`` and ``ingested_at``; null for
    never. ``ttls`` has seconds by ingest id.
    """
    ttl = F.create_map(*(F.lit(value) for one in ttls.items() for value in one))[F.col("ingest_id")]
    return F.timestamp_seconds(F.unix_timestamp("ingested_at") + ttl).alias(EXPIRES)


def first_expiry(rows: DataFrame, *, metadata: Metadata) -> tuple[int, str | None]:
    """The number of images that expire, each once, and when the first of them does (ISO 8601, UTC); None if there are
    none. Runs Spark if the table has any.
    """
    if EXPIRES not in metadata.rows.columns:
        return 0, None
    known = metadata.rows.where(F.col(EXPIRES).isNotNull()).select("id", EXPIRES)
    found = known.join(rows.select("id").distinct(), on="id", how="left_semi")
    (row,) = found.agg(F.count("*").alias("images"), F.min(F.unix_timestamp(EXPIRES)).alias("first")).collect()
    first = row["first"]
    return row["images"], None if first is None else datetime.fromtimestamp(first, tz=UTC).isoformat()


def count_replaced(rows: DataFrame, *, metadata: Metadata) -> int:
    """The number of images that were replaced since their label was corrected, each once. Runs Spark if the labels come
    from a label view.
    """
    if REPLACED not in metadata.rows.columns:
        return 0
    known = metadata.rows.where(F.col(REPLACED)).select("id")
    return known.join(rows.select("id").distinct(), on="id", how="left_semi").count()


def count_repeated(rows: DataFrame) -> int:
    """The number of ids that occur more than once."""
    return rows.groupBy("id").count().where("count > 1").count()


def sums() -> list[Column]:
    """Aggregates of a cache's rows: ``rows``, and the sums of its fingerprint, ``high0, low0, high1, low1``."""
    return [F.count("*").alias("rows"), *fingerprint_sums("id", "label")]


def cache_folder(address: str, *, overwrite: bool) -> Publication:
    """A metadata cache in the making. Raises `OutputExistsError` unless the folder is free, or may be replaced."""
    return Publication(address, _CACHE, overwrite=overwrite)


def summed_by_file(rows: DataFrame) -> list[dict[str, Any]]:
    """The `sums` of each file of rows that are read from Parquet, as ``file``. Runs Spark."""
    by_file = rows.withColumn(ours("file"), F.input_file_name()).groupBy(F.col(ours("file")).alias("file"))
    return [row.asDict() for row in by_file.agg(*sums()).collect()]


def publish_cache(folder: Publication, metadata: Metadata, *, summed: Sequence[Mapping[str, Any]]) -> CacheManifest:
    """Publish the files of rows that were written aside; ``summed`` is what `summed_by_file` found in them."""
    # The names are new: until the new manifest is there, the old one names the old files.
    moved = {
        f"{_ROWS}/{row['file'].rpartition('/')[2]}": SplitFile(f"{_ROWS}/{number:05}-{folder.tag}.parquet", row["rows"])
        for number, row in enumerate(sorted(summed, key=lambda row: str(row["file"])))
    }
    folder.move_in({source: file.path for source, file in moved.items()})
    count = sum(file.rows for file in moved.values())
    manifest = CacheManifest(
        **metadata.in_manifests,
        rows=count,
        fingerprint=rows_fingerprint(rows=count, sums=added_up(summed)),
        files=tuple(moved.values()),
        created=created(),
    )
    folder.publish(manifest.to_json(), files=[file.path for file in manifest.files])
    return manifest
