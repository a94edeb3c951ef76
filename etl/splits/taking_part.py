"""The images that take part in a split: conditions, exclusions, and images that are in a split already."""

import hashlib
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, NumericType

from etl.columns import theirs
from etl.errors import TableError
from etl.frames import small_table
from etl.splits.candidates import is_pinned, label_set, leave_out, name_numbers, stay, stay_together, take_part
from etl.splits.conditions import meeting
from etl.splits.leaks import WATCHED
from etl.splits.metadata import CHECKSUM, Metadata
from etl.splits.plan import LABELS, SplitPlan, SplitRef
from etl.splits.top import take_top
from formats import OpenSplit, is_dictionary, open_split
from schemas.manifest import StoredGroups


def strata_columns(metadata: Metadata, *, plan: SplitPlan) -> dict[str, str]:
    """The columns to stratify by, each with its name among the candidates: ``label``, ``labels`` or ``value_N``.
    ``labels`` has several labels of an image; a column of another kind may have that name too. Raises `TableError` for
    columns that are missing, or do not go together.
    """
    by = plan.stratify if plan.stratify is not None else tuple(filter(None, (metadata.stratify_by,)))
    for name in (*by, *plan.named_columns):
        if name not in metadata.rows.columns:
            hint = " To have a feature in a cache, name it when you make the cache." if plan.metadata_in else ""
            raise TableError(
                f"Wanted the column {name} in the metadata of {metadata.metadata_table}. "
                f"Found: {', '.join(theirs(metadata.rows))}.{hint}"
            )
    kept = {"label", *(name for name in by if name == LABELS and _is_array(metadata.rows, name))}
    if LABELS in kept and len(by) > 1:
        raise TableError(f"Wanted {LABELS} alone to stratify by, or other columns. Found: {','.join(by)}.")
    if plan.group_column in by:
        raise TableError(f"Wanted a column to group or to stratify by. Found: {plan.group_column} for both.")
    return {name: name if name in kept else f"value_{number}" for number, name in enumerate(by)}


def _is_array(rows: DataFrame, name: str) -> bool:
    return isinstance(rows.schema[name].dataType, ArrayType)


def candidates(spark: SparkSession, metadata: Metadata, *, plan: SplitPlan, by: Mapping[str, str]) -> DataFrame:
    """The rows that take part, in the form of `etl.splits.candidates`, with the `strata_columns`. Raises `TableError`
    for invalid conditions, and `FormatsError` for other splits that cannot be read.
    """
    rows = metadata.rows
    for pin in plan.pins:
        if rows.where(is_pinned(pin)).isEmpty():
            raise TableError(f"Wanted images for --pin {pin}. Found: none with {pin.value!r} in {pin.column}.")
    if plan.where:
        rows = meeting(rows, plan.where)
    if plan.top:
        if not isinstance(rows.schema[plan.top.column].dataType, NumericType):
            kind = rows.schema[plan.top.column].dataType.simpleString()
            raise TableError(f"Wanted a column of numbers for --top. Found: {plan.top.column}, of type {kind}.")
        rows = take_top(rows, top=plan.top)
    watched = [name for name in WATCHED.values() if plan.has_leak_check and name in rows.columns]
    watched += [CHECKSUM] if CHECKSUM in rows.columns else []
    part = rows.transform(
        take_part,
        group_column=plan.group_column,
        pins=plan.pins,
        keep=[(name, new) for name, new in [*by.items(), *zip(watched, watched, strict=True)] if new != "label"],
    )
    if LABELS in by.values():
        part = part.withColumn(LABELS, label_set())
    part = part.transform(name_numbers, columns=list(by.values()))
    # The groups of images that conditions leave out count too, and those of images that were deleted.
    everything = metadata.rows.transform(take_part, group_column=plan.group_column, pins=plan.pins, keep=())
    for ref in plan.exclude:
        others = split_rows(spark, open_folder(ref.address), ref.index)
        if plan.group_column:
            known = everything.join(others, on="id", how="left_semi").select("group")
            others = known.union(stored_groups(spark, ref, plan=plan, rows=metadata.rows).select("group"))
        part = part.transform(leave_out, others=others)
    if plan.extend:
        old = split_rows(spark, open_folder(plan.extend))
        part, everything = (each.transform(stay, old=old) for each in (part, everything))
    if plan.group_column and "fixed" in part.columns:
        places = everything.select("group", "fixed")
        if plan.extend:
            places = places.union(stored_groups(spark, SplitRef(plan.extend), plan=plan, rows=metadata.rows))
        part = part.transform(stay_together, places=places)
    return part


