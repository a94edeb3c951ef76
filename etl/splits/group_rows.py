"""Whole groups, as DataFrame transforms: what lies in each, and which split most of them go to.

When groups are few, every one is placed by `group_quotas`. When they are many, those that hold a large part of a
stratum and a seeded sample of the others are, and they make up for what chance leaves uneven: all others go where a
seeded hash of the group sends them, in the proportions wanted of the stratum that needs the group most.
"""

from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

EVERY_IMAGE = -1
"""The stratum of all images, where images have several labels."""

_DRAW = 0x67726F7570  # "group", so that this order is none of the others
_DRAW_BITS = 62
_NO_BLANK = r"(?U)[^\s\x00]"  # by Unicode's idea of a blank
_NEED_STEPS = 4


def has_group(rows: DataFrame, column: str) -> Column:
    """Whether a row has a group: its value is not null, NaN, empty or blank. Other rows are groups of their own."""
    kind, value = rows.schema[column].dataType.typeName(), F.col(column)
    if kind == "string":
        return F.coalesce(value.rlike(_NO_BLANK), F.lit(False))
    if kind == "binary":
        return F.coalesce(F.length(value) > 0, F.lit(False))
    return value.isNotNull() & ~F.isnan(value) if kind in ("float", "double") else value.isNotNull()


def draw(seed: int) -> Column:
    """A number of 62 bits, drawn from the seed for each group."""
    return F.shiftrightunsigned(F.xxhash64(F.lit(_DRAW).cast("long"), F.lit(seed).cast("long"), F.col("group")), 2)


def compose(rows: DataFrame, /, *, totals: DataFrame, labels: str | None) -> DataFrame:
    """One row a group: ``group, need, lead, strata, counts`` and ``fixed`` where rows have it.

    ``rows``: ``group``, and ``stratum`` or several in the array ``labels``; ``totals``: ``stratum, total``. ``need`` is
    the largest part of a stratum that the group holds, ``lead`` that stratum; ``strata`` and ``counts`` are parallel
    arrays.
    """
    if labels:
        several = F.concat(F.col(labels), F.array(F.lit(EVERY_IMAGE)))
        rows = rows.withColumn("stratum", F.explode(several))
    fixed = [F.max("fixed").alias("fixed")] if "fixed" in rows.columns else []
    part = F.col("images") / F.col("total")
    members = (
        rows.select("group", "stratum", *(["fixed"] if fixed else []))
        .repartition("group")
        .groupBy("group", "stratum")
        .agg(F.count("*").alias("images"), *fixed)
    )
    return (
        members.join(F.broadcast(totals), on="stratum", how="inner")
        .groupBy("group")
        .agg(
            F.max(F.struct(part.alias("need"), F.col("stratum"))).alias("most"),
            F.array_sort(F.collect_list(F.struct("stratum", "images"))).alias("parts"),
            *fixed,
        )
        .select(
            "group",
            F.col("most.need").alias("need"),
            F.col("most.stratum").alias("lead"),
            F.col("parts.stratum").alias("strata"),
            F.col("parts.images").alias("counts"),
            *(["fixed"] if fixed else []),
        )
    )


def need_step(need: Column) -> Column:
    """The need of a group as a whole number, steps of a quarter of a power of two."""
    return F.floor(F.log2(need) * _NEED_STEPS).cast("int")


def count_needs(groups: DataFrame, /) -> DataFrame:
    """Groups by how much they are needed: ``step, groups``."""
    return groups.groupBy(need_step(F.col("need")).alias("step")).agg(F.count("*").alias("groups"))


def is_placed(*, step: int, sample: int, seed: int) -> Column:
    """Whether a group is placed one by one: needed so much, or in the sample (a bound of `draw`)."""
    return (need_step(F.col("need")) >= step) | (draw(seed + 1) < F.lit(sample))


def send(groups: DataFrame, /, *, bounds: DataFrame, splits: int, seed: int) -> DataFrame:
    """Groups with the ``split`` that their draw sends them to; ``splits`` is beyond all of them: left out.

    ``bounds``: ``lead``, and ``bound_S`` for each split S: the draws below go to S or to a split before it.
    """
    passed = (F.col("draw") >= F.col(f"bound_{split}") for split in range(splits))
    return (
        groups.withColumn("draw", draw(seed))
        .join(F.broadcast(bounds), on="lead", how="inner")
        .withColumn("split", reduce(add, (one.cast("int") for one in passed)))
        .drop("draw", *(f"bound_{split}" for split in range(splits)))
    )


def count_sent(groups: DataFrame, /) -> DataFrame:
    """Images by stratum and split: ``stratum, split, images``, of groups with a ``split``."""
    parts = F.explode(F.arrays_zip("strata", "counts")).alias("part")
    return (
        groups.select("split", parts)
        .groupBy(F.col("part.strata").alias("stratum"), "split")
        .agg(F.sum("part.counts").alias("images"))
    )


def draw_bound(share: float) -> int:
    """The bound of `draw` below which this share of all groups lies."""
    return min(round(share * (1 << _DRAW_BITS)), 1 << _DRAW_BITS)
