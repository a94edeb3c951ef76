"""Near duplicates: images that look the same although their bytes differ, found by their perceptual hashes.

The same image at another size, quality or brightness has a hash that differs in few of the 64 bits. Similarity is
treated as transitive: a chain of similar images is one group. Rotated, mirrored and cropped copies are not found.
"""

from itertools import combinations
from math import comb, log2
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from etl.columns import ours
from etl.errors import EtlError
from etl.frames import persisted

PHASH = "phash"  # the feature view, and its field, by which images are grouped
HASHES = "id BINARY, phash BIGINT"
# The column with the group of an image: the smallest hash of the group, as an unsigned number.
LOOK_ALIKES = ours("look_alikes")

_MOST_MASKS = 40
_DRIVER_PAIRS = 5_000_000  # 16 bytes each
_ROUNDS = 8


def group_near_duplicates(hashes: DataFrame, *, distance: int) -> DataFrame:
    """Group the images of `HASHES` that look like another one: ``id`` and the bigint `LOOK_ALIKES`, the smallest hash
    of the group in unsigned order. The hashes are read again when the result is computed, so persist them. ``distance``
    is the number of bits, 0 to 8, in which two of them may differ. Runs Spark. Raises `EtlError` if there are too many
    pairs for the driver.
    """
    known = hashes.where(F.col("phash").isNotNull()).select("id", "phash")
    counts = persisted(known.groupBy("phash").agg(F.count("*").alias("images")))
    try:
        masks = band_masks(counts.count(), distance)
        first, second = _collect(counts.transform(near_pairs, masks=masks, distance=distance), distance=distance)
    finally:
        counts.unpersist()
    nodes, roots = components(first, second)
    joined = hashes.sparkSession.createDataFrame(
        pd.DataFrame({"phash": nodes.view(np.int64), "root": roots.view(np.int64)}), "phash BIGINT, root BIGINT"
    )
    alike = counts.join(joined, on="phash", how="left").where(F.col("root").isNotNull() | (F.col("images") > 1))
    named = alike.select("phash", F.coalesce("root", "phash").alias(LOOK_ALIKES))
    return known.join(named, on="phash", how="inner").select("id", LOOK_ALIKES)


def band_masks(rows: int, distance: int) -> list[int]:
    """Make 64-bit masks such that any two hashes within the distance are equal under at least one of them. The bits are
    divided into blocks, of which ``distance`` may differ; each mask selects the others. Few blocks give few masks of
    few bits, and many pairs to compare, so there are more blocks for more ``rows``.
    """
    blocks = distance + 1
    while 64 * (blocks - distance) / blocks < log2(max(rows, 2)) and comb(blocks + 1, distance) <= _MOST_MASKS:
        blocks += 1
    return [
        sum(1 << bit for bit in range(64) if bit % blocks in kept)
        for kept in combinations(range(blocks), blocks - distance)
    ]


def near_pairs(hashes: DataFrame, /, *, masks: list[int], distance: int) -> DataFrame:
    """Find the pairs of distinct hashes (``phash``) within the distance: ``first < second``, each pair once."""
    signed = [mask - (1 << 64) if mask >> 63 else mask for mask in masks]

    def under(value: Column, mask: int) -> Column:
        return value.bitwiseAND(F.lit(mask).cast("long"))

    keys = [F.struct(F.lit(i).alias("band"), under(F.col("phash"), mask).alias("key")) for i, mask in enumerate(signed)]
    banded = hashes.select("phash", F.inline(F.array(*keys)))
    left, right = (
        banded.withColumnRenamed("phash", "first"),
        banded.withColumnRenamed("phash", "second"),
    )
    differing = F.col("first").bitwiseXOR(F.col("second"))
    # A pair can match under several masks; only the first match counts.
    meeting = F.coalesce(*(F.when(under(differing, mask) == 0, F.lit(i)) for i, mask in enumerate(signed)))
    pairs = left.join(right, on=["band", "key"], how="inner").where(F.col("first") < F.col("second"))
    return pairs.where((F.bit_count(differing) <= distance) & (meeting == F.col("band"))).select("first", "second")


def components(
    first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The distinct hashes of these pairs, ascending, and for each the smallest hash that pairs connect it to."""
    nodes, places = np.unique(np.concatenate([first, second]).view(np.uint64), return_inverse=True)
    one, other = places[: len(first)], places[len(first) :]
    root = np.arange(len(nodes))
    while (root[one] != root[other]).any():  # each round joins at least one tree to another
        low = np.minimum(root[one], root[other])
        tops = root[one], root[other]
        for top in tops:
            np.minimum.at(root, top, low)
        while (root[root] != root).any():
            root = root[root]
    return nodes, nodes[root]


def _collect(pairs: DataFrame, *, distance: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Collect the pairs. If there are too many, they are first reduced to fewer pairs that connect the same hashes."""
    pairs = persisted(pairs)
    try:
        for left in reversed(range(_ROUNDS)):
            count = pairs.count()
            if count <= _DRIVER_PAIRS:
                frame: Any = pairs.toPandas()
                return frame["first"].to_numpy(np.int64), frame["second"].to_numpy(np.int64)
            if left:
                thinner = persisted(pairs.transform(large_star).transform(small_star))
                thinner.count()
                pairs.unpersist()
                pairs = thinner
    finally:
        pairs.unpersist()
    raise EtlError(
        f"Wanted at most {_DRIVER_PAIRS:,} pairs of similar images. Found: {count:,}, within a distance of "
        f"{distance} bits. Use a smaller number: --look-alike-bits {max(distance - 1, 0)}"
    )


def large_star(pairs: DataFrame, /) -> DataFrame:
    """Connect the larger neighbors of each hash to its smallest one. Connected hashes stay connected."""
    both = pairs.union(pairs.select(F.col("second").alias("first"), F.col("first").alias("second")))
    smallest = F.least("first", F.min("second").over(Window.partitionBy("first")))
    larger = both.withColumn("smallest", smallest).where(F.col("second") > F.col("first"))
    return larger.select(F.col("smallest").alias("first"), "second").distinct()


def small_star(pairs: DataFrame, /) -> DataFrame:
    """Connect each hash and its smaller neighbors (``first < second``) to the smallest of these."""
    smallest = F.min("first").over(Window.partitionBy("second"))
    known = pairs.withColumn("smallest", smallest)
    own = known.select(F.col("smallest").alias("first"), "second")
    others = known.where(F.col("first") > F.col("smallest")).select(
        F.col("smallest").alias("first"), F.col("first").alias("second")
    )
    return own.union(others).distinct()
