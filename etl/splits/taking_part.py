"""The images that take part in a split: conditions, exclusions, and images that are in a split already."""

import hashlib
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from etl.errors import TableError
from etl.frames import small_table
from etl.splits.candidates import is_pinned, label_set, leave_out, name_numbers, stay, stay_together, take_part
from etl.splits.conditions import check_answers
from etl.splits.leaks import WATCHED
from etl.splits.metadata import Metadata
from etl.splits.plan import LABELS, SplitPlan, SplitRef
from formats import SplitFolder
from formats.splits.dictionary import is_dictionary
from formats.stores.storage import Storage


def candidates(spark: SparkSession, metadata: Metadata, *, plan: SplitPlan, by: Sequence[str]) -> DataFrame:
    """The rows that take part, in the form of `etl.splits.candidates`, with the columns ``by`` to stratify by.

    Raises `TableError` for missing columns and invalid conditions, and `FormatsError` for other splits that cannot be
    read.
    """
    rows = metadata.rows
    for name in (*by, *plan.named_columns):
        if name not in rows.columns:
            hint = " To have a feature in a cache, name it when you make the cache." if plan.metadata_in else ""
            raise TableError(
                f"Wanted the column {name} in the metadata of {metadata.metadata_table}. "
                f"Found: {', '.join(rows.columns)}.{hint}"
            )
    for pin in plan.pins:
        if rows.where(is_pinned(pin)).isEmpty():
            raise TableError(f"Wanted images for --pin {pin}. Found: none with {pin.value!r} in {pin.column}.")
    if plan.where:
        check_answers(rows, plan.where)
    if plan.top and not isinstance(rows.schema[plan.top.column].dataType, NumericType):
        kind = rows.schema[plan.top.column].dataType.simpleString()
        raise TableError(f"Wanted a column of numbers for --top. Found: {plan.top.column}, of type {kind}.")
    if LABELS in by:
        rows = rows.withColumn(LABELS, label_set())
    watched = [name for name in WATCHED.values() if plan.has_leak_check and name in rows.columns and name not in by]
    keep = [*(name for name in by if name != "label"), *watched]
    part = rows.transform(
        take_part, where=plan.where, top=plan.top, group_column=plan.group_column, pins=plan.pins, keep=keep
    )
    part = part.transform(name_numbers, columns=by)
    for ref in plan.exclude:
        part = part.transform(leave_out, others=split_rows(spark, ref))
    if plan.extend:
        part = part.transform(stay, old=split_rows(spark, SplitRef(plan.extend)))
    if plan.group_column and "fixed" in part.columns:
        part = part.transform(stay_together)
    return part


def is_plain(plan: SplitPlan) -> bool:
    """Whether the candidates are simply the rows of the metadata, so that they are cheap to read several times."""
    return not (plan.where or plan.top or plan.exclude or plan.extend or plan.pins)


def dealing_seed(plan: SplitPlan) -> int:
    """The seed of the order in which images are assigned to splits.

    If other splits are excluded, it differs from their seed, because what they left over is not a random part of their
    order.
    """
    if not plan.exclude:
        return plan.seed
    known = [part.fingerprint for ref in plan.exclude for part in open_other(ref.address).manifest.splits]
    digest = hashlib.sha256(" ".join([str(plan.seed), *known]).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def of_others(spark: SparkSession, rows: DataFrame, *, plan: SplitPlan, metadata: Metadata) -> list[str]:
    """Warn of splits to exclude or extend that are of other tables, or have images that no longer exist."""
    named = [*(ref.address for ref in plan.exclude), *([plan.extend] if plan.extend else [])]
    made_from = {address: open_other(address).manifest.metadata_table for address in named}
    found = [
        f"{address} was made from {table}, not from {metadata.metadata_table}"
        for address, table in made_from.items()
        if table != str(metadata.metadata_table)
    ]
    if plan.extend:
        old = split_rows(spark, SplitRef(plan.extend))
        if gone := old.join(rows.select("id"), on="id", how="left_anti").count():
            found.append(f"{gone:,} images of {plan.extend} are not among the images chosen now")
    return found


def open_other(address: str) -> SplitFolder:
    """Open a split to exclude or extend. Raises `FormatsError`, `TableError`."""
    if is_dictionary(address):
        raise TableError(f"Wanted a split folder to exclude or to extend. Found: {address}, a split dictionary.")
    return SplitFolder.open(address)


def split_rows(spark: SparkSession, ref: SplitRef) -> DataFrame:
    """The images of a split folder, or of one of its splits: ``id, split``. Raises `FormatsError`, `TableError`."""
    folder = open_other(ref.address)
    parts = folder.manifest.splits
    if ref.index is not None and ref.index >= len(parts):
        raise TableError(f"Wanted split {ref.index} of {folder.address}. Found: splits 0 to {len(parts) - 1}.")
    storage = Storage(ref.address)
    found = small_table(spark, {"id": [], "split": []}, "id BINARY, split INT")
    for part in parts if ref.index is None else [parts[ref.index]]:
        if paths := [storage.url(file.path) for file in part.files]:
            found = found.union(spark.read.parquet(*paths).select("id", F.lit(part.index).alias("split")))
    return found
