"""The listing of a source for all layouts, label files, masks and arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.sources.byte_tables import list_parquet, list_table
from etl.sources.companions import attach, split_arrays, unmatched
from etl.sources.entries import Listing
from etl.sources.labels.files import has_names, read_label_lines, read_labels
from etl.sources.labels.matching import check_lines, check_names, label_by_file, label_by_line, unmatched_labels
from etl.sources.labels.values import LabelMeaning
from etl.sources.plan import SourcePlan, full_address
from etl.sources.tars import list_tar
from etl.sources.trees import list_tree
from etl.sources.webdataset import describe_not_taken, list_shards

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSource:
    """A listed source: its images, and labels, masks or arrays without an image."""

    listing: Listing
    leftovers: Mapping[str, DataFrame] = field(default_factory=dict)  # the column `name`, by what they are
    remarks: tuple[str, ...] = ()  # lines for the report
    # Raises `SourceError` if a label file does not match the entries. Runs Spark.
    check: Callable[[DataFrame], None] = lambda entries: None

    def with_classes(self, meaning: LabelMeaning) -> "ListedSource":
        """The source with class names instead of the texts of labels."""
        classes = frozenset(name for text in self.listing.classes if (name := meaning.classes.get(text)) is not None)
        return replace(self, listing=replace(self.listing.transformed(meaning.apply), classes=classes))

    def report_lines(self) -> list[str]:
        """The lines for a report: labels without an image, ignored files, and remarks. Runs Spark."""
        lines = [_unmatched_line(what, names) for what, names in self.leftovers.items()]
        if self.listing.not_taken is not None:
            lines.append(describe_not_taken(self.listing.not_taken))
        return [*filter(None, lines), *self.remarks]


def _unmatched_line(what: str, names: DataFrame) -> str | None:
    """One line with the number of ``names`` and the first few, or None if there are none. Runs Spark."""
    count = names.count()
    if not count:
        return None
    first = ", ".join(row.name for row in names.orderBy("name").limit(_SHOWN).collect())
    return f"{count:,} {what} match no image: {first}{', ...' if count > _SHOWN else ''}"


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
    entries, leftovers = listing.entries, dict[str, DataFrame]()
    if (plan.masks or plan.arrays or plan.labels) and not listing.has_data:
        entries = keep(entries)
    if plan.arrays is not None and full_address(plan.arrays) in map(full_address, (plan.address, plan.base)):
        entries, companions = split_arrays(entries)
    elif (folder := plan.masks or plan.arrays) is not None:
        companions = keep(list_tree(spark, folder, plan=plan, dataset=dataset).entries)
    if plan.masks or plan.arrays:
        what = "mask" if plan.masks else "array"
        leftovers[f"{what}s"] = companions.transform(unmatched, entries=entries)
        entries = entries.transform(attach, companions=companions, what=what)
    source = ListedSource(listing=replace(listing, entries=entries), leftovers=leftovers)
    if plan.labels is not None:
        source = _with_labels(source, plan.labels, plan=plan)
    listing = source.listing
    if plan.label_type == "int":
        listing = listing.transformed(require_label)
    if plan.read == "sequential" and listing.access == "random":
        listing = replace(listing, access="sequential")
    return replace(source, listing=listing)


def _with_labels(source: ListedSource, labels: str, *, plan: SourcePlan) -> ListedSource:
    """Add the labels of a label file. Raises `SourceError`."""
    listing, entries, spark = source.listing, source.listing.entries, source.listing.entries.sparkSession
    name = labels.rstrip("/").rpartition("/")[2]
    if labels.lower().endswith(".txt") and not has_names(spark, labels):
        lines = read_label_lines(spark, labels)
        listing = replace(listing, entries=entries.transform(label_by_line, lines=lines, name=name))
        return replace(source, listing=listing, check=partial(check_lines, lines=lines, name=name))
    rows, order, by_stem = read_labels(
        spark,
        labels,
        path_column=plan.path_column,
        label_column=plan.label_column,
        group_column=plan.group_column,
        class_names=plan.class_names,
    )
    labelled = entries.transform(label_by_file, labels=rows, name=name, by_stem=by_stem)
    unmatched_rows = entries.transform(unmatched_labels, labels=rows, by_stem=by_stem)
    told = (f"names in {name} have no extensions: images are matched without extensions",)
    return replace(
        source,
        listing=replace(listing, entries=labelled, order=order, classes=listing.classes | {*order}),
        leftovers={**source.leftovers, f"rows of {name}": unmatched_rows},
        remarks=told if by_stem else (),
        check=partial(check_names, labels=rows, name=name, by_stem=by_stem),
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