def group_kind(rows: DataFrame, *, plan: SplitPlan) -> str:
    """The type of the column of groups, as in the manifest of a split."""
    return rows.schema[str(plan.group_column)].dataType.simpleString()


def stored_groups(spark: SparkSession, ref: SplitRef, *, plan: SplitPlan, rows: DataFrame) -> DataFrame:
    """The groups that another split had when it was made: ``group, split``; none if it has no groups of this column."""
    found = small_table(spark, {"group": [], "split": []}, "group BIGINT, split INT")
    split = open_folder(ref.address)
    groups, storage = _groups_of(split, plan=plan, rows=rows), split.storage
    if groups is None or storage is None:
        return found
    for index, files in enumerate(groups.splits):
        if files and ref.index in (None, index):
            read = spark.read.parquet(*(storage.url(file.path) for file in files))
            found = found.union(read.select("group", F.lit(index).alias("split")))
    return found


def _groups_of(split: OpenSplit, *, plan: SplitPlan, rows: DataFrame) -> StoredGroups | None:
    """The groups that another split has of the plan's column; hashes of values of another type do not match."""
    groups = split.manifest.groups
    wanted = (plan.group_column, group_kind(rows, plan=plan))
    return groups if groups is not None and (groups.column, groups.kind) == wanted else None


def is_plain(plan: SplitPlan) -> bool:
    """Whether the candidates are simply the rows of the metadata, so that they are cheap to read several times."""
    return not (plan.where or plan.top or plan.exclude or plan.extend or plan.pins)


def dealing_seed(plan: SplitPlan) -> int:
    """The seed of the order in which images are assigned to splits."""
    if not plan.exclude:
        return plan.seed
    # Not that of the excluded splits, because what they left over is not a random part of their order. The order in
    # which they are named does not matter.
    known = sorted({" ".join(open_folder(ref.address).fingerprints) for ref in plan.exclude})
    digest = hashlib.sha256(" ".join([str(plan.seed), *known]).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def of_others(spark: SparkSession, rows: DataFrame, *, plan: SplitPlan, metadata: Metadata) -> list[str]:
    """Warn of splits to exclude or extend that are of other tables, or have images that no longer exist."""
    named = [*(ref.address for ref in plan.exclude), *([plan.extend] if plan.extend else [])]
    opened = {address: open_folder(address) for address in named}
    found = [
        f"{address} was made from {split.manifest.metadata_table}, not from {metadata.metadata_table}"
        for address, split in opened.items()
        if split.manifest.metadata_table != str(metadata.metadata_table)
    ]
    refs = [*plan.exclude, *([SplitRef(plan.extend)] if plan.extend else [])] if plan.group_column else []
    hint = f". Splits that are made with --group-column {plan.group_column}, of the same type, have them"
    for ref in refs:
        split = opened[ref.address]
        if _groups_of(split, plan=plan, rows=metadata.rows) is None:
            lost = (
                split_rows(spark, split, ref.index).join(metadata.rows.select("id"), on="id", how="left_anti").count()
            )
            if lost:
                found.append(
                    f"{lost:,} images of {ref} are no longer in {metadata.metadata_table}, and that split does not "
                    f"have their groups: other images of these groups may be anywhere{hint}"
                )
    if plan.extend:
        old = split_rows(spark, opened[plan.extend])
        if gone := old.join(rows.select("id"), on="id", how="left_anti").count():
            found.append(f"{gone:,} images of {plan.extend} are not among the images chosen now")
    return found


def open_folder(address: str, *, purpose: str = "to exclude or to extend") -> OpenSplit:
    """Open a split whose files Spark reads. Raises `FormatsError`, `SchemaError`, `TableError` for a dictionary."""
    if is_dictionary(address):
        raise TableError(f"Wanted a split folder {purpose}. Found: {address}, a split dictionary.")
    return open_split(address)


def split_rows(spark: SparkSession, split: OpenSplit, index: int | None = None) -> DataFrame:
    """The images of a split folder, or of one of its splits: ``id, split``. Raises `FormatsError`, `TableError`."""
    parts = split.manifest.splits
    if index is not None and index >= len(parts):
        raise TableError(f"Wanted split {index} of {split.address}. Found: splits 0 to {len(parts) - 1}.")
    assert split.storage is not None
    found = small_table(spark, {"id": [], "split": []}, "id BINARY, split INT")
    for part in parts if index is None else [parts[index]]:
        if paths := [split.storage.url(file.path) for file in part.files]:
            found = found.union(spark.read.parquet(*paths).select("id", F.lit(part.index).alias("split")))
    return found
