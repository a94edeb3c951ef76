"""The assignment of whole groups: executors count them, and the driver assigns those that matter."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.frames import fetched, kept, small_table
from etl.splits.dealing.group_quotas import Groups, assign_groups
from etl.splits.dealing.methods import Dealt, shared_only, used_rows, whole
from etl.splits.dealing.shares import Shares
from etl.splits.dealing.survey import stratum_numbers, with_strata
from etl.splits.group_rows import (
    EVERY_IMAGE,
    compose,
    count_needs,
    count_sent,
    draw,
    draw_bound,
    is_placed,
    send,
)
from etl.splits.plan import LABELS, SplitPlan

PLACED = 100_000  # the number of groups that the driver assigns one by one; at most twice as many
_BROADCAST = 1_000_000


def deal_groups(
    spark: SparkSession,
    rows: DataFrame,
    shares: Shares,
    *,
    by: Mapping[str, str],
    plan: SplitPlan,
    keep: Sequence[str],
    stack: ExitStack,
) -> Dealt:
    """Assign each group to one split, as near to the quotas as whole groups allow. If only some images are used, they
    are taken first, exactly; groups are then those of the images that are used.
    """
    is_multi, splits = LABELS in by.values(), len(shares.ratios)
    numbered = rows if is_multi and shares.uses_all else with_strata(spark, rows, shares.strata, by=by)
    if not shares.uses_all:
        numbered = rows = kept(used_rows(spark, numbered, shares, by=by, seed=plan.seed), stack=stack)
    wanted = _wanted(shares, by=by, is_multi=is_multi)
    numbers = np.array(sorted(wanted), dtype=np.int64)
    matrix = np.array([wanted[number] for number in numbers.tolist()])
    totals = {"stratum": numbers.tolist(), "total": matrix.sum(axis=1).tolist()}
    composed = numbered.transform(
        compose, totals=small_table(spark, totals, "stratum INT, total DOUBLE"), labels=LABELS if is_multi else None
    )
    groups = kept(composed, stack=stack)
    bounds = _bounds(spark, numbers, matrix)
    total, one_by_one = _choose(groups, seed=plan.seed)
    fixed = F.col("fixed") if "fixed" in groups.columns else F.lit(None).cast("int")
    sent = groups.where(fixed.isNull() & ~one_by_one).transform(send, bounds=bounds, splits=splits, seed=plan.seed)
    stay = groups.where(fixed.isNotNull()).withColumn("split", fixed)
    columns = ["group", "strata", "counts", "split"]
    settled = sent.select(*columns).unionByName(stay.select(*columns))
    got = _matrix(settled.transform(count_sent), numbers, splits)
    placed = fetched(
        groups.where(fixed.isNull() & one_by_one).select(
            "group", "strata", "counts", draw(plan.seed + 2).alias("order")
        )
    )
    assigned, images = _place(placed, numbers, matrix - got)
    table = small_table(
        spark, {"group": placed["group"].tolist(), "split": assigned.tolist()}, "group BIGINT, split INT"
    )
    everywhere = settled.select("group", "split").unionByName(table)
    splits_of = F.broadcast(everywhere) if total <= _BROADCAST else everywhere
    dealt = rows.join(splits_of, on="group", how="inner").select("id", "label", "split", *keep)
    in_splits = (got + images).astype(np.int64).tolist()
    found = _dealt(dealt, shares, dict(zip(numbers.tolist(), in_splits, strict=True)), by=by)
    return replace(found, groups=everywhere)


def _wanted(shares: Shares, *, by: Mapping[str, str], is_multi: bool) -> dict[int, list[float]]:
    """The wanted images by stratum number, for each split; only of strata with images that are used."""
    matrix = shares.quotas.astype(np.float64)
    if is_multi:
        found = {**shares.by_class(matrix, is_multi=True), EVERY_IMAGE: matrix.sum(axis=0).tolist()}
    else:
        found = dict(zip(stratum_numbers(shares.strata, by=by), matrix.tolist(), strict=True))
    return {number: row for number, row in found.items() if any(row)}


def _bounds(spark: SparkSession, numbers: NDArray[np.int64], matrix: NDArray[np.float64]) -> DataFrame:
    ends = np.cumsum(matrix / matrix.sum(axis=1, keepdims=True), axis=1)
    columns: dict[str, list[int]] = {"lead": numbers.tolist()}
    for split in range(matrix.shape[1] - 1):
        columns[f"bound_{split}"] = [draw_bound(end) for end in ends[:, split].tolist()]
    return small_table(spark, columns, ", ".join(f"{name} {'INT' if name == 'lead' else 'BIGINT'}" for name in columns))


def _choose(groups: DataFrame, *, seed: int) -> tuple[int, Column]:
    """The number of groups, and which are assigned one by one: all, or half the most needed and half a sample."""
    steps = fetched(groups.transform(count_needs)).sort_values("step", ascending=False)
    total = int(steps["groups"].sum())
    if total <= PLACED:
        return total, F.lit(True)
    enough = np.searchsorted(np.cumsum(steps["groups"].to_numpy("int64")), PLACED // 2, side="right")
    step = int(steps["step"].iloc[enough]) + 1
    return total, is_placed(step=step, sample=draw_bound(PLACED / 2 / total), seed=seed)


def _matrix(counted: DataFrame, numbers: NDArray[np.int64], splits: int) -> NDArray[np.float64]:
    found = fetched(counted)
    matrix = np.zeros((len(numbers), splits))
    indices = np.searchsorted(numbers, found["stratum"].to_numpy("int64"))
    np.add.at(matrix, (indices, found["split"].to_numpy("int64")), found["images"].to_numpy("float64"))
    return matrix


def _place(
    placed: pd.DataFrame, numbers: NDArray[np.int64], wanted: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The split of each group that is assigned one by one, and their images by stratum and split."""
    sizes = np.array([len(of_group) for of_group in placed["strata"]], dtype=np.int64)
    none = [np.empty(0, dtype=np.int64)]
    strata = np.searchsorted(numbers, np.concatenate([*placed["strata"], *none])).astype(np.int64)
    images = np.concatenate([*placed["counts"], *none]).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    groups = Groups(starts=starts, strata=strata, images=images, order=np.asarray(placed["order"], dtype=np.int64))
    assigned = assign_groups(groups, wanted)
    brought = np.zeros(wanted.shape)
    np.add.at(brought, (strata, np.repeat(assigned, sizes)), images)
    return assigned, brought


