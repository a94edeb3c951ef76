"""The assignment of rows to splits as DataFrame transforms: an exact share of each stratum, without sorting any.

Rows have ``id`` (16 bytes), ``label``, ``stratum`` (int) and, if some rows have a split already, ``fixed`` (int). The
rows of a stratum are assigned in the order of a seeded hash of their ids. One count finds the row at which each split
ends; after that, the split of a row depends only on the row. Nothing depends on partitions, on the order of the input
or on retries.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add, or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from etl.splits.dealing.cuts import FIRST

_CHOICE = 0x63686F696365  # "choice", so that this order and that of positions differ


def choice_order(seed: int) -> Column:
    """The order in which the rows of a stratum are assigned to splits. Ties are broken by the id."""
    return F.xxhash64(F.lit(_CHOICE).cast("long"), F.lit(seed).cast("long"), F.col("id"))


def count_keys(rows: DataFrame, /, *, zones: DataFrame, each: int, seed: int) -> DataFrame:
    """Count rows by stratum and order key: ``stratum, key, rows``. All rows in a gap have its start as their key.
    ``zones`` has one row per stratum to count: ``stratum``, and ``low_Z, high_Z`` for each of ``each`` zones.
    """
    choice = F.col("choice")
    zone_numbers = range(each)
    is_inside = reduce(
        or_, ((choice >= F.col(f"low_{zone}")) & (choice < F.col(f"high_{zone}")) for zone in zone_numbers)
    )
    starts = (F.when(choice >= F.col(f"high_{zone}"), F.col(f"high_{zone}")) for zone in zone_numbers)
    gap = F.greatest(F.lit(FIRST), F.lit(FIRST), *starts)  # nulls are ignored
    return (
        rows.select("stratum", choice_order(seed).alias("choice"))
        .join(F.broadcast(zones), on="stratum", how="inner")
        .groupBy("stratum", F.when(is_inside, choice).otherwise(gap).alias("key"))
        .agg(F.count("*").alias("rows"))
    )


def find_cuts(counted: DataFrame, /, *, cuts: DataFrame) -> DataFrame:
    """Find the order key of each cut, and the number of rows with smaller keys: ``stratum, cut, key, before``. ``cuts``
    has ``stratum, cut``: the number of rows of the stratum before the cut.
    """
    in_order = Window.partitionBy("stratum").orderBy("key").rowsBetween(Window.unboundedPreceding, -1)
    return (
        counted.withColumn("before", F.coalesce(F.sum("rows").over(in_order), F.lit(0)))
        .join(F.broadcast(cuts), on="stratum", how="inner")
        .where((F.col("cut") >= F.col("before")) & (F.col("cut") < F.col("before") + F.col("rows")))
        .select("stratum", "cut", "key", "before")
    )


def find_tied(rows: DataFrame, /, *, keys: DataFrame, seed: int) -> DataFrame:
    """The rows with the same order key: ``stratum, key, id``. ``keys`` has the requested ``stratum, key``."""
    keyed = rows.select("stratum", choice_order(seed).alias("key"), "id")
    return keyed.join(F.broadcast(keys), on=["stratum", "key"], how="inner")


def assign_splits(rows: DataFrame, /, *, edges: DataFrame, splits: int, seed: int, keep: Sequence[str]) -> DataFrame:
    """Assign splits to rows: ``id, label, split`` and the columns to ``keep``. Rows after the last edge of their
    stratum are left out. ``edges`` has one row per stratum: ``stratum``, and ``choice_S, id_S`` for each split S,
    ascending: the first row after the split, or null if there is none. A row with a ``fixed`` split goes there.
    """
    choice, row_id = F.col("choice"), F.col("id")
    # Plain expressions over the few edges: Spark compiles these, but interprets array functions.
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
