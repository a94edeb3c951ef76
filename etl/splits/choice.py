"""Which split each row goes to, as DataFrame verbs: an exact share of every stratum, without sorting one.

Rows are ``id`` (16 bytes), ``label``, ``stratum`` (int) and, where some rows have their split already, ``fixed`` (int).
The rows of a stratum are dealt in the order of a seeded hash of their ids: a histogram of that order tells the bucket
in which each split ends, the rows of these few buckets are ranked, and from then on a row's split follows from the row
alone. Nothing depends on partitions, on the order of the input or on retries.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

_CHOICE = 0x63686F696365  # "choice", so that this order and that of positions differ


def choice_order(seed: int) -> Column:
    """The order in which the rows of a stratum are dealt to splits; ties are broken by the id."""
    return F.xxhash64(F.lit(_CHOICE).cast("long"), F.lit(seed).cast("long"), F.col("id"))


def count_buckets(rows: DataFrame, /, *, shifts: DataFrame, seed: int) -> DataFrame:
    """Rows by stratum and bucket of the choice: ``stratum, bucket, rows``; buckets ascend with the order.

    ``shifts`` has the strata to be counted, ``stratum, shift``: a bucket is the choice without its last ``shift`` bits.
    """
    return (
        rows.select("stratum", choice_order(seed).alias("choice"))
        .join(F.broadcast(shifts), on="stratum", how="inner")
        .groupBy("stratum", F.expr("shiftright(choice, shift)").alias("bucket"))
        .agg(F.count("*").alias("rows"))
    )


def find_edges(rows: DataFrame, /, *, shifts: DataFrame, cuts: DataFrame, seed: int) -> DataFrame:
    """The first row beyond each cut inside a bucket: ``stratum, bucket, rank, choice, id``.

    ``cuts``: ``stratum, bucket, rank``, the ranks from 1 that are wanted of a bucket's rows.
    """
    buckets = cuts.groupBy("stratum", "bucket").agg(F.collect_set("rank").alias("ranks"))
    in_order = Window.partitionBy("stratum", "bucket").orderBy("choice", "id")
    return (
        rows.select("stratum", "id", choice_order(seed).alias("choice"))
        .join(F.broadcast(shifts), on="stratum", how="inner")
        .withColumn("bucket", F.expr("shiftright(choice, shift)"))
        .join(F.broadcast(buckets), on=["stratum", "bucket"], how="inner")
        .withColumn("rank", F.row_number().over(in_order))
        .where(F.array_contains("ranks", F.col("rank")))
        .select("stratum", "bucket", "rank", "choice", "id")
    )


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
