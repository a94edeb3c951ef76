"""The steps of a split that ask Spark for numbers and go on with them."""

from collections.abc import Mapping, Sequence

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from etl.splits.choice import assign_splits, count_buckets, find_edges
from etl.splits.cuts import bucket_shifts, cut_strata
from etl.splits.positions import Chunks, add_positions, count_chunks, partition_keys
from jobs.frames import fetched, small_table

Edge = tuple[int, bytes] | None
Quotas = Mapping[int, Sequence[int]]


def deal(
    spark: SparkSession,
    rows: DataFrame,
    *,
    free: Mapping[int, int],
    quotas: Quotas,
    splits: int,
    seed: int,
    keep: Sequence[str] = (),
) -> DataFrame:
    """Deal the rows of each stratum to splits, exactly: ``id, label, split`` and the columns to ``keep``.

    ``rows``: ``id, label, stratum`` and perhaps ``fixed``; ``free``: how many rows of a stratum are not fixed;
    ``quotas``: how many of these each split gets. A histogram, then the few ranks that it leaves open.
    """
    dealt = rows.where("fixed IS NULL") if "fixed" in rows.columns else rows
    strata = np.array(sorted(free), dtype=np.int64)
    shifts = bucket_shifts(np.array([free[stratum] for stratum in strata.tolist()], dtype=np.int64))
    of_stratum = dict(zip(strata.tolist(), shifts.tolist(), strict=True))
    schema = "stratum INT, shift INT"
    shift_table = small_table(spark, {"stratum": strata.tolist(), "shift": shifts.tolist()}, schema)
    histogram = fetched(dealt.transform(count_buckets, shifts=shift_table, seed=seed))
    owners, buckets, sizes = (histogram[name].to_numpy("int64") for name in ("stratum", "bucket", "rows"))
    cuts = cut_strata(owners, buckets, sizes, quotas)
    inside = sorted({(s, cut.bucket, cut.take + 1) for s, each in cuts.items() for cut in each if cut and cut.take})
    ranked: dict[tuple[int, int, int], Edge] = {}
    if inside:
        found = dealt.transform(find_edges, shifts=shift_table, cuts=_cut_table(spark, inside), seed=seed).collect()
        ranked = {(row["stratum"], row["bucket"], row["rank"]): (row["choice"], bytes(row["id"])) for row in found}
    edges: dict[int, list[Edge]] = {stratum: [(-(1 << 63), b"")] * splits for stratum in quotas}  # none is dealt
    for stratum, of_stratum_cuts in cuts.items():
        edges[stratum] = [
            None
            if cut is None
            else ranked[stratum, cut.bucket, cut.take + 1]
            if cut.take
            else (cut.bucket << of_stratum[stratum], b"")
            for cut in of_stratum_cuts
        ]
    return rows.transform(assign_splits, edges=_edge_table(spark, edges, splits), splits=splits, seed=seed, keep=keep)


def _cut_table(spark: SparkSession, inside: Sequence[tuple[int, int, int]]) -> DataFrame:
    columns = dict(zip(("stratum", "bucket", "rank"), map(list, zip(*inside, strict=True)), strict=True))
    return small_table(spark, columns, "stratum INT, bucket BIGINT, rank INT")


def _edge_table(spark: SparkSession, edges: Mapping[int, Sequence[Edge]], splits: int) -> DataFrame:
    columns: dict[str, list[int | bytes | None]] = {"stratum": list(edges)}
    schema = ["stratum INT"]
    for number in range(splits):
        of_split = [of[number] for of in edges.values()]
        columns[f"choice_{number}"] = [edge and edge[0] for edge in of_split]
        columns[f"id_{number}"] = [edge and edge[1] for edge in of_split]
        schema += [f"choice_{number} BIGINT", f"id_{number} BINARY"]
    return small_table(spark, columns, ", ".join(schema))


def place(spark: SparkSession, assigned: DataFrame, *, sizes: Sequence[int], seed: int) -> DataFrame:
    """The rows with their place in their split's order, sorted by it: ``split, id, label, position``."""
    chunks = Chunks.of(sizes)
    of_chunk = {
        row["chunk"]: row["rows"] for row in assigned.transform(count_chunks, chunks=chunks, seed=seed).collect()
    }
    starts = chunks.starts(of_chunk)
    keys = partition_keys(spark, len(starts))
    return assigned.transform(add_positions, chunks=chunks, starts=starts, keys=keys, seed=seed)
