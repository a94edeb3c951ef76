"""The images that take part in a split, as DataFrame transforms.

The columns are ``id, label`` and, on request: ``group`` (bigint, a hash of the group's name) with ``is_alone`` (the
group has no name; its hash is that of the id, so the row is a separate group), ``fixed`` (int, the split that a row
must go to; -1 if two splits are required) with ``stays`` (the row is in a split that is extended), ``labels``,
``value_N`` (the Nth column to stratify by), and ``stratum`` (int). All these names are ours: columns of the metadata
are renamed when they enter, so they may have any name.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from etl.columns import column
from etl.splits.group_rows import has_group
from etl.splits.plan import LABELS, Pin

NAN = "NaN"  # as Spark writes it
_ALONE = 0x616C6F6E65  # "alone", so that hashes of ids differ from hashes of names


def take_part(
    rows: DataFrame,
    /,
    *,
    group_column: str | None,
    pins: Sequence[Pin],
    keep: Sequence[tuple[str, str]],
) -> DataFrame:
    """The rows as candidates: ``id, label``, the requested columns, and columns to ``keep``, each with its new name."""
    columns = [F.col("id"), F.col("label")]
    if group_column:
        named, own = F.xxhash64(column(group_column)), F.xxhash64(F.lit(_ALONE).cast("long"), F.col("id"))
        is_grouped = has_group(rows, group_column)
        columns += [F.when(is_grouped, named).otherwise(own).alias("group"), (~is_grouped).alias("is_alone")]
    if pins:
        columns.append(_only([F.when(is_pinned(pin), F.lit(pin.split)) for pin in pins]).alias("fixed"))
        columns.append(F.lit(False).alias("stays"))
    return rows.select(*columns, *(column(name).alias(new) for name, new in keep))


def is_pinned(pin: Pin) -> Column:
    """Whether a pin applies to a row."""
    return column(pin.column).cast("string") == pin.value


def _only(splits: Sequence[Column]) -> Column:
    """The only split among them, null if there is none, -1 if there are two."""
    found = F.array_compact(F.array(*splits))
    return F.when(F.array_min(found) == F.array_max(found), F.array_min(found)).when(F.size(found) > 0, F.lit(-1))


def leave_out(rows: DataFrame, /, *, others: DataFrame) -> DataFrame:
    """The rows that are not among the others, which have ``group`` if rows have groups, otherwise ``id``."""
    key = "group" if "group" in rows.columns else "id"
    return rows.join(others.select(key).distinct(), on=key, how="left_anti").select(*rows.columns)


def stay(rows: DataFrame, /, *, old: DataFrame) -> DataFrame:
    """The rows with their split in ``old`` (``id, split``) as ``fixed``; ``stays`` is whether they have one."""
    known = old.select("id", F.col("split").alias("old"))
    splits = [F.col("old"), *([F.col("fixed")] if "fixed" in rows.columns else [])]
    others = [name for name in rows.columns if name not in ("fixed", "stays")]
    stays = F.col("old").isNotNull().alias("stays")
    return rows.join(known, on="id", how="left").select(*others, _only(splits).alias("fixed"), stays)


def stay_together(rows: DataFrame, /, *, places: DataFrame) -> DataFrame:
    """The rows with the split of their group as ``fixed``; -1 if a group has two. ``places`` has ``group, fixed`` of
    all images whose split is given, also of those that take no part.
    """
    wanted = (
        places.where(F.col("fixed").isNotNull())
        .groupBy("group")
        .agg(F.min("fixed").alias("least"), F.max("fixed").alias("most"))
        .select("group", F.when(F.col("least") == F.col("most"), F.col("least")).otherwise(-1).alias("fixed"))
    )
    return rows.drop("fixed").join(wanted, on="group", how="left")


def number_strata(rows: DataFrame, /, *, strata: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The rows with the number of their stratum. ``strata`` has the combinations of the columns, and ``stratum``."""
    numbered = strata.select(*(F.col(name).alias(f"stratum_{name}") for name in columns), "stratum")
    same = reduce(Column.__and__, (F.col(name).eqNullSafe(F.col(f"stratum_{name}")) for name in columns))
    return rows.join(F.broadcast(numbered), on=same, how="inner").drop(*(f"stratum_{name}" for name in columns))


def name_numbers(rows: DataFrame, /, *, columns: Sequence[str]) -> DataFrame:
    """The rows with floating-point numbers in these columns as text, so that NaN is an ordinary value."""
    kinds = {name: rows.schema[name].dataType.typeName() for name in columns}
    as_text = {name: (F.col(name) + 0.0).cast("string") for name, kind in kinds.items() if kind in ("float", "double")}
    return rows.withColumns(as_text) if as_text else rows


def label_set() -> Column:
    """The labels of an image in canonical form: sorted, each once, empty if there are none."""
    return F.coalesce(F.array_sort(F.array_distinct(F.col(LABELS))), F.array().cast("array<int>"))


def name_labels(rows: DataFrame, /) -> DataFrame:
    """A name for each class from the folders of its images: ``label, name``, if there is one."""
    return rows.where(F.col("or_label").isNotNull()).groupBy("label").agg(F.min("or_label").alias("name"))
