"""The ingest, from its source to its report."""

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame, Row, SparkSession

from etl.cassandra.control import Control
from etl.errors import EtlError
from etl.frames import in_order, kept
from etl.ingest.class_agreement import check_classes
from etl.ingest.class_remarks import class_remarks
from etl.ingest.destination import (
    Destination,
    StartedRun,
    check_fits_early,
    check_kept_table,
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
from etl.ingest.listed_images import ListedImages, list_images
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
from etl.tables.removal import value_tables
from etl.tables.runs import expiring, is_shared, new_ingest_id, recorded_runs
from etl.tables.sequence import finish_run, in_session

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
    start = time.monotonic()
    with ExitStack() as stack:
        survey = surveyed(spark, plan=plan, stack=stack)
        begun = begin(survey)
        outcomes, report = write_missing(survey, begun)
        return finish(report, outcomes, survey, begun).with_seconds(time.monotonic() - start)


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
        survey = surveyed(spark, plan=plan, stack=stack)
        counts, existing = survey.images.counts, survey.existing
        return IngestEstimate.of(
            counts,
            plan=plan,
            unmatched=survey.images.source.report_lines(),
            already_there=existing.count - existing.deleted,
            deleted=existing.deleted,
            stale=_stale(survey, of_listing(survey.images.entries)),
            remarks=class_remarks(counts.images_by_class, plan=plan, destination=survey.destination),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The listed images, and those of them that exist already, with the tables unless the target is a folder."""

    plan: IngestPlan
    stack: ExitStack  # of what is persisted and open until the end
    ingest_id: uuid.UUID
    control: Control | None  # none for a folder
    images: ListedImages
    existing: ExistingImages = field(default_factory=ExistingImages)
    destination: Destination | None = None
    table: MetadataTable | None = None

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self.images.entries.sparkSession

    @property
    def left(self) -> int:
        """The number of files that are to be written."""
        return self.images.counts.files - self.existing.count


def surveyed(spark: SparkSession, *, plan: IngestPlan, stack: ExitStack) -> Survey:
    """List the images, check that their folders are their classes, and find those that exist already. Raises
    `SourceError`, `OutputExistsError`, and `ConflictError` if the tables have other contents.
    """
    control = _connected(spark, plan=plan, stack=stack)
    images = list_images(spark, control, plan=plan, stack=stack)
    check_class_level(images.entries, tops=images.counts.tops, listing=images.listing, plan=plan.source)
    ingest_id = plan.ingest_id or new_ingest_id()
    survey = Survey(plan=plan, stack=stack, ingest_id=ingest_id, control=control, images=images)
    if control is None:
        survey = replace(survey, existing=ExistingImages.in_folder(images.entries, plan=plan, stack=stack))
    else:
        survey = _with_tables(survey, control)
    if there := survey.existing.count - survey.existing.deleted:
        log.info("%s images exist already and are skipped", f"{there:,}")
    if survey.existing.deleted:
        log.warning("%s images were deleted and are left out", f"{survey.existing.deleted:,}")
    return survey


def _connected(spark: SparkSession, *, plan: IngestPlan, stack: ExitStack) -> Control | None:
    """Connect, unless the target is a folder. Raises `EtlError` if the tables have other contents."""
    if plan.target is not None:
        return None
    control = stack.enter_context(Control.from_spark(spark))
    check_fits_early(control, plan=plan)
    check_tables(control, plan=plan)
    check_ttl(control, plan=plan)
    check_kept_table(control, plan=plan)
    if not plan.overwrite:
        check_mask_frame(control, plan=plan)
    return control


def _with_tables(survey: Survey, control: Control) -> Survey:
    plan, images, existing = survey.plan, survey.images, survey.existing
    names = images.counts.classes
    destination = find_destination(control, plan=plan, names=names, order=images.listing.order)
    if destination.numbers is None:
        check_classes(survey.spark, control, plan=plan, names=names)
    table = MetadataTable.open(survey.spark, control, plan.tables.metadata, columns=plan.columns)
    if not is_empty(control, plan=plan):
        existing = ExistingImages.in_tables(
            table, images.entries, plan=plan, ingest_id=survey.ingest_id, stack=survey.stack
        )
    if not plan.restore_deleted and (deleted := table.deleted()) is not None:
        existing = existing.with_deleted(images.entries, deleted=deleted, stack=survey.stack)
    return replace(survey, existing=existing, destination=destination, table=table)


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunIngest:
    """The id of an ingest, its run if it writes to tables, and the remarks on its label files and masks."""

    ingest_id: uuid.UUID
    started: StartedRun | None
    unmatched: Sequence[str]


def begin(survey: Survey) -> BegunIngest:
    """Create missing tables and begin a run, if there is anything to write to tables. Raises `SourceError`, before
    anything is written, if it is not known what masks were drawn on.
    """
    plan, control, images, left = survey.plan, survey.control, survey.images, survey.left
    counts, ingest_id = images.counts, survey.ingest_id
    unmatched = images.source.report_lines()
    remarks = class_remarks(counts.images_by_class, plan=plan, destination=survey.destination)
    for remark in [*unmatched, *remarks.lines]:
        log.warning("%s", remark)
    rejected = f", {counts.rejected:,} of which cannot be ingested" if counts.rejected else ""
    log.info("%s of %s files%s, ingest %s", f"{left:,}", f"{counts.files:,}", rejected, ingest_id)
    if plan.source.label_type == "blob" and plan.recode.mask_frame is None:
        tasks = task_count(rows=left, size=counts.bytes, cores=survey.spark.sparkContext.defaultParallelism)
        check_mask_frames(images.without(survey.existing.done), listing=images.listing, tasks=tasks)
    started = None
    if plan.target is not None:
        record_options(survey.spark, plan=plan, is_done=False)
    elif control is not None and survey.destination is not None and (left or plan.prune):
        create_tables(control, plan=plan)
        _may_replace(survey, control)
        started = survey.destination.begin(control, plan=plan, kind="ingest", ingest_id=ingest_id)
        if not plan.restore_deleted:
            _check_deleted(survey, control)
    return BegunIngest(ingest_id=ingest_id, started=started, unmatched=unmatched)


def _check_deleted(survey: Survey, control: Control) -> None:
    """Raise `EtlError` if images of this source were deleted since the survey."""
    plan, entries = survey.plan, survey.images.entries
    deleted = MetadataTable.open(survey.spark, control, plan.tables.metadata, columns=plan.columns).deleted()
    if deleted is None:
        return
    left_out = as_left_out(entries.join(deleted, on="id", how="left_semi")).count()
    if left_out > survey.existing.deleted:
        raise EtlError(
            "Wanted tables from which no images are deleted while an ingest looks for existing images. Found: "
            f"{left_out - survey.existing.deleted:,} images of this source were deleted. Run the ingest again."
        )


def write_missing(survey: Survey, begun: BegunIngest) -> tuple[DataFrame, IngestReport]:
    """Write the images that do not exist yet. Returns the rows of `OUTCOMES` of all images, persisted, and the report
    so far. Raises `EtlError` if too many are rejected.
    """
    plan, counts, left = survey.plan, survey.images.counts, survey.left
    counters = Counters(survey.spark.sparkContext)
    outcomes = kept(_outcomes(survey, begun, counters=counters), stack=survey.stack)
    allowed = plan.tolerance.allowed(counts.files)
    rows = None if left else survey.existing.sums
    rows = rows or collect_watched(
        tally(outcomes),
        group=f"ingest {begun.ingest_id}",
        description=f"write {plan.source.name}",
        counters=counters,
        files=left,
        allowed=allowed,
    )
    by_class = _images_by_class(rows or [], survey, begun)
    report = IngestReport.of(
        rows or [],
        plan=plan,
        classes=sum(map(bool, by_class.values())) if plan.source.label_type == "int" else 0,
        ingest_id=begun.ingest_id,
        unmatched=begun.unmatched,
        started=begun.started,
        remarks=class_remarks(by_class, plan=plan, destination=survey.destination, started=begun.started),
    )
    if plan.target is not None and rows is not None:
        publish_rejected(outcomes, plan=plan)
        record_options(survey.spark, plan=plan, is_done=True)
    _check_rejected(report, survey, stopped_at=counters.rejected if rows is None else 0)
    return outcomes, report


def _outcomes(survey: Survey, begun: BegunIngest, *, counters: Counters) -> DataFrame:
    """The rows of `OUTCOMES`; computing them writes the images that do not exist yet."""
    plan, images, done = survey.plan, survey.images, survey.existing.done
    if done is not None and not survey.left:
        return done
    order = WriteOrder(
        target=_target(survey, begun),
        preparation=Preparation(check=plan.check, recode=plan.recode, label_type=plan.source.label_type),
        labels={} if begun.started is None else begun.started.numbers,
        counters=counters,
    )
    cores = survey.spark.sparkContext.defaultParallelism
    tasks = task_count(rows=images.counts.files, size=images.counts.bytes, cores=cores)
    outcomes = write(images.without(done), order=order, tasks=tasks, access=images.listing.access)
    return outcomes if done is None else outcomes.unionByName(done)


def _target(survey: Survey, begun: BegunIngest) -> Target:
    plan, control = survey.plan, survey.control
    if control is None or begun.started is None:
        return folder_target(plan)
    replaces = _may_replace(survey, control, own=begun.started.run.sequence)
    has_groups = plan.source.group_column is not None
    can_expire = bool(plan.ttl or expiring(recorded_runs(control, plan.tables.metadata)))
    return TableTarget(
        cluster=control.located,
        tables=plan.tables,
        source_name=plan.source_name,
        ingest_id=begun.ingest_id,
        run=in_session(begun.started.run, survey.spark),
        has_groups=has_groups,
        keeps_groups=can_expire and not has_groups and replaces,
        ttl=plan.ttl or 0,
        replaces=replaces,
        values=value_tables(control, plan.tables.metadata) if can_expire and replaces else (),
        restores=plan.restore_deleted,
        keeps=plan.keep_replaced,
    )


def _may_replace(survey: Survey, control: Control, *, own: int = 0) -> bool:
    """Whether the ingest must look for states that it replaces: the survey has found some, or another run may write the
    same images. Creates their history then. Raises `TableError` if it must not be created.
    """
    runs = recorded_runs(control, survey.plan.tables.metadata)
    at_survey = survey.table.runs if survey.table else ()
    if not survey.existing.others and not is_shared(at_survey, runs, own=own):
        return False
    create_history_table(control, plan=survey.plan)
    return True


def _images_by_class(rows: Sequence[Row], survey: Survey, begun: BegunIngest) -> Mapping[str, int]:
    """The files of each class; in tables, of those that have an image. ``rows`` are those of `tally`."""
    images = survey.images.counts.images_by_class
    if begun.started is None or survey.plan.source.label_type != "int":
        return images
    numbers, labels = begun.started.numbers, {label for row in rows for label in row.labels}
    return {name: count if numbers[name] in labels else 0 for name, count in images.items()}


def _check_rejected(report: IngestReport, survey: Survey, *, stopped_at: int) -> None:
    """Raise `EtlError` if too many or all files were rejected; ``stopped_at`` of them when the run was stopped."""
    plan, images = survey.plan, survey.images
    rejected = max(report.quarantined, stopped_at)
    if rejected > plan.tolerance.allowed(images.counts.files):
        where = f"{rejected:,}. Reasons: {report.rejected_at}"
        if stopped_at:  # a target folder has no list yet
            where = f"{rejected:,} so far" + ("" if plan.target else f". Reasons: {report.rejected_at}")
        where += "".join(f"; {fault}" for fault in images.faults)
        raise EtlError(f"Wanted {plan.tolerance.limit(images.counts.files)}. Found: {where}")
    if not report.images and not report.already_there and not report.deleted:
        raise EtlError(
            f"Wanted images in {plan.source.address}. Found: {report.quarantined:,} files, all rejected. "
            f"Reasons: {report.rejected_at}"
        )


def finish(report: IngestReport, outcomes: DataFrame, survey: Survey, begun: BegunIngest) -> IngestReport:
    """Clean up after earlier runs, and complete the report but for its time."""
    plan, control, remove = survey.plan, survey.control, None
    if plan.prune and control is not None and begun.started is not None:
        remove = partial(prune, control=control, plan=plan, run=begun.started.run, ingest_id=begun.ingest_id)
    try:
        stale = _stale(survey, outcomes, remove=remove)
        duplicates = _duplicates(survey, outcomes) if report.images else None
    finally:  # the images are written, whatever happens to old rows
        if control is not None and begun.started is not None:
            finish_run(control, begun.started.run)
    return replace(report, stale=stale, duplicates=duplicates)


def _stale(
    survey: Survey, outcomes: DataFrame, *, remove: Callable[[DataFrame], int] | None = None
) -> StaleRows | None:
    """Count the stale rows of this source; list them if the plan says so, and ``remove`` them."""
    plan, stack = survey.plan, survey.stack
    if survey.table is None or survey.existing.rows is None:
        if plan.list_stale:
            log.info("0 stale rows of %s", plan.source_name)
        return None
    splits = splits_of(plan.source, found=survey.images.counts.images_by_split)
    rows = survey.table.rows(KNOWN).transform(rows_of_source, source_name=plan.source_name, splits=splits)
    rows = kept(rows, stack=stack)
    stale = kept(rows.transform(not_found, entries=survey.images.entries, outcomes=outcomes), stack=stack)
    found = StaleRows.of_rows(stale, of=rows.count(), is_listed=plan.list_stale)
    if plan.list_stale:
        log.info("%s stale rows of %s", f"{found.rows:,}", plan.source_name)
        for row in in_order(stale, "or_split", "path"):
            name = f"{row.or_split}/{row.path}" if row.or_split else row.path
            log.info("stale: %s%s", name, " (hidden)" if row.is_hidden else "")
    if remove is None:
        return found
    found.check(plan.prune_count)
    return replace(found, removed=remove(stale))


def _duplicates(survey: Survey, outcomes: DataFrame) -> DuplicateSummary:
    rows = outcomes  # a table may have images of other sources too
    if survey.table is not None and survey.existing.rows is not None:
        rows = survey.table.rows(KNOWN)
    duplicates = summarise(duplicate_groups(rows))
    for same in duplicates.examples:
        log.info("exact duplicates: %s", same)
    return duplicates
