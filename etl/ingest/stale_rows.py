"""Find and remove stale rows: rows of a source whose files a later ingest of that source did not find.

If a file is removed, renamed, moved to another class or damaged, the earlier row stays, with its old label.
"""

import uuid
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.errors import EtlError
from etl.frames import kept
from etl.ingest.existing_images import written_by
from etl.ingest.plan import IngestPlan
from etl.ingest.writing.outcomes import DELETED, THERE, WRITTEN
from etl.sources.entries import text
from etl.sources.plan import SourcePlan
from etl.tables.metadata_table import STATE, MetadataTable
from etl.tables.removal import Removal, remove_images
from etl.tables.runs import RecordedRun, sequences_by_ingest
from etl.tables.sequence import Run
from formats.image_names import HIDDEN
from schemas.tables import PRUNED

UNCONFIRMED_SHARE = 0.01  # of a source's rows: so many may be removed without confirming the number

_UNREADABLE = "unreadable"  # the failure may be temporary: its row is not stale


def rows_of_source(metadata: DataFrame, /, *, source_name: str, splits: Collection[str]) -> DataFrame:
    """The rows (of `existing_images.KNOWN`) that an ingest of this source wrote, in these splits."""
    return metadata.where(F.col("source").eqNullSafe(F.lit(source_name)) & F.col("or_split").isin(sorted(splits)))


def not_found(rows: DataFrame, /, *, entries: DataFrame, outcomes: DataFrame) -> DataFrame:
    """The rows of `rows_of_source` whose files an ingest did not find: not listed, as they were removed or moved to
    another class or split, or refused, as they are damaged now; ``is_hidden`` says whether the file is there, but left
    out because it is hidden.
    """
    # A listed image without an outcome is not stale: outcomes can be lost with an executor and computed again
    # otherwise, from tables that this run has changed.
    is_unreadable = F.coalesce(F.substring_index("reason", ": ", 1) == _UNREADABLE, F.lit(False))
    is_taken = F.col("stage").isin(WRITTEN, THERE, DELETED)  # a deletion may have been interrupted
    taken = outcomes.where(is_taken | is_unreadable).select("id")
    refused = outcomes.where(~is_taken & ~is_unreadable).select("id").join(taken, on="id", how="left_anti")
    listed = entries.where(F.col("reason").isNull() | is_unreadable).select("id")
    found = listed.join(refused, on="id", how="left_anti")
    hidden = entries.where(F.col("reason") == HIDDEN).select("id", F.lit(True).alias("is_hidden"))
    gone = rows.join(found, on="id", how="left_anti").join(hidden, on="id", how="left")
    return gone.select("id", "or_split", "path", F.coalesce("is_hidden", F.lit(False)).alias("is_hidden"))


