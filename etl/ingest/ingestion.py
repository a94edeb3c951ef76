"""The ingest, from its source to its report."""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame, Row, SparkSession

from etl.cassandra.control import Control
from etl.errors import EtlError
from etl.frames import kept
from etl.ingest.class_agreement import check_classes
from etl.ingest.class_remarks import ClassRemarks, class_remarks
from etl.ingest.destination import (
    Destination,
    StartedRun,
    check_fits_early,
    check_mask_frame,
    check_tables,
    check_ttl,
    create_history_table,
    create_tables,
    find_destination,
    is_empty,
)
from etl.ingest.duplicates import DuplicateSummary, duplicate_groups, summarise
from etl.ingest.existing_images import KNOWN, ExistingImages, as_left_out
from etl.ingest.listed_images import list_images
from etl.ingest.mask_frames import check_mask_frames
from etl.ingest.plan import IngestPlan
from etl.ingest.report import IngestEstimate, IngestReport
from etl.ingest.stale_rows import StaleRows, not_found, of_listing, prune, rows_of_source, splits_of
from etl.ingest.writing.folder_rows import folder_target
from etl.ingest.writing.image_writer import Target, WriteOrder
from etl.ingest.writing.outcomes import tally
from etl.ingest.writing.preparation import Preparation
from etl.ingest.writing.progress import Counters, collect_watched
from etl.ingest.writing.table_rows import TableTarget
from etl.ingest.writing.target_folder import publish_rejected, record_options
from etl.ingest.writing.tasks import task_count, write
from etl.sources.folder_counts import check_class_level
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import new_ingest_id, recorded_runs, sequences_by_ingest
from etl.tables.sequence import finish_run

log = logging.getLogger("imagestrata.ingest")


def run(spark: SparkSession, *, plan: IngestPlan) -> IngestReport:
    """Ingest a source.

    Args:
        spark: The session.
        plan: The options.

    Returns:
        The report.

    Raises:
        EtlError: The ingest is not possible, and nothing was written; or too many images were rejected.
    """
    with ExitStack() as stack:
        ingest = Ingest(spark, plan=plan, stack=stack)
        ingest.list_source()
        ingest.survey()
        ingest.write()
        return ingest.report()


def estimate(spark: SparkSession, *, plan: IngestPlan) -> IngestEstimate:
    """Estimate an ingest. Writes nothing.

    Args:
        spark: The session.
        plan: The options.

    Returns:
        The estimate.

    Raises:
        EtlError: The ingest is not possible.
    """
    with ExitStack() as stack:
        ingest = Ingest(spark, plan=plan, stack=stack)
        ingest.list_source()
        ingest.survey()
        return ingest.estimate()


