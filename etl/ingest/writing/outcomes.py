"""The outcome of each file of an ingest: the rows that a writing task returns."""

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.batches import arrow_schema

WRITTEN, THERE, THERE_FROM_OTHERS = "written", "already there", "from another source"
THERE_OTHERWISE = "there otherwise"  # with another class or another end
DELETED = "deleted"  # from the tables on request: such images are left out

# Before (id, label, sha256), they make two independent row hashes of Spark's one function.
SUM_SEEDS = (0x3C0FFEE, 0x4C0FFEE)

OUTCOMES = (
    "id BINARY, label INT, or_split STRING, path STRING, bytes BIGINT, sha256 BINARY, stage STRING, reason STRING, "
    "note STRING, executor STRING"
)
"""The schema of outcomes. ``stage`` is ``written``, ``already there``, ``from another source``, ``there otherwise``,
``deleted``, or the stage at which a file was rejected: ``list``, ``read`` or ``write``."""

ARROW_OUTCOMES = arrow_schema(OUTCOMES)


class Outcome(NamedTuple):
    """One row of `OUTCOMES`: ``note`` is a remark on an ingested image."""

    id: bytes
    label: int | None
    or_split: str
    path: str
    size: int
    sha256: bytes | None
    stage: str
    reason: str | None
    note: str | None
    executor: str


def tally(outcomes: DataFrame) -> DataFrame:
    """Sum up rows, bytes and two row hashes by or_split, stage, kind of reason, note and executor; collect labels."""
    kind = F.substring_index("reason", ": ", 1).alias("kind")
    # whether a sum of longs wraps or fails depends on Spark's configuration
    first, second = (F.sum(F.xxhash64(F.lit(seed).cast("long"), "id", "label", "sha256").cast("decimal(20,0)"))
                     for seed in SUM_SEEDS)  # fmt: skip
    sums = (F.count("*").alias("files"), F.sum("bytes").alias("bytes"), first.alias("first"), second.alias("second"))
    labels = F.collect_set("label").alias("labels")
    return outcomes.groupBy("or_split", "stage", kind, "note", "executor").agg(*sums, labels)