def _dealt(rows: DataFrame, shares: Shares, got: Mapping[int, Sequence[int]], *, by: Mapping[str, str]) -> Dealt:
    """``got`` has the images by stratum number and split; strata without images may be missing."""
    none, is_multi = [0] * len(shares.ratios), LABELS in by.values()
    planned = shared_only(rows, shares, by={LABELS: LABELS} if is_multi else {"label": "label"})
    if is_multi:
        sizes = got[EVERY_IMAGE]
        counts = {label: list(got.get(label, none)) for label in planned.counts}
    else:
        matrix = np.array([got.get(number, none) for number in stratum_numbers(shares.strata, by=by)], dtype=np.int64)
        sizes = matrix.sum(axis=0).tolist()
        counts = whole(shares.by_class(matrix))
    off = max(abs(size - ideal) for size, ideal in zip(sizes, planned.ideal_sizes, strict=True))
    worst = max(
        (abs(n - ideal) for c, row in counts.items() for n, ideal in zip(row, planned.ideals[c], strict=True)),
        default=0.0,
    )
    told = f"whole groups: a split is off by at most {off:,.1f} images, a class in a split by {worst:,.1f}"
    return replace(
        planned,
        sizes=[int(size) for size in sizes],
        unused=sum(stratum.images for stratum in shares.strata) - int(sum(sizes)),
        counts=counts,
        method=told,
    )
