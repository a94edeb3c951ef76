"""Exact duplicates: images whose bytes are the same, found by their SHA-256.

The worst are those with different labels, and those in different split folders: the first teach nonsense, the second
let a test picture into training.
"""

from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

EXAMPLES = 20

IMAGES = "id BINARY, label INT, or_split STRING, path STRING, sha256 BINARY"
"""What `duplicate_groups` needs of images that were written; other columns may be there."""

GROUPS = "sha256 BINARY, images BIGINT, different_labels BOOLEAN, different_splits BOOLEAN, first STRING, last STRING"
"""Images that are the same: how many, whether their labels or split folders differ, their first and last names."""


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """One picture that is there several times; ``sha256`` in hexadecimal, names with the split folder in front."""

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
    """Counts of the groups of `GROUPS`, and of those with different labels and in different split folders.

    The examples are those with different labels first, then those in different split folders, then the others; each by
    most images, then by name.
    """

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
            f"of these groups have different labels, {self.in_different_splits:,} lie in different split folders"
        )


def duplicate_groups(images: DataFrame, /) -> DataFrame:
    """Images that are there more than once, as the rows of `GROUPS`: one shuffle, of one row a picture at most."""
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
    """Count the groups and take the worst ``examples``; runs Spark, which makes the groups once."""
    worst_first = (F.desc("different_labels"), F.desc("different_splits"), F.desc("images"), "first", "sha256")
    # Counted from what is kept: an Observation counts again whatever Spark makes again, for a sort or after a failure.
    kept = groups.persist(StorageLevel.MEMORY_AND_DISK)
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
