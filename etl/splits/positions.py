"""The position of each row in its split, as DataFrame transforms: dense from 0, in a second seeded order.

This order differs from the one by which rows are chosen, so a position says nothing about why a row is in the split. It
is cut into chunks of up to about a million rows, one file each: no split is ever sorted as a whole, and any slice of a
split is in a few adjacent files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from formats.checksums import COLUMN as CHECKSUM
from formats.checksums import UNKNOWN
from formats.hashing import murmur3
from formats.splits.fingerprint import SUM_SEEDS

_ROWS_A_CHUNK = 1_000_000
_ORDER_BITS = 64
_SIGN = -(1 << 63)
_ROW_BITS = 33  # Spark's monotonic row id has the partition above these bits, and the row's number in it below


def seeded_order(seed: int) -> Column:
    """The order of ``position``, and of images in shards: xxhash64 of the id, seeded. Ties are broken by the id."""
    return F.xxhash64(F.lit(seed).cast("long"), F.col("id"))


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of each split's order: split ``s`` has ``1 << bits[s]`` chunks, numbered through all splits."""

    bits: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Sequence[int]) -> "Chunks":
        """Make chunks for splits of these sizes."""
        return cls(tuple(max(0, ceil(log2(max(1, size) / _ROWS_A_CHUNK))) for size in sizes))

    @property
    def firsts(self) -> list[int]:
        """The first chunk of each split, and then the number of all chunks."""
        found = [0]
        for bits in self.bits:
            found.append(found[-1] + (1 << bits))
        return found

    @property
    def splits(self) -> list[int]:
        """The split of each chunk."""
        return [split for split, bits in enumerate(self.bits) for _ in range(1 << bits)]

    def starts(self, sizes: Mapping[int, int]) -> list[int]:
        """The number of rows of its split before each chunk, from the chunks' sizes. Empty chunks may be missing."""
        found = []
        for first, end in zip(self.firsts, self.firsts[1:], strict=False):
            before = 0
            for chunk in range(first, end):
                found.append(before)
                before += sizes.get(chunk, 0)
        return found

    def column(self, *, order: Column) -> Column:
        """The chunk of a row, from its ``split`` and its order; within a split, chunks ascend with the order."""
        unsigned = F.shiftrightunsigned(order.bitwiseXOR(F.lit(_SIGN)), 1)  # 63 bits, in the same order
        drop = _at(F.col("split"), [_ORDER_BITS - 1 - bits for bits in self.bits])
        index = F.call_function("shiftrightunsigned", unsigned, drop).cast("int")
        return _at(F.col("split"), self.firsts[:-1]) + index


def count_chunks(assigned: DataFrame, /, *, chunks: Chunks, seed: int) -> DataFrame:
    """Count rows by chunk: ``chunk, rows``."""
    return assigned.groupBy(chunks.column(order=seeded_order(seed)).alias("chunk")).agg(F.count("*").alias("rows"))


def partition_keys(partitions: int) -> list[int]:
    """Find a number for each partition that Spark's hash partitioning sends there, to control where rows go."""
    enough = int(partitions * (log2(partitions + 1) + 24))  # the probability of missing a partition is below e^-24
    sent_to, keys = np.unique(murmur3(np.arange(enough, dtype=np.int32)) % partitions, return_index=True)
    if len(sent_to) < partitions:
        raise ValueError(f"Wanted a key for each of {partitions} partitions. Found: {len(sent_to)}")
    return [int(key) for key in keys]


def add_positions(
    assigned: DataFrame, /, *, chunks: Chunks, starts: Sequence[int], keys: Sequence[int], seed: int
) -> DataFrame:
    """Add the rank 0..n-1 in the order of the split: ``split, id, label, position`` and the other columns of the rows;
    one sorted partition per chunk.
    ``starts`` has the number of rows of its split before each chunk, ``keys`` the `partition_keys` for all chunks.
    """
    row_in_chunk = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << _ROW_BITS) - 1))
    position = _at(F.col("chunk"), starts).cast("long") + row_in_chunk
    others = [name for name in assigned.columns if name not in ("id", "label", "split")]
    return (
        assigned.withColumn("order", seeded_order(seed))
        .select("id", "label", *others, "order", chunks.column(order=F.col("order")).alias("chunk"))
        .repartition(len(keys), _at(F.col("chunk"), keys))
        .sortWithinPartitions("order", "id")
        .select(_at(F.col("chunk"), chunks.splits).alias("split"), "id", "label", position.alias("position"), *others)
    )


def summarise(written: DataFrame, /) -> DataFrame:
    """Sum up each split by class: ``split, label, rows``, positions, and the sums of the fingerprint; if there are
    checksums, ``checksums`` with the sums of their fingerprint, and ``unchecked``, the rows without one.
    """
    position = F.col("position") if "position" in written.columns else F.lit(-1).cast("long")
    positioned = written.withColumn("position", position)
    positions = [function("position").alias(f"{name}_position") for name, function in (("max", F.max), ("sum", F.sum))]
    of_checksums = []
    if CHECKSUM in written.columns:
        sums = F.struct(*fingerprint_sums("id", CHECKSUM)).alias("checksums")
        of_checksums = [sums, F.count_if(F.col(CHECKSUM) == UNKNOWN).alias("unchecked")]
    return positioned.groupBy("split", "label").agg(
        F.count("*").alias("rows"), *positions, *fingerprint_sums("id", "label", "position"), *of_checksums
    )


def fingerprint_sums(*columns: str) -> list[Column]:
    """Aggregates for the sums of `formats.splits.fingerprint` over these columns: ``high0, low0, high1, low1``."""
    # Halves are summed separately so that no sum overflows, with or without ANSI mode.
    hashes = [F.xxhash64(F.lit(seed).cast("long"), *columns) for seed in SUM_SEEDS]
    return [
        F.sum(part).alias(f"{name}{number}")
        for number, hashed in enumerate(hashes)
        for name, part in (("high", F.shiftright(hashed, 32)), ("low", hashed.bitwiseAND(F.lit(0xFFFFFFFF))))
    ]


def added_up(rows: Iterable[Mapping[Any, Any]]) -> tuple[int, int]:
    """Compute the sums of a fingerprint from rows of `fingerprint_sums`."""
    first, second = 0, 0
    for row in rows:
        first += (int(row["high0"] or 0) << 32) + int(row["low0"] or 0)  # null if there were no rows
        second += (int(row["high1"] or 0) << 32) + int(row["low1"] or 0)
    return first, second


def _at(index: Column, values: Sequence[int]) -> Column:
    """The value at an index, counted from 0."""
    return F.element_at(F.array(*map(F.lit, values)), index + 1)
