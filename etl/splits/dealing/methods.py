"""The methods of assignment: exactly by strata, image by image for several labels, or group by group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.frames import fetched, small_table
from etl.splits.dealing.choice import choice_order
from etl.splits.dealing.label_sets import LabelSets, stratify
from etl.splits.dealing.shares import Shares
from etl.splits.dealing.steps import deal, take_used
from etl.splits.dealing.survey import stratum_numbers, with_strata
from etl.splits.plan import LABELS, SplitPlan

# The most images with several labels that the driver assigns one by one. More are assigned by their label sets.
MOST_ONE_BY_ONE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dealt:
    """Images with their splits: ``rows`` has ``id, label, split`` and the columns to keep. ``sizes`` has the images by
    split, and ``ideal_sizes`` those that the ratios require. ``counts`` and ``ideals`` have the same by class and
    split. ``images`` has the images of each class that took part, ``unused`` the number of images in no split.
    ``method`` describes the method. ``groups`` has ``group, split``, if groups were assigned.
    """

    rows: DataFrame
    sizes: Sequence[int]
    ideal_sizes: Sequence[float]
    unused: int
    counts: Mapping[int, Sequence[int]]
    ideals: Mapping[int, Sequence[float]]
    images: Mapping[int, int]
    method: str
    warnings: tuple[str, ...] = field(default=())
    groups: DataFrame | None = None


def shared_only(rows: DataFrame, shares: Shares, *, by: Mapping[str, str]) -> Dealt:
    """The quotas, before rows have splits."""
    is_multi = LABELS in by.values()
    images = np.array([[stratum.images] for stratum in shares.strata])
    return Dealt(
        rows=rows,
        sizes=shares.sizes,
        ideal_sizes=shares.ideals.sum(axis=0).tolist(),
        unused=sum(stratum.images for stratum in shares.strata) - sum(shares.sizes),
        counts=whole(shares.by_class(shares.quotas, is_multi=is_multi)),
        ideals=shares.by_class(shares.ideals, is_multi=is_multi),
        images={label: int(row[0]) for label, row in shares.by_class(images, is_multi=is_multi).items()},
        method="exact quotas by set of labels" if is_multi else f"exact quotas by {', '.join(by) or 'split'}",
        warnings=shares.warnings,
    )


def deal_strata(
    spark: SparkSession,
    rows: DataFrame,
    shares: Shares,
    *,
    by: Mapping[str, str],
    plan: SplitPlan,
    keep: Sequence[str],
) -> Dealt:
    """Assign each stratum exactly by its quotas."""
    strata, splits = shares.strata, len(shares.ratios)
    numbers = stratum_numbers(strata, by=by)
    fixed = np.array(shares.fixed, dtype=np.int64).reshape(shares.quotas.shape)
    quotas = dict(zip(numbers, (shares.quotas - fixed).tolist(), strict=True))
    free = {number: stratum.free for number, stratum in zip(numbers, strata, strict=True) if stratum.free}
    numbered = with_strata(spark, rows, strata, by=by)
    if "fixed" in rows.columns and not shares.uses_all:
        numbered = used_rows(spark, numbered, shares, by=by, seed=plan.seed)
        free = {number: sum(row) for number, row in quotas.items() if sum(row)}
    dealt = deal(spark, numbered, free=free, quotas=quotas, splits=splits, seed=plan.seed, keep=keep)
    return replace(shared_only(rows, shares, by=by), rows=dealt)


def used_rows(spark: SparkSession, rows: DataFrame, shares: Shares, *, by: Mapping[str, str], seed: int) -> DataFrame:
    """The rows that are used, of rows with their ``stratum``. Runs Spark."""
    numbers, none = stratum_numbers(shares.strata, by=by), (0,) * len(shares.ratios)
    used, parts = {}, {}
    for number, stratum, fixed, total in zip(numbers, shares.strata, shares.fixed, shares.used, strict=True):
        stay = stratum.staying or none
        parts[number] = [*(n - kept for n, kept in zip(stratum.fixed, stay, strict=True)), stratum.free]
        used[number] = [*(n - kept for n, kept in zip(fixed, stay, strict=True)), total - sum(fixed)]
    return take_used(spark, rows, used=used, parts=parts, seed=seed)


def whole(counts: Mapping[int, Sequence[float]]) -> dict[int, list[int]]:
    """Counts as integers, by class and split."""
    return {label: [int(number) for number in row] for label, row in counts.items()}


def deal_one_by_one(
    spark: SparkSession, rows: DataFrame, shares: Shares, *, plan: SplitPlan, keep: Sequence[str]
) -> Dealt:
    """Assign images with several labels by iterative stratification, on the driver."""
    frame = fetched(rows.select("id", choice_order(plan.seed).alias("choice"), LABELS))
    frame = frame.sort_values(["choice", "id"], ignore_index=True)  # by the id if two hashes are equal
    labels = [np.asarray(of_image, dtype=np.int64) for of_image in frame[LABELS]]
    starts = np.concatenate([[0], np.cumsum([len(of_image) for of_image in labels])]).astype(np.int64)
    flat = np.concatenate([*labels, np.empty(0, dtype=np.int64)])
    splits, unused = len(shares.ratios), len(frame) - sum(shares.sizes)
    sets = LabelSets(starts=starts, labels=flat, order=np.arange(len(frame), dtype=np.int64))
    split = stratify(sets, [*shares.sizes, unused], seed=plan.seed)
    of_label = np.repeat(split, np.diff(starts))
    counts = {
        int(label): np.bincount(of_label[flat == label], minlength=splits + 1)[:splits].tolist()
        for label in np.unique(flat)
    }
    assigned = small_table(spark, {"id": frame["id"].tolist(), "split": split.tolist()}, "id BINARY, split INT")
    dealt = rows.join(assigned, on="id", how="inner").where(F.col("split") < splits)
    return replace(
        shared_only(dealt.select("id", "label", "split", *keep), shares, by={LABELS: LABELS}),
        counts=counts,
        method="iterative stratification of several labels",
    )
