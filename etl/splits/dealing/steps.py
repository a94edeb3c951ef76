"""The steps of a split that run Spark for counts and continue with the results."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.errors import TableError
from etl.frames import fetched, small_table
from etl.splits.dealing.choice import assign_splits, count_keys, find_cuts, find_tied
from etl.splits.dealing.cuts import FIRST, Zones
from etl.splits.positions import Chunks, add_positions, count_chunks, partition_keys

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
    """Assign the rows of each stratum to splits, exactly: ``id, label, split`` and the columns to ``keep``. ``rows``
    has ``id, label, stratum`` and optionally ``fixed``. ``free`` is the number of rows of each stratum that are not
    fixed, and ``quotas`` how many of these each split gets. Raises `TableError` if the number of rows has changed.
    """
    ends = {stratum: list(accumulate(of_stratum)) for stratum, of_stratum in quotas.items()}
    inside = {(stratum, cut) for stratum, cuts in ends.items() for cut in cuts if 0 < cut < free.get(stratum, 0)}
    dealt = rows.where("fixed IS NULL") if "fixed" in rows.columns else rows
    found = _find_edges(spark, dealt, free=free, cuts=sorted(inside), seed=seed)

    def edge(stratum: int, cut: int) -> Edge:
        if cut >= free.get(stratum, 0):
            return None
        return found[stratum, cut] if cut else (FIRST, b"")

    edges = {stratum: [edge(stratum, cut) for cut in cuts] for stratum, cuts in ends.items()}
    return rows.transform(assign_splits, edges=_edge_table(spark, edges, splits), splits=splits, seed=seed, keep=keep)


def take_used(
    spark: SparkSession,
    rows: DataFrame,
    *,
    used: Mapping[int, Sequence[int]],
    parts: Mapping[int, Sequence[int]],
    seed: int,
) -> DataFrame:
    """Take the rows that are used of each stratum, in the order in which `deal` assigns them. Rows have ``id, label,
    stratum``, and optionally ``fixed`` with ``stays``. ``used`` has by stratum the number of rows that must go to each
    split, and last of those that may go to any; ``parts`` has the rows that there are, without those that stay. Raises
    `TableError` if the number of rows has changed.
    """
    splits = max(map(len, parts.values()), default=1) - 1
    others = [name for name in rows.columns if name not in ("id", "label")]
    is_fixed = "fixed" in rows.columns
    part = F.coalesce(F.col("fixed"), F.lit(splits)) if is_fixed else F.lit(splits)
    pooled = rows.select(
        "id",
        "label",
        F.struct(*others).alias("row"),
        (F.col("stratum").cast("long") * (splits + 1) + part).alias("stratum"),
        *([F.when(F.col("stays"), F.lit(0)).alias("fixed")] if is_fixed else []),
    )

    def numbered(counts: Mapping[int, Sequence[int]]) -> dict[int, int]:
        return {stratum * (splits + 1) + n: rows for stratum, row in counts.items() for n, rows in enumerate(row)}

    free = {pool: count for pool, count in numbered(parts).items() if count}
    quotas = {pool: [count] for pool, count in numbered(used).items()}
    return deal(spark, pooled, free=free, quotas=quotas, splits=1, seed=seed, keep=["row"]).select(
        "id", "label", "row.*"
    )


def _find_edges(
    spark: SparkSession, dealt: DataFrame, *, free: Mapping[int, int], cuts: Sequence[tuple[int, int]], seed: int
) -> dict[tuple[int, int], tuple[int, bytes]]:
    """The first row after each cut, by stratum and number of rows before it: its order key, and its id if other rows
    have the same key.
    """
    edges: dict[tuple[int, int], tuple[int, bytes]] = {}
    tied: dict[tuple[int, int], tuple[int, int]] = {}
    zones = Zones.expected(free, cuts)
    while cuts:
        counted = dealt.transform(count_keys, zones=_zone_table(spark, zones), each=zones.lows.shape[1], seed=seed)
        strata, befores = zip(*cuts, strict=True)
        cut_table = small_table(spark, {"stratum": strata, "cut": befores}, "stratum BIGINT, cut BIGINT")
        found = fetched(counted.transform(find_cuts, cuts=cut_table))
        if len(found) != len(cuts):
            raise TableError(f"Wanted the rows that were counted before. Found: different rows, for {len(cuts)} cuts.")
        gaps: dict[int, list[tuple[int, int]]] = defaultdict(list)
        missed = []
        for stratum, cut, key, before in found.itertuples(index=False):
            if cut == before:
                edges[stratum, cut] = (key, b"")
            elif gap := zones.gap(stratum, key):
                gaps[stratum].append(gap)
                missed.append((stratum, cut))
            else:
                tied[stratum, cut] = (key, cut - before)
        cuts, zones = missed, Zones.of(gaps)
    return edges | _untie(spark, dealt, tied, seed=seed) if tied else edges


def _untie(
    spark: SparkSession, dealt: DataFrame, tied: Mapping[tuple[int, int], tuple[int, int]], *, seed: int
) -> dict[tuple[int, int], tuple[int, bytes]]:
    """The first rows after cuts between rows of one key. ``tied`` has, by cut, the key and the rank in it, from 0."""
    keys = sorted({(stratum, key) for (stratum, _), (key, _) in tied.items()})
    columns = dict(zip(("stratum", "key"), zip(*keys, strict=True), strict=True))
    wanted = small_table(spark, columns, "stratum BIGINT, key BIGINT")
    same: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    for row in dealt.transform(find_tied, keys=wanted, seed=seed).collect():
        same[row["stratum"], row["key"]].append(bytes(row["id"]))
    return {(stratum, cut): (key, sorted(same[stratum, key])[rank]) for (stratum, cut), (key, rank) in tied.items()}


def _zone_table(spark: SparkSession, zones: Zones) -> DataFrame:
    columns = {"stratum": zones.strata.tolist()}
    for zone in range(zones.lows.shape[1]):
        columns |= {f"low_{zone}": zones.lows[:, zone].tolist(), f"high_{zone}": zones.highs[:, zone].tolist()}
    return small_table(spark, columns, ", ".join(f"{name} BIGINT" for name in columns))


def _edge_table(spark: SparkSession, edges: Mapping[int, Sequence[Edge]], splits: int) -> DataFrame:
    columns: dict[str, list[int | bytes | None]] = {"stratum": list(edges)}
    schema = ["stratum BIGINT"]
    for number in range(splits):
        of_split = [of[number] for of in edges.values()]
        columns[f"choice_{number}"] = [edge and edge[0] for edge in of_split]
        columns[f"id_{number}"] = [edge and edge[1] for edge in of_split]
        schema += [f"choice_{number} BIGINT", f"id_{number} BINARY"]
    return small_table(spark, columns, ", ".join(schema))


def order_rows(assigned: DataFrame, *, sizes: Sequence[int], seed: int) -> DataFrame:
    """The rows with their positions in their splits, sorted by position: ``split, id, label, position``."""
    chunks = Chunks.of(sizes)
    of_chunk = {
        row["chunk"]: row["rows"] for row in assigned.transform(count_chunks, chunks=chunks, seed=seed).collect()
    }
    starts = chunks.starts(of_chunk)
    keys = partition_keys(len(starts))
    return assigned.transform(add_positions, chunks=chunks, starts=starts, keys=keys, seed=seed)
