"""The counts of the images that take part, by stratum, and the check that they can be split."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from etl.errors import TableError
from etl.frames import small_table
from etl.splits.candidates import number_strata
from etl.splits.dealing.shares import Stratum
from etl.splits.metadata import Metadata, no_images, sums
from etl.splits.metadata_reading import check_sums
from etl.splits.plan import SplitPlan

_MOST_STRATA = 2_000_000


class Survey(NamedTuple):
    """The strata of the images that take part, in the order of their values; ``alone`` images have no group."""

    strata: Sequence[Stratum]
    alone: int


def survey(rows: DataFrame, *, by: Mapping[str, str], plan: SplitPlan, metadata: Metadata, splits: int) -> Survey:
    """Count the images that take part. Raises `TableError`."""
    columns = [*by.values(), *(["fixed"] if "fixed" in rows.columns else [])]
    alone = F.count_if("is_alone") if "is_alone" in rows.columns else F.lit(0)
    stays = F.count_if("stays") if "stays" in rows.columns else F.lit(0)
    counts = sums() if metadata.cache else [F.count("*").alias("rows")]
    wrong = [F.count_if(F.col("label").isNull()).alias("unlabelled"), F.count_if(F.col("label") < 0).alias("negative")]
    others = [alone.alias("alone"), stays.alias("staying"), *wrong]
    found = rows.groupBy(*columns).agg(*counts, *others).where("rows > 0").collect()
    if metadata.cache:  # not yet compared with its manifest: all its rows must take part, so this pass does both
        check_sums(metadata, metadata.cache, found)
    _check(found, by=by, plan=plan, metadata=metadata)
    images: dict[tuple[Any, ...], int] = defaultdict(int)
    fixed: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * splits)
    staying: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * splits)
    for row in found:
        values = tuple(_hashable(row[name]) for name in by.values())
        images[values] += row["rows"]
        if "fixed" in columns and row["fixed"] is not None:
            if row["fixed"] >= splits:
                raise TableError(f"Wanted splits 0 to {splits - 1}. Found: images in split {row['fixed']}.")
            fixed[values][row["fixed"]] += row["rows"]
            staying[values][row["fixed"]] += row["staying"]
    index = list(by).index("label") if "label" in by else None
    strata = [
        Stratum(
            values=values,
            label=-1 if index is None else int(values[index]),
            images=images[values],
            fixed=tuple(fixed[values]),
            staying=tuple(staying[values]),
        )
        for values in sorted(
            images, key=lambda values: [(value is not None, 0 if value is None else value) for value in values]
        )
    ]
    return Survey(strata, sum(row["alone"] for row in found))


def _hashable(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    return tuple(value) if isinstance(value, list) else value


def _check(found: Sequence[Row], *, by: Mapping[str, str], plan: SplitPlan, metadata: Metadata) -> None:
    table = metadata.metadata_table
    if not found:
        if plan.where or plan.exclude:
            told = " ".join(
                filter(None, (plan.where and f"--where {plan.where!r}", *(f"--exclude {ref}" for ref in plan.exclude)))
            )
            raise TableError(f"Wanted images of {table} with {told}. Found: none.")
        raise no_images(metadata)
    if len(found) > _MOST_STRATA:
        raise TableError(f"Wanted at most {_MOST_STRATA:,} combinations of {', '.join(by)}. Found: {len(found):,}.")
    if metadata.label_type == "int":
        label, advice = f"{table} ({metadata.columns.label})", "Correct them, or leave them out: --where 'label {}'."
        if missing := sum(row["unlabelled"] for row in found):
            raise TableError(
                f"Wanted a label for every image in {label}. Found: {missing:,} without one. "
                f"{advice.format('IS NOT NULL')}"
            )
        if negative := sum(row["negative"] for row in found):
            raise TableError(
                f"Wanted labels of 0 or more in {label}. Found: {negative:,} images with a negative one. "
                f"{advice.format('>= 0')}"
            )
    if (plan.pins or plan.extend) and (torn := sum(row["rows"] for row in found if row["fixed"] == -1)):
        raise TableError(
            f"Wanted one split for each image that is pinned or in a split already. Found: {torn:,} images that "
            "would have to be in two splits, or are in groups that would. Leave them out (--where) or make a new split."
        )


def with_strata(spark: SparkSession, rows: DataFrame, strata: Sequence[Stratum], *, by: Mapping[str, str]) -> DataFrame:
    """The rows with the number of their stratum: its index in the list, or the label if that is the only column."""
    if list(by.values()) == ["label"]:
        return rows.withColumn("stratum", F.col("label"))
    if not by:
        return rows.withColumn("stratum", F.lit(0))
    kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    columns: dict[str, Sequence[Any]] = {
        name: [list(value) if isinstance(value := stratum.values[index], tuple) else value for stratum in strata]
        for index, name in enumerate(by.values())
    }
    schema = ", ".join([*(f"{name} {kinds[name]}" for name in by.values()), "stratum INT"])
    numbers = small_table(spark, {**columns, "stratum": range(len(strata))}, schema)
    return rows.transform(number_strata, strata=numbers, columns=list(by.values()))


def stratum_numbers(strata: Sequence[Stratum], *, by: Mapping[str, str]) -> list[int]:
    """The number that `with_strata` gives each stratum of the list."""
    return [stratum.label for stratum in strata] if list(by.values()) == ["label"] else list(range(len(strata)))
