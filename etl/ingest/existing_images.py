"""Images of a source that exist already, in tables or in a folder: they are skipped, replaced or refused."""

import logging
import uuid
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from etl.columns import filled
from etl.errors import ConflictError
from etl.frames import kept
from etl.ingest.plan import IngestPlan
from etl.ingest.writing.outcomes import DELETED, OUTCOMES, THERE, THERE_FROM_OTHERS, THERE_OTHERWISE, tally
from etl.ingest.writing.target_folder import files_done
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import RecordedRun, expiring

_SHOWN = 5

KNOWN = ("label", "or_label", "or_split", "path", "bytes", "sha256", "source", "group_id")  # what an ingest compares

log = logging.getLogger("imagestrata.ingest")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingImages:
    """The images of a source that exist already."""

    rows: DataFrame | None = None  # their current rows; None if the table is empty or the target is a folder
    done: DataFrame | None = None  # those that are skipped, as rows of `OUTCOMES`
    count: int = 0  # of those that are skipped
    deleted: int = 0  # how many of these were deleted on request, and do not exist
    others: int = 0  # the number of rows that the ingest may replace
    sums: list[Row] = field(default_factory=list)  # the result of `tally` for `done`, if it was computed

    @classmethod
    def in_folder(cls, entries: DataFrame, *, plan: IngestPlan, stack: ExitStack) -> "ExistingImages":
        """Find them in the target folder. Raises `OutputExistsError`."""
        done = files_done(entries, plan=plan)
        if done is None:
            return cls()
        done = kept(done, stack=stack)  # now: later there are also the files of this run
        return cls(done=done, count=done.count())

    @classmethod
    def in_tables(
        cls, table: MetadataTable, entries: DataFrame, *, plan: IngestPlan, ingest_id: uuid.UUID, stack: ExitStack
    ) -> "ExistingImages":
        """Find them in tables, before the run of this ``ingest_id`` begins. Raises `ConflictError` for rows from other
        sources, `TableError`.
        """
        log.info("look for these images in %s", plan.tables.metadata)
        # Rows of this run do not count: what is lost of these images with an executor is read again, later.
        known = table.rows((*KNOWN, "ingest_id", "since"))
        is_own = written_by(ingest_id, sequence=(table.newest or 0) + 1, is_continued=plan.ingest_id is not None)
        known = known.where(~is_own)
        # Rows that an interrupted deletion left are written again: their blobs may be gone.
        left = 0
        if plan.restore_deleted and (half := table.half_deleted()) is not None:
            known = known.join(half, on="id", how="left_anti")
            left = entries.join(half, on="id", how="left_semi").count()
        rows = entries.transform(there_already, known=known, source_name=plan.source_name)
        rows = rows.withColumn("same_end", has_ttl(plan.ttl or 0, runs=table.runs))
        rows = kept(rows, stack=stack)
        before = rows.transform(as_outcomes)
        sums = before.transform(tally).collect()
        if not plan.overwrite:
            refuse(rows, count=sum(row.files for row in sums if row.stage == THERE_FROM_OTHERS), plan=plan)
        there = sum(row.files for row in sums)
        if not plan.resume:
            return cls(rows=rows, others=there + left)
        if changed := sum(row.files for row in sums if row.stage == THERE_OTHERWISE):
            log.warning("%s images exist with another class or --ttl and are written again", f"{changed:,}")
        sums = [row for row in sums if row.stage == THERE]
        count = sum(row.files for row in sums)
        return cls(
            rows=rows, done=before.where(F.col("stage") == THERE), count=count, others=there - count + left, sums=sums
        )

    def with_deleted(self, entries: DataFrame, *, deleted: DataFrame, stack: ExitStack) -> "ExistingImages":
        """Skip images that were deleted on request, too. ``deleted`` has the ids of all such images. Runs Spark."""
        left_out = kept(as_left_out(entries.join(deleted, on="id", how="left_semi")), stack=stack)
        count = left_out.count()
        if not count:
            return self
        done = left_out
        if self.done is not None:
            done = kept(self.done.join(left_out, on="id", how="left_anti").union(left_out), stack=stack)
        return replace(self, done=done, count=done.count(), deleted=count, sums=[])


def written_by(ingest_id: uuid.UUID, /, *, sequence: int, is_continued: bool) -> Column:
    """Whether a run of an ingest has written a row, from its columns ``ingest_id`` and ``since``. If the run continues
    an earlier one, the id says nothing: then it has written what changed with its number or a later one.
    """
    if is_continued:
        return F.coalesce("since", F.lit(0)) >= sequence
    return F.col("ingest_id").eqNullSafe(F.lit(str(ingest_id)))


def there_already(entries: DataFrame, *, known: DataFrame, source_name: str) -> DataFrame:
    """The rows of ``known`` that have the ids of these entries: are they ``ours``, and of the ``same_class``?"""
    wanted = entries.where(F.col("reason").isNull()).groupBy("id").agg(F.max("or_label").alias("wanted"))
    return (
        known.join(wanted, on="id", how="inner")
        .withColumn("ours", F.col("source").eqNullSafe(F.lit(source_name)))
        .withColumn("same_class", F.col("or_label").eqNullSafe(F.col("wanted")))
        .drop("wanted")
    )


def has_ttl(ttl: int, /, *, runs: Sequence[RecordedRun]) -> Column:
    """Whether rows were written with this time to live, in seconds, by their ``ingest_id``; 0 for rows that stay."""
    ttls = expiring(runs)
    of_ingests = [one for one, seconds in ttls.items() if not ttl or seconds == ttl]
    is_of_them = F.coalesce(F.col("ingest_id").isin(of_ingests), F.lit(False))
    return is_of_them if ttl else ~is_of_them


def refuse(there: DataFrame, *, count: int, plan: IngestPlan) -> None:
    """Raise `ConflictError`, with the number and the first few, if images from other sources exist."""
    if not count:
        return
    first = there.where(~F.col("ours")).orderBy("or_split", "path").limit(_SHOWN).collect()
    more = ", ..." if count > _SHOWN else ""
    shown = ", ".join(f"{row.path} from {row.source}" for row in first)
    raise ConflictError(
        f"Wanted to write images from {plan.source_name} to {plan.tables.metadata}. Found: {count:,} of them exist "
        f"already, from another source: {shown}{more}. Set --overwrite to replace them, or use other tables, with "
        "--data-table and --metadata-table."
    )


def as_outcomes(there: DataFrame) -> DataFrame:
    """Images that were written before, from this source or from others, as rows of `OUTCOMES`."""
    is_same = F.col("same_class") & F.col("same_end")
    stage = F.when(~F.col("ours"), THERE_FROM_OTHERS).when(is_same, THERE).otherwise(THERE_OTHERWISE)
    return _not_written(there, stage, known=("id", "label", "or_split", "path", "bytes", "sha256"))


def as_left_out(entries: DataFrame) -> DataFrame:
    """Entries that are left out because they were deleted on request, as rows of `OUTCOMES`."""
    return _not_written(entries.where(F.col("reason").isNull()), F.lit(DELETED), known=("id", "or_split", "path"))


def _not_written(images: DataFrame, stage: Column, *, known: Collection[str]) -> DataFrame:
    """Images as rows of `OUTCOMES`, with what is known of them."""
    told = {**{name: F.col(name) for name in known}, "stage": stage, "executor": F.lit("")}
    return images.select(*filled(OUTCOMES, told))
