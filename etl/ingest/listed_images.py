"""The listed images of a source, for an ingest or a verification, and their counts."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.errors import SourceError
from etl.frames import joined_by_id, kept, pictures_in_rows
from etl.ingest.plan import IngestPlan
from etl.secrets import secrets_on_executors
from etl.sources.entries import NO_CLASS_FOLDERS, Listing, text
from etl.sources.labels.values import LabelMeaning
from etl.sources.listing import ListedSource, list_source
from etl.sources.plan import SourcePlan
from etl.sources.tar_members import FAULTS
from etl.sources.trees import local_path
from etl.tables.class_numbers import class_names
from formats.image_names import OUTSIDE
from formats.sizes import counted

log = logging.getLogger("imagestrata.ingest")
_SHOWN = 5
Keep = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class ListingCounts:
    """The counts of a listing."""

    files: int = 0
    bytes: int = 0
    rejected: int = 0
    classes: frozenset[str] = frozenset()
    images_by_split: dict[str, int] = field(default_factory=dict)
    rejected_by_reason: dict[str, int] = field(default_factory=dict)
    tops: dict[str, tuple[int, int]] = field(default_factory=dict)  # the usable files of each class, those deeper down

    @classmethod
    def of(cls, rows: Iterable[Row], *, classes: Iterable[str]) -> "ListingCounts":
        """Sum up the rows of `count_entries`; ``classes`` has further class names."""
        rows = list(rows)
        taken = [row for row in rows if row.kind is None]
        splits: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        tops: dict[str, tuple[int, int]] = {}
        for row in rows:
            if row.kind is None:
                splits[row.or_split] += row.files
                images, deeper = tops.get(row.or_label or "", (0, 0))
                tops[row.or_label or ""] = images + row.files, deeper + row.deeper
            else:
                reasons[row.kind] += row.files
        return cls(
            files=sum(row.files for row in rows),
            bytes=sum(row.bytes for row in taken),
            rejected=reasons.total(),
            classes=frozenset({row.or_label for row in taken if row.or_label is not None} | set(classes)),
            images_by_split=dict(sorted(splits.items())),
            rejected_by_reason=dict(sorted(reasons.items())),
            tops=tops,
        )

    @property
    def images_by_class(self) -> dict[str, int]:
        """The number of images of each class."""
        return {name: self.tops.get(name, (0, 0))[0] for name in self.classes}


def count_entries(entries: DataFrame) -> DataFrame:
    """Count files, bytes and files in deeper folders by split, class and kind of rejection; null for usable files."""
    kind = F.substring_index("reason", ": ", 1)
    label = F.when(F.col("reason").isNull(), F.col("or_label"))
    by = (F.col("or_split").cast("string").alias("or_split"), label.alias("or_label"), kind.alias("kind"))
    path = F.col("path").cast("string")
    deeper = F.count_if(F.substring_index(path, "/", 2) != path)
    return entries.groupBy(*by).agg(F.count("*").alias("files"), F.sum("bytes").alias("bytes"), deeper.alias("deeper"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedImages:
    """The images of a source."""

    source: ListedSource
    entries: DataFrame  # persisted, without the bytes of images
    counts: ListingCounts
    faults: tuple[str, ...] = ()  # a line for each archive that may have more images than are listed

    @classmethod
    def of(
        cls, spark: SparkSession, plan: SourcePlan, *, dataset: str, keep: Keep, known: Collection[str] = ()
    ) -> "ListedImages":
        """List a source; ``keep`` persists what is used several times, and ``known`` has the names of the dataset's
        classes, whose spelling counts. Runs Spark. Raises `SourceError` for a source without usable files, or other
        labels.
        """
        source = list_source(spark, plan, dataset=dataset, keep=keep)
        entries = keep(source.listing.names)
        classes = source.listing.classes
        is_bucket = not source.listing.has_archives and local_path(plan.address) is None
        if classes and is_bucket:  # an object that only marks a folder makes no class
            classes &= {row.or_label for row in entries.select("or_label").distinct().collect()}
        counts = ListingCounts.of(entries.transform(count_entries).collect(), classes=classes)
        if not counts.files:
            raise SourceError(f"Wanted images in {plan.address}. Found: no files.")
        source.check(entries)
        source, entries, counts = _with_classes(source, entries, counts, plan=plan, known=known)
        if counts.rejected == counts.files:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.rejected_by_reason.items())
            hint = f" {NO_CLASS_FOLDERS}" if OUTSIDE in counts.rejected_by_reason else ""
            raise SourceError(f"Wanted images in {plan.address}. Found: no usable files: {reasons}.{hint}")
        faults = _archive_faults(entries) if counts.rejected_by_reason.keys() & {*FAULTS} else ()
        source = replace(source, remarks=(*source.remarks, *faults))
        return cls(source=source, entries=entries, counts=counts, faults=faults)

    @property
    def listing(self) -> Listing:
        """The images as the source listed them."""
        return self.source.listing

    def without(self, done: DataFrame | None) -> DataFrame:
        """The entries without those that are done, with their bytes if the listing has them."""
        if not self.listing.has_data:
            return self.entries if done is None else self.entries.join(done.select("id"), on="id", how="left_anti")
        if done is None:
            return self.listing.entries
        return joined_by_id(self.listing.entries, done.select("id"), how="left_anti")


def _with_classes(
    source: ListedSource, entries: DataFrame, counts: ListingCounts, *, plan: SourcePlan, known: Collection[str]
) -> tuple[ListedSource, DataFrame, ListingCounts]:
    """Replace the texts of labels by the classes that they mean. Raises `SourceError`."""
    meaning = LabelMeaning.of(counts.classes, plan=plan, order=source.listing.order, known=known)
    remarks = meaning.remarks
    if left_out := sum(counts.images_by_class[text] for text in meaning.left_out):
        if left_out == counts.files - counts.rejected:
            raise SourceError(
                f"Wanted images with a label in {plan.address}. Found: all {left_out:,} have the label of --no-label "
                f"{plan.no_label}. Set --label-type none to ingest them without labels."
            )
        images = counted(left_out, "image")
        remarks = (*remarks, f"{images} with the label {plan.no_label} left out, as --no-label says")
    source = replace(source, remarks=(*source.remarks, *remarks))
    if meaning.is_literal:
        return source, entries, counts
    source = source.with_classes(meaning)
    entries = entries.transform(meaning.apply)
    rows = entries.transform(count_entries).collect()
    return source, entries, ListingCounts.of(rows, classes=source.listing.classes)


def _archive_faults(entries: DataFrame) -> tuple[str, ...]:
    """A line for each archive with faults, for the first few of them. Runs Spark."""
    faults = entries.where(F.substring_index("reason", ": ", 1).isin(*FAULTS))
    first = F.min(F.struct("offset", "path", "reason")).alias("first")
    by_place = faults.groupBy("place").agg(F.count("*").alias("faults"), first).orderBy("place")
    rows = by_place.limit(_SHOWN + 1).collect()
    lines = []
    for row in rows[:_SHOWN]:
        more = f", and {counted(row.faults - 1, 'more fault')}" if row.faults > 1 else ""
        lines.append(f"{text(bytes(row.place))}: {row['first'].reason} ({text(bytes(row['first'].path))}{more})")
    return (*lines, *(["more archives have faults"] if len(rows) > _SHOWN else []))


def list_images(spark: SparkSession, control: Control | None, *, plan: IngestPlan, stack: ExitStack) -> ListedImages:
    """List the source of an ingest. Secrets and settings for its tasks are set until the stack is closed."""
    known: Collection[str] = ()
    if control is not None and plan.source.label_type == "int":
        known = class_names(control, keyspace=plan.tables.metadata.keyspace, dataset=plan.dataset)
    stack.enter_context(secrets_on_executors(spark))
    log.info("list %s", plan.source.name)
    images = ListedImages.of(spark, plan.source, dataset=plan.dataset, keep=partial(kept, stack=stack), known=known)
    if images.listing.has_data:
        stack.enter_context(pictures_in_rows(spark))
    return images
