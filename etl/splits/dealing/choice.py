"""Which split each row goes to, as DataFrame transforms: an exact share of every stratum, without sorting one.

Rows are ``id`` (16 bytes), ``label``, ``stratum`` (int) and, where some rows have their split already, ``fixed`` (int).
The rows of a stratum are dealt in the order of a seeded hash of their ids. One count tells the row at which each split
ends, and from then on a row's split follows from the row alone. Nothing depends on partitions, on the order of the
input or on retries.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add, or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from etl.splits.dealing.cuts import FIRST

_CHOICE = 0x63686F696365  # "choice", so that this order and that of positions differ


def choice_order(seed: int) -> Column:
    """The order in which the rows of a stratum are dealt to splits; ties are broken by the id."""
    return F.xxhash64(F.lit(_CHOICE).cast("long"), F.lit(seed).cast("long"), F.col("id"))


def count_keys(rows: DataFrame, /, *, zones: DataFrame, each: int, seed: int) -> DataFrame:
    """Rows by stratum and order key: ``stratum, key, rows``; for all in a gap, its start is their key.

    ``zones`` has the strata to be counted, one row each: ``stratum``, and ``low_Z, high_Z`` for so many zones each.
    """
    choice = F.col("choice")
    zone_numbers = range(each)
    is_inside = reduce(
        or_, ((choice >= F.col(f"low_{zone}")) & (choice < F.col(f"high_{zone}")) for zone in zone_numbers)
    )
    starts = (F.when(choice >= F.col(f"high_{zone}"), F.col(f"high_{zone}")) for zone in zone_numbers)
    gap = F.greatest(F.lit(FIRST), F.lit(FIRST), *starts)  # nulls are passed over
    return (
        rows.select("stratum", choice_order(seed).alias("choice"))
        .join(F.broadcast(zones), on="stratum", how="inner")
        .groupBy("stratum", F.when(is_inside, choice).otherwise(gap).alias("key"))
        .agg(F.count("*").alias("rows"))
    )


def find_cuts(counted: DataFrame, /, *, cuts: DataFrame) -> DataFrame:
    """The order key of each cut, and the rows of the stratum before it: ``stratum, cut, key, before``.

    ``cuts``: ``stratum, cut``, the number of rows of the stratum that lie before it.
    """
    in_order = Window.partitionBy("stratum").orderBy("key").rowsBetween(Window.unboundedPreceding, -1)
    return (
        counted.withColumn("before", F.coalesce(F.sum("rows").over(in_order), F.lit(0)))
        .join(F.broadcast(cuts), on="stratum", how="inner")
        .where((F.col("cut") >= F.col("before")) & (F.col("cut") < F.col("before") + F.col("rows")))
        .select("stratum", "cut", "key", "before")
    )


def find_tied(rows: DataFrame, /, *, keys: DataFrame, seed: int) -> DataFrame:
    """The rows that share one order key: ``stratum, key, id``. ``keys``: ``stratum, key``, the wanted ones."""
    keyed = rows.select("stratum", choice_order(seed).alias("key"), "id")
    return keyed.join(F.broadcast(keys), on=["stratum", "key"], how="inner")


def assign_splits(
    rows: DataFrame, /, *, edges: DataFrame, splits: int, seed: int, keep: Sequence[str] = ()
) -> DataFrame:
    """The chosen rows with their split: ``id, label, split`` and the columns to ``keep``.

    Rows beyond the last edge of their stratum are left out.

    ``edges`` has one row a stratum: ``stratum``, and ``choice_S, id_S`` for each split S, ascending, the first row that
    lies beyond the split; null where none does. A row that is ``fixed`` goes there.
    """
    choice, row_id = F.col("choice"), F.col("id")
    # Plain expressions over the few edges: Spark compiles these, and interprets its functions on arrays.
    beyond = (
        (choice > F.col(f"choice_{split}")) | ((choice == F.col(f"choice_{split}")) & (row_id >= F.col(f"id_{split}")))
        for split in range(splits)
    )
    dealt = reduce(add, (F.coalesce(passed, F.lit(False)).cast("int") for passed in beyond))
    return (
        rows.withColumn("choice", choice_order(seed))
        .join(F.broadcast(edges), on="stratum", how="inner")
        .withColumn("split", F.coalesce(F.col("fixed"), dealt) if "fixed" in rows.columns else dealt)
        .where(F.col("split") < splits)
        .select("id", "label", "split", *keep)
    )
