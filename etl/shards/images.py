"""The images to pack, from a source, two tables or a split, with their class numbers, in one DataFrame."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.batches import arrow_schema
from etl.cassandra.control import Control, check_columns
from etl.errors import TableError
from etl.frames import small_table
from etl.ingest.listed_images import Keep, ListedImages
from etl.ingest.mask_frames import check_mask_frames
from etl.ingest.writing.tasks import task_count
from etl.shards.packing import position_order
from etl.shards.plan import ShardPlan
from etl.shards.reading import PictureTable
from etl.shards.rows import SAMPLES
from etl.shards.tables import ChosenSplit, table_entries
from etl.sources.folder_counts import check_class_level
from etl.sources.labels.values import class_numbers
from etl.sources.plan import SourcePlan
from etl.splits.positions import seeded_order
from etl.tables.class_numbers import class_names
from etl.tables.earlier import EarlierMetadata
from etl.tables.metadata_table import MetadataTable
from etl.tables.removal import kept_in
from formats.checksums import COLUMN as CHECKSUM
from formats.checksums import UNKNOWN
from formats.sizes import counted
from schemas import Columns, SchemaError, TableName
from schemas.tables import LabelType

_COLUMNS = arrow_schema(SAMPLES).names


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """The images: ``samples`` has the columns of `SAMPLES`, and ``data`` if rows contain the image bytes. ``bare`` has
    the same rows without ``data``, persisted. For ``access``, see `Listing`. ``fingerprint`` is that of a split, else
    None. ``pictures`` and ``metadata_table`` are the tables that the images come from, if any. ``as_of`` is the run
    whose images they are, if they are not the newest ones. ``copies`` are replaced bytes that are kept, as
    `MetadataTable.copies`. ``remarks`` are lines for the report.
    """

    samples: DataFrame
    bare: DataFrame
    access: str
    label_type: LabelType
    class_names: Mapping[int, str]
    source: str
    fingerprint: str | None = None
    pictures: PictureTable | None = None
    metadata_table: TableName | None = None
    as_of: int | None = None
    copies: DataFrame | None = None
    remarks: tuple[str, ...] = ()

    @property
    def has_data(self) -> bool:
        """Whether rows contain the image bytes."""
        return "data" in self.samples.columns

    def content(self, fingerprint: str, /) -> dict[str, Any]:
        """What a manifest says of the images. ``fingerprint`` is that of their names and sizes, which counts if there
        is no split.
        """
        return {
            "label_type": self.label_type,
            "class_names": self.class_names,
            "source": self.source,
            "source_fingerprint": self.fingerprint or fingerprint,
        }


def open_images(spark: SparkSession, *, plan: ShardPlan, keep: Keep) -> Images:
    """List the images to pack. ``keep`` persists DataFrames that are used several times. Raises the errors of `etl`."""
    split = None
    if plan.split is not None:
        try:
            split = ChosenSplit.open(plan.split, plan.index)
        except SchemaError as error:
            raise TableError(str(error)) from None
    if plan.source is not None:
        images = _of_source(spark, plan.source, split, plan=plan, keep=keep)
    else:
        images = _of_tables(spark, split, plan, keep=keep)
    return _in_order(images, seed=plan.seed, keep=keep) if split is None else _chosen(spark, images, split, keep=keep)


def _of_source(
    spark: SparkSession, source: SourcePlan, split: ChosenSplit | None, *, plan: ShardPlan, keep: Keep
) -> Images:
    dataset = plan.dataset or (split.metadata_table.keyspace if split is not None else "")
    images = ListedImages.of(spark, source, dataset=dataset, keep=keep)
    check_class_level(images.entries, tops=images.counts.tops, listing=images.listing, plan=source)
    if source.label_type == "blob" and plan.recode.mask_frame is None:
        cores = spark.sparkContext.defaultParallelism
        tasks = task_count(rows=images.counts.files, size=images.counts.bytes, cores=cores)
        check_mask_frames(images.without(None), listing=images.listing, tasks=tasks)
    numbers = _numbers(source, images.counts.classes, order=images.listing.order)
    labels = small_table(spark, {"or_label": [*numbers], "label": [*numbers.values()]}, "or_label STRING, label INT")

    def numbered(frame: DataFrame) -> DataFrame:
        frame = frame.withColumn(CHECKSUM, F.lit(None).cast("long"))  # of bytes in a table, which can be recoded ones
        if not numbers:
            return frame.withColumn("label", F.lit(None).cast("int"))
        return frame.join(F.broadcast(labels), on="or_label", how="left")

    name = source.name + (f"?{options}" if (options := str(plan.recode)) else "")
    return Images(
        samples=numbered(images.without(None)),
        bare=numbered(images.entries),
        access=images.listing.access,
        label_type=source.label_type,
        class_names={number: name for name, number in numbers.items()},
        source=name,
        remarks=tuple(images.source.report_lines()),
    )


def _numbers(source: SourcePlan, names: Collection[str], *, order: Sequence[str]) -> dict[str, int]:
    """The number of each class: its name if that is a number, else its place in ``order``, else its rank."""
    if source.label_type != "int":
        return {}
    numbers = class_numbers(names, plan=source)
    return {name: number for number, name in enumerate(order or sorted(names))} if numbers is None else numbers


def _of_tables(spark: SparkSession, split: ChosenSplit | None, plan: ShardPlan, *, keep: Keep) -> Images:
    data, metadata, columns = plan.data_table, plan.metadata_table, plan.columns
    if split is not None:
        data, metadata = data or split.data_table, metadata or split.metadata_table
        columns = split.manifest.columns if columns == Columns() else columns
    assert data is not None
    assert metadata is not None
    with Control.from_spark(spark) as control:
        check_columns(control, data, columns=[columns.id, columns.data])
        check_columns(control, metadata, columns=[columns.id])
        table = MetadataTable.open(spark, control, metadata, columns=columns)
        kind = table.label_type(data)
        earlier = EarlierMetadata.open(table, label_type=kind, as_of=plan.as_of, skips=plan.skip_replaced)
        entries = table_entries(table, data=data, kind=kind, earlier=earlier)
        numbers = class_names(control, keyspace=metadata.keyspace, dataset=table.dataset)
        cluster, kept = control.located, kept_in(control, data)
    half: tuple[str, ...] = ()
    if split is None:  # the images of a split must all be there
        entries, half = table.without_half_deleted(entries)
    remarks: tuple[str, ...] = ()
    if earlier is not None:
        entries = keep(entries)
        entries.count()
        earlier.confirm()
        entries, remarks = earlier.checked(entries)
    return Images(
        samples=entries,
        bare=entries,
        access="random",
        label_type=kind,
        class_names={label: name for name, label in numbers.items()} if kind == "int" else {},
        source=f"table:{data}",
        pictures=PictureTable(cluster, data, columns, kind, kept),
        metadata_table=metadata,
        as_of=None if earlier is None else earlier.sequence,
        copies=None if kept is None else table.copies(),
        remarks=(*half, *remarks),
    )


def _in_order(images: Images, *, seed: int, keep: Keep) -> Images:
    def ordered(frame: DataFrame) -> DataFrame:
        return _selected(frame.withColumn("order", seeded_order(seed)))

    bare = ordered(images.bare)
    if images.pictures is not None:  # from a scan of a table; a listing is persisted already
        bare = keep(bare)
    return replace(images, samples=ordered(images.samples) if images.has_data else bare, bare=bare)


def _chosen(spark: SparkSession, images: Images, split: ChosenSplit, *, keep: Keep) -> Images:
    """The images of a split, in its order and with its class numbers."""
    rows, manifest = len(split.rows), split.manifest
    chosen = keep(split.frame(spark))

    def ordered(frame: DataFrame) -> DataFrame:
        joined = frame.join(chosen, on="id", how="inner").withColumn("order", position_order(rows))
        if images.copies is not None:
            joined = joined.transform(_with_kept, copies=images.copies)
        if images.pictures is not None:  # the metadata may have lost its own
            of_split = F.when(F.col("split_checksum") != UNKNOWN, F.col("split_checksum"))
            joined = joined.withColumn(CHECKSUM, F.coalesce(CHECKSUM, of_split))
        return joined.withColumn("label", F.col("split_label")) if manifest.label_type == "int" else joined

    bare = keep(ordered(images.bare))
    if (found := bare.count()) != rows:
        raise TableError(
            f"Wanted the {rows:,} images of {split.address} in {images.source}. Found: {found:,} of them. "
            "Was the split made from these images, and from this --dataset?"
        )
    _check_bytes(bare, split=split)
    names = manifest.class_names
    if not names and manifest.label_type == "int":  # a dictionary, whose numbers may differ
        named = bare.where("or_label IS NOT NULL").groupBy("label").agg(F.min("or_label").alias("name"))
        names = {row.label: row.name for row in named.collect()}
    return replace(
        images,
        samples=_selected(ordered(images.samples) if images.has_data else bare),
        bare=_selected(bare),
        class_names=names or (images.class_names if images.pictures is not None else {}),
        fingerprint=split.fingerprint,
    )


def _with_kept(joined: DataFrame, /, *, copies: DataFrame) -> DataFrame:
    """The images of a split, with checksum and size of the bytes that it names where these are kept."""
    named = copies.select("id", F.col(CHECKSUM).alias("split_checksum"), F.col("bytes").alias("kept_bytes"))
    is_kept = F.col("kept_bytes").isNotNull() & (F.col("split_checksum") != F.col(CHECKSUM))
    found = joined.join(named, on=["id", "split_checksum"], how="left")
    return found.withColumns(
        {
            "bytes": F.when(is_kept, F.col("kept_bytes")).otherwise(F.col("bytes")),
            CHECKSUM: F.when(is_kept, F.col("split_checksum")).otherwise(F.col(CHECKSUM)),
        }
    )


def _check_bytes(bare: DataFrame, *, split: ChosenSplit) -> None:
    """Raise `TableError` if images have other bytes than when the split was made."""
    is_known = F.col("split_checksum") != UNKNOWN
    changed = bare.where(is_known & (F.col("split_checksum") != F.col(CHECKSUM)))
    if count := changed.count():
        first = UUID(bytes=bytes(changed.select("id").take(1)[0]["id"]))
        raise TableError(
            f"Wanted the images of {split.address} with the bytes that they had when it was made. Found: "
            f"{counted(count, 'image')} with others, replaced since; the first is {first}. Make the split again."
        )


def _selected(frame: DataFrame) -> DataFrame:
    return frame.select(*_COLUMNS, *(["data"] if "data" in frame.columns else []))