@dataclass(frozen=True, slots=True)
class StaleRows:
    """The number of stale rows of a source, and how many of them were removed."""

    rows: int
    of: int  # all rows of this source in the splits that the ingest listed
    removed: int = 0
    hidden: int = 0  # stale rows whose files are there, but hidden: an earlier version has ingested them
    is_listed: bool = field(default=False, compare=False)  # whether the job listed these rows

    @property
    def needs_confirmation(self) -> bool:
        """Whether the rows are removed only if their number is confirmed."""
        return self.rows > UNCONFIRMED_SHARE * self.of or self.hidden > 0

    @classmethod
    def of_rows(cls, stale: DataFrame, *, of: int, is_listed: bool) -> "StaleRows":
        """Count rows of `not_found`. Runs Spark."""
        counts = stale.agg(F.count("*").alias("rows"), F.count_if("is_hidden").alias("hidden")).collect()[0]
        return cls(counts["rows"], of, hidden=counts["hidden"], is_listed=is_listed)

    def check(self, confirmed: int | None) -> None:
        """Raise `EtlError` if this number of rows may not be removed without confirmation."""
        is_confirmed = not self.needs_confirmation if confirmed is None else confirmed == self.rows
        if self.rows and not is_confirmed:
            given = "no --prune-count" if confirmed is None else f"--prune-count {confirmed}"
            raise EtlError(
                f"Wanted --prune-count {self.rows}, to remove {self.rows:,} of {self.of:,} rows of this source. Found: "
                f"{given}. Nothing was removed. Check that the source is complete; --list-stale lists these rows. "
                f"You must confirm their number if it exceeds {UNCONFIRMED_SHARE:.0%} of the rows"
                f"{self._of_hidden(' or if ')}."
            )

    def _of_hidden(self, before: str) -> str:
        """What is said of hidden files, after ``before``; empty if there are none."""
        if not self.hidden:
            return ""
        return f"{before}files are hidden ({self.hidden:,} here), which earlier versions have ingested"

    def __str__(self) -> str:
        if self.removed:
            return f"{self.removed:,} stale rows removed"
        listing = "" if self.is_listed else "to list them: --list-stale; "
        confirmation = f" --prune-count {self.rows}" if self.needs_confirmation else ""
        return (
            f"{self.rows:,} of {self.of:,} rows of this source are stale: their files were removed or moved, or are "
            f"damaged{self._of_hidden(', or ')} ({listing}to remove them: --prune{confirmation})"
        )


def prune(stale: DataFrame, /, *, control: Control, plan: IngestPlan, run: Run, ingest_id: uuid.UUID) -> int:
    """Remove stale rows (of `not_found`, persisted) and their images, record them in the history, and count them. Rows
    that this run or a later one has written stay. Runs Spark. Raises `TableError` if not all were removed.
    """
    table = MetadataTable.open(stale.sparkSession, control, plan.tables.metadata, columns=plan.columns)
    with ExitStack() as stack:  # rows that a later run has written stay, as its clock is later
        states = table.rows(STATE).join(stale.select("id"), on="id", how="left_semi")
        is_own = written_by(ingest_id, sequence=run.sequence, is_continued=plan.ingest_id is not None)
        states = kept(states.where(~(is_own | written_after(run, runs=table.runs))), stack=stack)
        reason = f"not found by ingest {ingest_id}"
        # What an interrupted deletion left is removed with its labels and replaced bytes, as delete.py does: without a
        # row, nothing shows that it was interrupted. It is recorded as deleted already.
        parts, half = {False: states}, table.half_deleted()
        if half is not None:
            joins = {False: "left_anti", True: "left_semi"}
            parts = {of_half: kept(states.join(half, on="id", how=how), stack=stack) for of_half, how in joins.items()}
        counts = {of_half: part.count() for of_half, part in parts.items()}  # before one of them is removed
        for of_half, part in parts.items():
            removal = Removal.begin(table, data=plan.tables.data, run=run, on_request=of_half)
            recorded = part.limit(0) if of_half else part
            remove_images(part, count=counts[of_half], states=recorded, removal=removal, kind=PRUNED, reason=reason)
    return sum(counts.values())


def written_after(run: Run, /, *, runs: Sequence[RecordedRun]) -> Column:
    """Whether a later run has written a row, from its columns ``since`` and ``ingest_id``: that run found its file."""
    ingests = [str(one) for one, last in sequences_by_ingest(runs).items() if last > run.sequence]
    return (F.coalesce("since", F.lit(0)) > run.sequence) | F.coalesce(F.col("ingest_id").isin(ingests), F.lit(False))


def of_listing(entries: DataFrame, /) -> DataFrame:
    """The outcomes of listed files (`ENTRIES`) as far as the listing shows them: ``id, stage, reason``."""
    stage = F.when(F.col("reason").isNull(), WRITTEN).otherwise("list")
    return entries.select("id", stage.alias("stage"), "reason")


def splits_of(source: SourcePlan, *, found: Iterable[str]) -> frozenset[str]:
    """The splits that an ingest lists: those in its options, and those that its source names."""
    named = map(text, source.split_names) if source.splits else [source.or_split]
    return frozenset({*named, *found})
