"""The listing of a source for all layouts, label files, masks and arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.sources.byte_tables import list_parquet, list_table
from etl.sources.companions import attach, split_arrays, unmatched
from etl.sources.entries import Listing
from etl.sources.labels.files import class_order, has_names, lack_extensions, read_label_lines, read_labels
from etl.sources.labels.matching import check_lines, check_names, label_by_file, label_by_line, unmatched_labels
from etl.sources.labels.values import LabelMeaning
from etl.sources.plan import SourcePlan, full_address
from etl.sources.tars import list_tar
from etl.sources.trees import list_tree
from etl.sources.webdataset import describe_not_taken, list_shards

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Labels, masks or arrays without an image."""

    what: str
    names: DataFrame  # one text column, `name`

    def describe(self) -> str | None:
        """One line with their number and the first few, or None if there are none. Runs Spark."""
        count = self.names.count()
        if not count:
            return None
        first = ", ".join(row.name for row in self.names.orderBy("name").limit(_SHOWN).collect())
        return f"{count:,} {self.what} match no image: {first}{', ...' if count > _SHOWN else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSource:
    """A listed source: its images, labels without an image, and the rows of a label file."""

    listing: Listing
    leftovers: Sequence[Leftovers] = ()
    lines: DataFrame | None = None  # of a label file without names
    rows: DataFrame | None = None  # of a label file with names
    by_stem: bool = False  # whether names are compared without extensions
    labels: str = ""  # the name of the label file
    remarks: tuple[str, ...] = ()  # lines for the report

    def check(self, entries: DataFrame) -> None:
        """Raise `SourceError` if the numbers of lines and files differ, or if no row matches an image. Runs Spark."""
        if self.lines is not None:
            check_lines(entries, lines=self.lines, name=self.labels)
        if self.rows is not None:
            check_names(entries, labels=self.rows, name=self.labels, by_stem=self.by_stem)

    def with_classes(self, meaning: LabelMeaning) -> "ListedSource":
        """The source with class names instead of the texts of labels."""
        listing = self.listing
        bare = None if listing.bare is None else listing.bare.transform(meaning.apply)
        classes = frozenset(name for text in listing.classes if (name := meaning.classes.get(text)) is not None)
        listing = replace(listing, entries=listing.entries.transform(meaning.apply), bare=bare, classes=classes)
        return replace(self, listing=listing)

    def report_lines(self) -> list[str]:
        """The lines for a report: labels without an image, ignored files, and remarks. Runs Spark."""
        lines = [one.describe() for one in self.leftovers]
        if self.listing.not_taken is not None:
            lines.append(describe_not_taken(self.listing.not_taken))
        return [*(line for line in lines if line is not None), *self.remarks]


def list_source(
    spark: SparkSession,
    plan: SourcePlan,
    *,
    dataset: str,
    keep: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> ListedSource:
    """List a source with its labels, masks or arrays; ``keep`` persists what is used several times. Raises
    `SourceError` if it cannot be listed, possibly later, when the listing is computed.
    """
    listing = _list_images(spark, plan, dataset=dataset, keep=keep)
    entries, leftovers, lines, rows, by_stem = listing.entries, [], None, None, False
    remarks: tuple[str, ...] = ()
    if (plan.masks or plan.arrays or plan.labels) and not listing.has_data:
        entries = keep(entries)
    name = (plan.labels or "").rstrip("/").rpartition("/")[2]
    if plan.arrays is not None and full_address(plan.arrays) in map(full_address, (plan.address, plan.base)):
        entries, companions = split_arrays(entries)
    elif (folder := plan.masks or plan.arrays) is not None:
        companions = keep(list_tree(spark, folder, plan=plan, dataset=dataset).entries)
    if plan.masks or plan.arrays:
        what = "mask" if plan.masks else "array"
        leftovers.append(Leftovers(f"{what}s", companions.transform(unmatched, entries=entries)))
        entries = entries.transform(attach, companions=companions, what=what)
    if plan.labels is not None:
        if plan.labels.lower().endswith(".txt") and not has_names(spark, plan.labels):
            lines = read_label_lines(spark, plan.labels)
            entries = entries.transform(label_by_line, lines=lines, name=name)
        else:
            rows = read_labels(
                spark,
                plan.labels,
                path_column=plan.path_column,
                label_column=plan.label_column,
                group_column=plan.group_column,
                class_names=plan.class_names,
            )
            order = class_order(spark, plan.labels, label_column=plan.label_column, class_names=plan.class_names)
            listing = replace(listing, order=order, classes=listing.classes | {*order})
            by_stem = lack_extensions(spark, plan.labels, path_column=plan.path_column)
            if by_stem:
                remarks = (f"names in {name} have no extensions: images are matched without extensions",)
            before = entries
            entries = entries.transform(label_by_file, labels=rows, name=name, by_stem=by_stem)
            unmatched_rows = before.transform(unmatched_labels, labels=rows, by_stem=by_stem)
            leftovers.append(Leftovers(f"rows of {name}", unmatched_rows))
    if plan.label_type == "int":
        entries = entries.transform(require_label)
        bare = None if listing.bare is None else listing.bare.transform(require_label)
    else:
        bare = listing.bare
    access = "sequential" if plan.read == "sequential" and listing.access == "random" else listing.access
    listing = replace(listing, entries=entries, bare=bare, access=access)
    return ListedSource(
        listing=listing, leftovers=leftovers, lines=lines, rows=rows, by_stem=by_stem, labels=name, remarks=remarks
    )


def require_label(entries: DataFrame) -> DataFrame:
    """Reject entries without a class name if labels are classes."""
    missing = F.col("reason").isNull() & F.col("or_label").isNull()
    return entries.withColumn("reason", F.when(missing, F.lit("no label")).otherwise(F.col("reason")))


def _list_images(
    spark: SparkSession, plan: SourcePlan, *, dataset: str, keep: Callable[[DataFrame], DataFrame]
) -> Listing:
    match plan.kind:
        case "tree":
            return list_tree(spark, plan.base, plan=plan, dataset=dataset)
        case "tar":
            return list_tar(spark, plan, dataset=dataset)
        case "parquet":
            return list_parquet(spark, plan, dataset=dataset)
        case "table":
            return list_table(spark, plan, dataset=dataset)
        case "webdataset":
            return list_shards(spark, plan, dataset=dataset, keep=keep)
