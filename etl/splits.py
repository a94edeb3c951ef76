"""Splits as DataFrame verbs: an exact share of every class for each split, without sorting a class.

Rows are ``id`` (16 bytes) and ``label``. Two seeded orders are used, so that the place of a row in its split says
nothing about why it was chosen: one to choose rows within a class, one for ``position``. Both are hashes of the id and
the seed: nothing depends on partitions, on the order of the input or on retries.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add, or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from etl.cuts import Cut
from formats.fingerprint import SUM_SEEDS

_CHOICE = 0x63686F696365  # "choice", so that the two orders of one seed differ


def seeded_order(seed: int) -> Column:
    """The order of ``position``: xxhash64 of the id, seeded. Ties are broken by the id."""
    return F.xxhash64(F.lit(seed).cast("long"), F.col("id"))


def choice_order(seed: int) -> Column:
    """The order in which the rows of a class are dealt to splits."""
    return F.xxhash64(F.lit(_CHOICE).cast("long"), F.lit(seed).cast("long"), F.col("id"))


def bucket(order: Column, *, bits: int) -> Column:
    """The leading bits of an order as an int from 0: neighbours in the order share a bucket, buckets ascend with it."""
    return (F.shiftright(order, 64 - bits) + F.lit(1 << (bits - 1))).cast("int")


def count_labels(rows: DataFrame, /) -> DataFrame:
    """Rows by class: ``label, rows``; the label is null where it is in the input."""
    return rows.groupBy("label").agg(F.count("*").alias("rows"))


def name_labels(rows: DataFrame, /) -> DataFrame:
    """A name for each class, from the folders that its images came from: ``label, name``, where there is one."""
    return rows.where(F.col("or_label").isNotNull()).groupBy("label").agg(F.min("or_label").alias("name"))


def count_buckets(rows: DataFrame, /, *, seed: int, bits: int) -> DataFrame:
    """Rows by class and bucket of the choice: ``label, bucket, rows``."""
    return rows.groupBy("label", bucket(choice_order(seed), bits=bits).alias("bucket")).agg(F.count("*").alias("rows"))


CUTS_SCHEMA = "label INT, cuts ARRAY<STRUCT<bucket: INT, take: BIGINT>>"


def cut_rows(cuts: Mapping[int, Sequence[Cut]]) -> list[tuple[int, list[tuple[int, int]]]]:
    """Cuts by class as rows of ``CUTS_SCHEMA``."""
    return [(label, [(cut.bucket, cut.take) for cut in of_class]) for label, of_class in cuts.items()]


def assign_splits(rows: DataFrame, /, *, cuts: DataFrame, splits: int, seed: int, bits: int) -> DataFrame:
    """The chosen rows with their split: ``id, label, split``; rows beyond a class's last cut are left out.

    ``cuts`` has one row a class and ``splits`` cuts in each, as ``CUTS_SCHEMA`` says. Only rows in a bucket with a cut
    inside are ranked.
    """
    placed = (
        rows.select("id", "label", choice_order(seed).alias("choice"))
        .withColumn("bucket", bucket(F.col("choice"), bits=bits))
        .join(F.broadcast(cuts), on="label", how="inner")
    )
    # Plain expressions over the few cuts: Spark compiles these, and interprets its functions on arrays.
    each_cut = [F.col("cuts")[number] for number in range(splits)]
    is_cut = reduce(or_, ((F.col("bucket") == cut["bucket"]) & (cut["take"] > 0) for cut in each_cut))
    in_order = Window.partitionBy("label", "bucket").orderBy("choice", "id")
    decided = placed.where(~is_cut).withColumn("rank", F.lit(1))
    ranked = placed.where(is_cut).withColumn("rank", F.row_number().over(in_order))
    beyond = (
        (F.col("bucket") > cut["bucket"]) | ((F.col("bucket") == cut["bucket"]) & (F.col("rank") > cut["take"]))
        for cut in each_cut
    )
    return (
        decided.unionByName(ranked)
        .withColumn("split", reduce(add, (passed.cast("int") for passed in beyond)))
        .where(F.col("split") < splits)
        .select("id", "label", "split")
    )


def count_places(assigned: DataFrame, /, *, seed: int, bits: int) -> DataFrame:
    """Rows by split and bucket of the position's order: ``split, place, rows``."""
    place = bucket(seeded_order(seed), bits=bits).alias("place")
    return assigned.groupBy("split", place).agg(F.count("*").alias("rows"))


OFFSETS_SCHEMA = "split INT, place INT, offset BIGINT"


def add_positions(assigned: DataFrame, /, *, offsets: DataFrame, seed: int, bits: int) -> DataFrame:
    """Each row's rank 0..n-1 in its split's order: ``split, id, label, position``.

    ``offsets`` has, for each split and bucket, how many rows of the split lie before the bucket. A bucket ends up whole
    and sorted in one partition, so that files are sorted by position.
    """
    in_order = Window.partitionBy("split", "place").orderBy("order", "id")
    return (
        assigned.withColumn("order", seeded_order(seed))
        .withColumn("place", bucket(F.col("order"), bits=bits))
        .withColumn("rank", F.row_number().over(in_order))
        .join(F.broadcast(offsets), on=["split", "place"], how="inner")
        .select("split", "id", "label", (F.col("offset") + F.col("rank") - 1).alias("position"))
    )


def summarise(written: DataFrame, /) -> DataFrame:
    """What lies in each file by class: ``file, split, label, rows`` and the fingerprint's sums, in 32-bit halves.

    Halves are summed apart so that no sum overflows, in ANSI mode or out of it.
    """
    hashes = [F.xxhash64(F.lit(seed).cast("long"), "id", "label", "position") for seed in SUM_SEEDS]
    halves = [
        F.sum(part).alias(f"{name}{number}")
        for number, hashed in enumerate(hashes)
        for name, part in (("high", F.shiftright(hashed, 32)), ("low", hashed.bitwiseAND(F.lit(0xFFFFFFFF))))
    ]
    return written.groupBy(F.input_file_name().alias("file"), "label").agg(F.count("*").alias("rows"), *halves)
