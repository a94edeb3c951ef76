"""The verbs of an ingest: which images, which are in the way, what became of them."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from etl.cassandra.control import uuid_bytes
from etl.errors import ConflictError
from etl.ingest.plan import IngestPlan
from etl.ingest.writing.image_writer import WriteOrder, write_images
from etl.ingest.writing.outcomes import OUTCOMES, THERE, THERE_FROM_OTHERS, THERE_OTHERWISE
from etl.sources.entries import ENTRIES, Listing
from etl.workers import map_batches
from schemas import Columns

# A task is what is written again if it fails, and after which progress is told.
_TASK_ROWS = 2_000
_TASK_BYTES = 256 << 20
_SHOWN = 5
_COLUMNS = [column.split()[0] for column in ENTRIES.split(", ")]


def task_count(*, rows: int, size: int, cores: int) -> int:
    """How many tasks write so many rows of so many bytes: whole rounds over the cores, none too large."""
    wanted = max(1, math.ceil(rows / _TASK_ROWS), math.ceil(size / _TASK_BYTES))
    return max(1, min(rows, math.ceil(wanted / cores) * cores))


@dataclass(frozen=True, slots=True)
class Survey:
    """What a listing holds, counted; ``tops``: files that can be taken by class, and how many lie in deeper folders."""

    files: int = 0
    bytes: int = 0
    rejected: int = 0
    classes: frozenset[str] = frozenset()
    images_by_split: dict[str, int] = field(default_factory=dict)
    rejected_by_reason: dict[str, int] = field(default_factory=dict)
    tops: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Row], *, classes: Iterable[str]) -> "Survey":
        """Sum up the rows of `count_entries`; ``classes`` are names that are known beside them."""
        rows = list(rows)
        taken = [row for row in rows if row.kind is None]
        splits: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        tops: dict[str, tuple[int, int]] = {}
        for row in rows:
            if row.kind is None:
                splits[row.or_split] += row.files
                images, deeper = tops.get(row.or_label or "", (0, 0))
                tops[row.or_label or ""] = images + row.files, deeper + row.deeper
            else:
                reasons[row.kind] += row.files
        return cls(
            files=sum(row.files for row in rows),
            bytes=sum(row.bytes for row in taken),
            rejected=reasons.total(),
            classes=frozenset({row.or_label for row in taken if row.or_label is not None} | set(classes)),
            images_by_split=dict(sorted(splits.items())),
            rejected_by_reason=dict(sorted(reasons.items())),
            tops=tops,
        )

    @property
    def images_by_class(self) -> dict[str, int]:
        """How many images each class has."""
        return {name: self.tops.get(name, (0, 0))[0] for name in self.classes}


def count_entries(entries: DataFrame) -> DataFrame:
    """Files and bytes by split, class and kind of reason, and files in folders of folders (``deeper``).

    The kind is null for what can be taken.
    """
    kind = F.substring_index("reason", ": ", 1)
    label = F.when(F.col("reason").isNull(), F.col("or_label"))
    by = (F.col("or_split").cast("string").alias("or_split"), label.alias("or_label"), kind.alias("kind"))
    path = F.col("path").cast("string")
    deeper = F.count_if(F.substring_index(path, "/", 2) != path)
    return entries.groupBy(*by).agg(F.count("*").alias("files"), F.sum("bytes").alias("bytes"), deeper.alias("deeper"))


def known_images(metadata: DataFrame, *, columns: Columns) -> DataFrame:
    """Metadata rows as id (16 bytes) and label, whatever their names, and or_label, or_split, path and so on."""
    return metadata.select(
        uuid_bytes(columns.id).alias("id"),
        F.col(columns.label).alias("label"),
        "or_label",
        "or_split",
        "path",
        "bytes",
        "sha256",
        "source",
        "group_id",
    )


def there_already(entries: DataFrame, *, known: DataFrame, source: str) -> DataFrame:
    """The rows of ``known`` that have the ids of these entries.

    ``ours`` tells whether they came from this source, ``same_class`` whether their class is the one of the entry.
    """
    wanted = entries.where(F.col("reason").isNull()).groupBy("id").agg(F.max("or_label").alias("wanted"))
    return (
        known.join(wanted, on="id", how="inner")
        .withColumn("ours", F.col("source").eqNullSafe(F.lit(source)))
        .withColumn("same_class", F.col("or_label").eqNullSafe(F.col("wanted")))
        .drop("wanted")
    )


def refuse(there: DataFrame, *, count: int, plan: IngestPlan) -> None:
    """Raise `ConflictError`, with their number and the first few, if images are there that came from other sources."""
    if not count:
        return
    first = there.where(~F.col("ours")).orderBy("or_split", "path").limit(_SHOWN).collect()
    more = ", ..." if count > _SHOWN else ""
    shown = ", ".join(f"{row.path} from {row.source}" for row in first)
    raise ConflictError(
        f"Wanted to write images from {plan.source_name} to {plan.tables.metadata}. Found: {count:,} of them there "
        f"already from another source: {shown}{more}. Say --overwrite to replace them, or use other tables, with "
        "--data-table and --metadata-table."
    )


def as_outcomes(there: DataFrame) -> DataFrame:
    """Images that were written before, by this source or by others, as the rows of `OUTCOMES`."""
    return there.select(
        "id",
        "label",
        "or_split",
        "path",
        "bytes",
        "sha256",
        F.when(~F.col("ours"), THERE_FROM_OTHERS)
        .when(F.col("same_class"), THERE)
        .otherwise(THERE_OTHERWISE)
        .alias("stage"),
        *(F.lit(None).cast("string").alias(name) for name in ("reason", "note")),
        F.lit(None).cast("long").alias("phash"),
        F.lit("").alias("executor"),
    )


def write(entries: DataFrame, *, order: WriteOrder, tasks: int, access: str) -> DataFrame:
    """Write images, in so many tasks; gives the rows of `OUTCOMES`.

    ``access`` is that of their `Listing`. Images that travel with their rows stay in the partitions that they are in.
    """
    columns = _COLUMNS
    if "data" in entries.columns:
        columns = [*columns, "data"]
    elif access == "random":
        entries = entries.repartition(tasks, "id").sortWithinPartitions("place", "offset")
    elif access == "sequential":
        entries = entries.repartitionByRange(tasks, "place", "offset").sortWithinPartitions("place", "offset")
    else:
        entries = entries.repartition(tasks, "place").sortWithinPartitions("place", "offset")
    return map_batches(entries.select(*columns), task=partial(write_images, order=order), schema=OUTCOMES)


def without(listing: Listing, *, entries: DataFrame, done: DataFrame | None) -> DataFrame:
    """The entries that are to be written: all but those that are done, with their bytes where they are at hand."""
    if not listing.has_data:
        return entries if done is None else entries.join(done.select("id"), on="id", how="left_anti")
    if done is None:
        return listing.entries
    return listing.entries.join(F.broadcast(done.select("id")), on="id", how="left_anti")  # bytes are not shuffled


def tally(outcomes: DataFrame, *, seeds: tuple[int, int]) -> DataFrame:
    """Rows, bytes and two sums of row hashes, by or_split, stage, kind of reason, note and executor."""
    kind = F.substring_index("reason", ": ", 1).alias("kind")
    return outcomes.groupBy("or_split", "stage", kind, "note", "executor").agg(
        F.count("*").alias("files"),
        F.sum("bytes").alias("bytes"),
        *(_hash_sum(seed).alias(name) for seed, name in zip(seeds, ("first", "second"), strict=True)),
    )


def _hash_sum(seed: int) -> Column:
    """The sum of row hashes, exact: a sum of longs wraps or fails, as Spark is configured."""
    return F.sum(F.xxhash64(F.lit(seed).cast("long"), "id", "label", "sha256").cast("decimal(20,0)"))
