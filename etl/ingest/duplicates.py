"""Exact duplicates: images with the same bytes, found by their SHA-256.

Duplicates with different labels are contradictory training data. Duplicates in different split folders leak test images
into training.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.frames import persisted

EXAMPLES = 20

IMAGES = "id BINARY, label INT, or_split STRING, path STRING, sha256 BINARY"
"""The columns that `duplicate_groups` needs of written images. There may be other columns."""

GROUPS = "sha256 BINARY, images BIGINT, different_labels BOOLEAN, different_splits BOOLEAN, first STRING, last STRING"
"""Groups of duplicates: the number of images, whether their labels or split folders differ, first and last name."""


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """One image that occurs several times. ``sha256`` is hexadecimal; names start with the split folder."""

    sha256: str
    images: int
    different_labels: bool
    different_splits: bool
    first: str
    last: str

    def __str__(self) -> str:
        differ = [what for what, do in (("label", self.different_labels), ("split", self.different_splits)) if do]
        text = f"{self.first} and {self.last}" + (f" ({self.images:,} images)" if self.images > 2 else "")
        return text + (f" differ in {' and '.join(differ)}" if differ else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateSummary:
    """The number of groups of duplicates, and of those with different labels and in different split folders."""

    groups: int = 0
    images: int = 0
    with_different_labels: int = 0
    in_different_splits: int = 0
    examples: list[DuplicateGroup]

    def __str__(self) -> str:
        if not self.groups:
            return "no exact duplicates"
        return (
            f"{self.images:,} images are exact duplicates, in {self.groups:,} groups; {self.with_different_labels:,} "
            f"of these groups have different labels, {self.in_different_splits:,} are in different split folders"
        )


def duplicate_groups(images: DataFrame, /) -> DataFrame:
    """Find images that occur more than once, as rows of `GROUPS`. One shuffle of at most one row per image."""
    name = F.when(F.col("or_split") == "", F.col("path")).otherwise(F.concat_ws("/", "or_split", "path"))
    groups = (
        images.where(F.col("sha256").isNotNull())
        .groupBy("sha256")
        .agg(
            F.count("*").alias("images"),
            F.coalesce(F.min("label") != F.max("label"), F.lit(False)).alias("different_labels"),
            (F.min("or_split") != F.max("or_split")).alias("different_splits"),
            F.min(name).alias("first"),
            F.max(name).alias("last"),
        )
    )
    return groups.where(F.col("images") > 1)


def summarise(groups: DataFrame, *, examples: int = EXAMPLES) -> DuplicateSummary:
    """Count the groups and collect the worst ``examples``. Runs Spark, which computes the groups once."""
    worst_first = (F.desc("different_labels"), F.desc("different_splits"), F.desc("images"), "first", "sha256")
    # Counted from persisted rows: an Observation counts rows again that Spark computes again, for a sort or after a
    # failure.
    kept = persisted(groups)
    try:
        (counts,) = kept.agg(
            F.count("*").alias("groups"),
            F.sum("images").alias("images"),
            F.count_if("different_labels").alias("with_different_labels"),
            F.count_if("different_splits").alias("in_different_splits"),
        ).collect()
        rows = kept.orderBy(*worst_first).limit(examples).collect() if counts.groups else []
    finally:
        kept.unpersist()
    return DuplicateSummary(
        **{name: value or 0 for name, value in counts.asDict().items()},
        examples=[DuplicateGroup(bytes(row.sha256).hex(), *row[1:]) for row in rows],
    )