class Ingest:
    """One ingest. Call `list_source` and `survey`, and then either `estimate`, or `write` and `report`.

    Persisted DataFrames are released when ``stack`` is closed.
    """

    def __init__(self, spark: SparkSession, *, plan: IngestPlan, stack: ExitStack) -> None:
        """Connect, unless the target is a folder. Raises `EtlError` if the tables have other contents."""
        self._started = time.monotonic()
        self._spark, self._plan, self._stack = spark, plan, stack
        self._control = None if plan.target is not None else stack.enter_context(Control.from_spark(spark))
        self._destination: Destination | None = None
        self._table: MetadataTable | None = None
        self._run: StartedRun | None = None
        self._cores = spark.sparkContext.defaultParallelism
        if self._control is not None:
            check_fits_early(self._control, plan=plan)
            check_tables(self._control, plan=plan)
            check_ttl(self._control, plan=plan)
            if not plan.overwrite:
                check_mask_frame(self._control, plan=plan)

    def list_source(self) -> None:
        """List the images. Raises `SourceError`."""
        self._images = images = list_images(self._spark, self._control, plan=self._plan, stack=self._stack)
        check_class_level(images.entries, tops=images.counts.tops, listing=images.listing, plan=self._plan.source)

    def survey(self) -> None:
        """Find the images that exist already. Raises `ConflictError`, `OutputExistsError`."""
        spark, plan, entries = self._spark, self._plan, self._images.entries
        if self._control is None:
            self._existing = ExistingImages.in_folder(spark, entries, plan=plan, stack=self._stack)
        else:
            names, order = self._images.counts.classes, self._images.listing.order
            self._destination = find_destination(spark, self._control, plan=plan, names=names, order=order)
            if self._destination.numbers is None:
                check_classes(spark, self._control, plan=plan, names=names)
            self._existing = ExistingImages()
            self._table = MetadataTable.open(spark, self._control, plan.tables.metadata, columns=plan.columns)
            if not is_empty(self._control, plan=plan):
                self._existing = ExistingImages.in_tables(self._table, entries, plan=plan, stack=self._stack)
            if not plan.restore_deleted and (deleted := self._table.deleted()) is not None:
                self._existing = self._existing.with_deleted(entries, deleted=deleted, stack=self._stack)
        if there := self._existing.count - self._existing.deleted:
            log.info("%s images exist already and are skipped", f"{there:,}")
        if self._existing.deleted:
            log.warning("%s images were deleted and are left out", f"{self._existing.deleted:,}")

    def estimate(self) -> IngestEstimate:
        """Estimate what would be written."""
        return IngestEstimate.of(
            self._images.counts,
            plan=self._plan,
            unmatched=self._images.source.report_lines(),
            already_there=self._existing.count - self._existing.deleted,
            deleted=self._existing.deleted,
            stale=self._stale(of_listing(self._images.entries)),
            remarks=self._class_remarks(self._images.counts.images_by_class),
        )

    def write(self) -> None:
        """Write the missing images. Raises `EtlError` if too many are rejected."""
        plan, counts = self._plan, self._images.counts
        self._id = plan.ingest_id or new_ingest_id()
        unmatched = self._images.source.report_lines()
        for remark in [*unmatched, *self._class_remarks(counts.images_by_class).lines]:
            log.warning("%s", remark)
        left = counts.files - self._existing.count
        rejected = f", {counts.rejected:,} of which cannot be ingested" if counts.rejected else ""
        log.info("%s of %s files%s, ingest %s", f"{left:,}", f"{counts.files:,}", rejected, self._id)
        self._check_masks(tasks=task_count(rows=left, size=counts.bytes, cores=self._cores))
        self._begin(is_idle=not left)
        counters = Counters(self._spark.sparkContext)
        self._outcomes = kept(self._write_outcomes(counters), stack=self._stack)
        allowed = plan.tolerance.allowed(counts.files)
        rows = None if left else self._existing.sums
        rows = rows or collect_watched(
            tally(self._outcomes),
            group=f"ingest {self._id}",
            description=f"write {plan.source.name}",
            counters=counters,
            files=left,
            allowed=allowed,
        )
        images = self._images_by_class(rows or [])
        self._written = IngestReport.of(
            rows or [],
            plan=plan,
            classes=sum(map(bool, images.values())) if plan.source.label_type == "int" else 0,
            ingest_id=self._id,
            unmatched=unmatched,
            started=self._run,
            remarks=self._class_remarks(images),
        )
        if plan.target is not None and rows is not None:
            publish_rejected(self._spark, self._outcomes, plan=plan)
            record_options(self._spark, plan=plan, is_done=True)
        self._check_rejected(allowed=allowed, stopped_at=counters.rejected if rows is None else 0)

    def report(self) -> IngestReport:
        """Clean up after earlier runs, and make the report."""
        try:
            stale = self._stale(self._outcomes)
            duplicates = self._duplicates() if self._written.images else None
        finally:  # the images are written, whatever happens to old rows
            if self._control is not None and self._run is not None:
                finish_run(self._control, self._run.run)
        return self._written.finished(
            stale=stale,
            duplicates=duplicates,
            seconds=time.monotonic() - self._started,
        )

    def _images_by_class(self, rows: Sequence[Row]) -> dict[str, int]:
        """The files of each class; none for classes of which all were rejected. ``rows`` are those of `tally`."""
        images = self._images.counts.images_by_class
        if self._run is None or self._plan.source.label_type != "int":
            return images
        labels = {label for row in rows for label in row.labels}
        return {name: count if self._run.numbers[name] in labels else 0 for name, count in images.items()}

    def _class_remarks(self, images: Mapping[str, int]) -> ClassRemarks:
        return class_remarks(images, plan=self._plan, destination=self._destination, started=self._run)

    def _begin(self, *, is_idle: bool) -> None:
        """Create missing tables and begin a run, if there is anything to write to tables."""
        control, destination, plan = self._control, self._destination, self._plan
        if plan.target is not None:
            record_options(self._spark, plan=plan, is_done=False)
        if control is None or destination is None or (is_idle and not plan.prune):
            return
        create_tables(control, plan=plan)
        if self._existing.others:
            create_history_table(control, plan=plan)
        self._run = destination.begin(control, plan=plan, kind="ingest", ingest_id=self._id)
        if plan.restore_deleted:
            return
        deleted = MetadataTable.open(self._spark, control, plan.tables.metadata, columns=plan.columns).deleted()
        if deleted is None:
            return
        left_out = as_left_out(self._images.entries.join(deleted, on="id", how="left_semi")).count()
        if left_out > self._existing.deleted:
            raise EtlError(
                "Wanted tables from which no images are deleted while an ingest looks for existing images. Found: "
                f"{left_out - self._existing.deleted:,} images of this source were deleted. Run the ingest again."
            )

    def _check_masks(self, *, tasks: int) -> None:
        """Raise `SourceError`, before anything is written, if it is not known what masks were drawn on."""
        if self._plan.source.label_type == "blob" and self._plan.recode.mask_frame is None:
            entries = self._images.without(self._existing.done)
            check_mask_frames(entries, listing=self._images.listing, tasks=tasks)

    def _write_outcomes(self, counters: Counters) -> DataFrame:
        """The rows of `OUTCOMES`; computing them writes the images that do not exist yet."""
        plan, counts, listing, done = self._plan, self._images.counts, self._images.listing, self._existing.done
        if done is not None and self._existing.count == counts.files:
            return done
        order = WriteOrder(
            target=self._target(),
            preparation=Preparation(check=plan.check, recode=plan.recode, label_type=plan.source.label_type),
            labels={} if self._run is None else self._run.numbers,
            in_turn=listing.access != "random",
            counters=counters,
        )
        tasks = task_count(rows=counts.files, size=counts.bytes, cores=self._cores)
        outcomes = write(self._images.without(done), order=order, tasks=tasks, access=listing.access)
        return outcomes if done is None else outcomes.unionByName(done)

    def _target(self) -> Target:
        plan = self._plan
        if self._control is None or self._run is None:
            return folder_target(plan)
        before = recorded_runs(self._control, plan.tables.metadata) if self._existing.others else None
        return TableTarget(
            cluster=self._control.located,
            tables=plan.tables,
            source=plan.source_name,
            ingest_id=self._id,
            run=self._run.run,
            has_groups=plan.source.group_column is not None,
            ttl=plan.ttl or 0,
            before=None if before is None else sequences_by_ingest(before),
            restores=plan.restore_deleted,
        )

    def _check_rejected(self, *, allowed: int, stopped_at: int) -> None:
        """Raise `EtlError` if too many or all files were rejected; ``stopped_at`` of them when the run was stopped."""
        report, plan = self._written, self._plan
        rejected = max(report.quarantined, stopped_at)
        if rejected > allowed:
            where = f"{rejected:,}. Reasons: {report.rejected_at}"
            if stopped_at:  # a target folder has no list yet
                where = f"{rejected:,} so far" + ("" if plan.target else f". Reasons: {report.rejected_at}")
            where += "".join(f"; {fault}" for fault in self._images.faults)
            raise EtlError(f"Wanted {plan.tolerance.limit(self._images.counts.files)}. Found: {where}")
        if not report.images and not report.already_there and not report.deleted:
            raise EtlError(
                f"Wanted images in {plan.source.address}. Found: {report.quarantined:,} files, all rejected. "
                f"Reasons: {report.rejected_at}"
            )

    def _stale(self, outcomes: DataFrame) -> StaleRows | None:
        """Count the stale rows of this source; list and remove them if the plan says so."""
        plan, control = self._plan, self._control
        if control is None or self._table is None or self._existing.rows is None:
            if plan.list_stale:
                log.info("0 stale rows of %s", plan.source_name)
            return None
        splits = splits_of(plan.source, found=self._images.counts.images_by_split)
        rows = self._table.rows(KNOWN).transform(rows_of_source, source=plan.source_name, splits=splits)
        rows = kept(rows, stack=self._stack)
        stale = kept(rows.transform(not_found, outcomes=outcomes), stack=self._stack)
        found = StaleRows.of_rows(stale, of=rows.count(), is_listed=plan.list_stale)
        if plan.list_stale:
            log.info("%s stale rows of %s", f"{found.rows:,}", plan.source_name)
            for row in stale.orderBy("or_split", "path").toLocalIterator():
                name = f"{row.or_split}/{row.path}" if row.or_split else row.path
                log.info("stale: %s%s", name, " (hidden)" if row.is_hidden else "")
        if not plan.prune or self._run is None:
            return found
        found.check(plan.prune_count)
        removed = prune(stale, control=control, plan=plan, run=self._run.run, ingest_id=self._id)
        return replace(found, removed=removed)

    def _duplicates(self) -> DuplicateSummary:
        rows = self._outcomes  # a table may have images of other sources too
        if self._table is not None and self._existing.rows is not None:
            rows = self._table.rows(KNOWN)
        duplicates = summarise(duplicate_groups(rows))
        for same in duplicates.examples:
            log.info("exact duplicates: %s", same)
        return duplicates
