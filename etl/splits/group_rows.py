"""Whole groups as DataFrame transforms: the contents of each, and the split of most of them.

If there are few groups, `group_quotas` assigns them all. If there are many, it assigns those with a large part of a
stratum and a seeded sample of the others, which balance out random deviations. All other groups go to the split that a
seeded hash of the group selects, in the proportions of the stratum that needs the group most.
"""

from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from etl.columns import column

EVERY_IMAGE = -1  # the stratum of all images, if images have several labels

_DRAW = 0x67726F7570  # "group", so that this order differs from the others
_DRAW_BITS = 62
_NO_BLANK = r"(?U)[^\s\x00]"  # blanks as Unicode defines them
_NEED_STEPS = 4


def has_group(rows: DataFrame, name: str) -> Column:
    """Whether a row has a group: its value is not null, NaN, empty or blank. Each other row is a separate group."""
    kind, value = rows.schema[name].dataType.typeName(), column(name)
    if kind == "string":
        return F.coalesce(value.rlike(_NO_BLANK), F.lit(False))
    if kind == "binary":
        return F.coalesce(F.length(value) > 0, F.lit(False))
    return value.isNotNull() & ~F.isnan(value) if kind in ("float", "double") else value.isNotNull()


def draw(seed: int) -> Column:
    """A pseudorandom 62-bit number for each group, from the seed, of which 64 bits count."""
    bits = (seed + (1 << 63)) % (1 << 64) - (1 << 63)
    return F.shiftrightunsigned(F.xxhash64(F.lit(_DRAW).cast("long"), F.lit(bits).cast("long"), F.col("group")), 2)


def compose(rows: DataFrame, /, *, totals: DataFrame, labels: str | None) -> DataFrame:
    """Make one row per group: ``group, need, lead, strata, counts``, and ``fixed`` if rows have it. ``rows`` has
    ``group``, and ``stratum`` or several strata in the array ``labels``. ``totals`` has ``stratum, total``. ``need`` is
    the largest part of a stratum that the group has, and ``lead`` that stratum. ``strata`` and ``counts`` are parallel
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
    """The need of a group as an integer, in steps of a quarter of a power of two."""
    return F.floor(F.log2(need) * _NEED_STEPS).cast("int")


def count_needs(groups: DataFrame, /) -> DataFrame:
    """Count groups by their need: ``step, groups``."""
    return groups.groupBy(need_step(F.col("need")).alias("step")).agg(F.count("*").alias("groups"))


def is_placed(*, step: int, sample: int, seed: int) -> Column:
    """Whether a group is assigned individually: its need is large, or it is in the sample (a bound of `draw`)."""
    return (need_step(F.col("need")) >= step) | (draw(seed + 1) < F.lit(sample))


def send(groups: DataFrame, /, *, bounds: DataFrame, splits: int, seed: int) -> DataFrame:
    """Groups with the ``split`` that their draw selects. ``bounds`` has ``lead``, and ``bound_S`` for each split S but
    the last: draws below it go to S or to a split before.
    """
    passed = (F.col("draw") >= F.col(f"bound_{split}") for split in range(splits - 1))
    return (
        groups.withColumn("draw", draw(seed))
        .join(F.broadcast(bounds), on="lead", how="inner")
        .withColumn("split", reduce(add, (one.cast("int") for one in passed), F.lit(0)))
        .drop("draw", *(f"bound_{split}" for split in range(splits - 1)))
    )


def count_sent(groups: DataFrame, /) -> DataFrame:
    """Count the images of groups with a ``split``: ``stratum, split, images``."""
    parts = F.explode(F.arrays_zip("strata", "counts")).alias("part")
    return (
        groups.select("split", parts)
        .groupBy(F.col("part.strata").alias("stratum"), "split")
        .agg(F.sum("part.counts").alias("images"))
    )


def draw_bound(share: float) -> int:
    """The bound of `draw` below which this share of all groups is."""
    return min(round(share * (1 << _DRAW_BITS)), 1 << _DRAW_BITS)
