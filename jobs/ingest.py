"""Read images and write them to two tables of Cassandra: the pictures, and what is known of them.

  spark-submit jobs/ingest.py /data/imagenette --split-subdir train --split-subdir val \\
      --data-table imagenette.data --metadata-table imagenette.metadata

  spark-submit jobs/ingest.py /data/ILSVRC2012_img_train.tar --split-name train \\
      --data-table imagenet.data --metadata-table imagenet.metadata --replication 3

  spark-submit jobs/ingest.py /data/ILSVRC2012_img_val.tar --split-name val --labels /data/val_wnids.csv \\
      --data-table imagenet.data --metadata-table imagenet.metadata

  spark-submit jobs/ingest.py /data/ADE20K/images --masks /data/ADE20K/masks --split-subdir training \\
      --data-table ade.data --metadata-table ade.metadata

  spark-submit jobs/ingest.py /data/corel --arrays /data/corel \\
      --data-table corel.data --metadata-table corel.metadata

Every image has an id that follows from the dataset's name, the split and the path, so the same source may be
ingested twice: the same rows are written again. Images whose ids are taken by another source, or by this one with other
image options, are refused before anything is written, unless --overwrite. An ingest that was interrupted goes on with
--resume, which reads only what is not there yet.

Two tables hold one dataset, with labels of one type; an ingest that does not fit is refused before anything is written.
What they hold is recorded in the table "tables" of the metadata table's keyspace, and each run in the table "ingests".

Class numbers are kept in the table "classes" of the metadata table's keyspace: classes that are known keep theirs, new
ones follow in the order of their names. Files that are no whole JPEG, PNG, TIFF, BMP, WEBP, JPEG 2000 or PNM pictures
are not written; they are told, with their reasons, in the table "quarantine" of the same keyspace.
"""

import argparse
import logging
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control, read_table
from etl.errors import EtlError, SourceError
from etl.frames import kept, pictures_in_rows, plain_inside
from etl.ingest.class_remarks import class_remarks
from etl.ingest.destination import Beginning, Destination, check_fits_early, check_tables, create_tables, is_empty, look
from etl.ingest.duplicates import duplicate_groups, summarise
from etl.ingest.look_groups import clear_replaced, group_again, grouped_rows, refuse_other_groups
from etl.ingest.plan import IngestPlan, new_ingest_id
from etl.ingest.report import SUM_SEEDS, IngestEstimate, IngestReport
from etl.ingest.stale_rows import Removal, StaleRows, not_found, of_listing, remove, rows_of_source, splits_of
from etl.ingest.verbs import (
    Survey,
    as_outcomes,
    count_entries,
    known_images,
    refuse,
    tally,
    task_count,
    there_already,
    without,
    write,
)
from etl.ingest.writing.folder_rows import folder_target
from etl.ingest.writing.image_writer import Target, WriteOrder
from etl.ingest.writing.outcomes import THERE, THERE_FROM_OTHERS, THERE_OTHERWISE
from etl.ingest.writing.preparation import Preparation
from etl.ingest.writing.progress import Counters, Watch
from etl.ingest.writing.table_rows import TableTarget
from etl.ingest.writing.target_folder import files_done, publish_rejected
from etl.pictures.look_alikes import require_imagehash
from etl.secrets import secrets_on_executors
from etl.sources.folder_counts import check_class_level
from etl.sources.listing import Found, list_source
from jobs.command import execute, parse
from jobs.ingest_options import add_options, check, ingest_plan, needed, usual
from jobs.source_options import SOURCE_HELP

EPILOG = (
    SOURCE_HELP
    + """
Defaults come from spark-defaults.conf: spark.imagestrata.source with spark.imagestrata.split-subdir (with commas), and
the pair spark.imagestrata.data-table and spark.imagestrata.metadata-table. One table of the pair alone is refused. The
first line names the tables, and where each option came from that was not typed.
Cassandra is found by spark.cassandra.connection.host, .port and .localDC, and spark.cassandra.auth.username and
.password.

exit codes:
  0  done; files may have been rejected
  1  failed: Cassandra is not there, a source that cannot be read, every image or more than --max-errors rejected,
     tables or rows that are in the way
  2  arguments that cannot be, found before anything starts
"""
)

log = logging.getLogger("imagestrata.ingest")


def parse_args(argv: Sequence[str] | None = None) -> tuple[IngestPlan, argparse.Namespace]:
    """The plan, and how it is to be run (``plan``, ``json``). Exits with 2 for arguments that cannot be."""
    parser = argparse.ArgumentParser(
        "ingest.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser)
    args = parse(parser, argv, needed=needed, check=check, usual=usual)
    try:
        return ingest_plan(args), args
    except ValueError as error:
        parser.error(str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ingest:
    """A source that has been listed, and what is known of the place that it goes to."""

    spark: SparkSession
    plan: IngestPlan
    found: Found
    entries: DataFrame
    survey: Survey
    done: DataFrame | None
    done_count: int
    done_rows: list[Row]
    """What `tally` says of them, where it was asked."""
    there: DataFrame | None
    """The rows of these images as they are now; None if the table is empty, or a folder is written to."""
    control: Control | None
    destination: Destination | None
    """The tables, unless a folder is written to."""


def run(spark: SparkSession, *, plan: IngestPlan) -> IngestReport:
    """Ingest a source. Raises the errors of `etl`, before anything is written or if too much is rejected."""
    started = time.monotonic()
    with ExitStack() as stack:
        ingest = _look(spark, plan=plan, stack=stack)
        return _write(ingest, started=started, stack=stack)


def estimate(spark: SparkSession, *, plan: IngestPlan) -> IngestEstimate:
    """What an ingest would do; writes nothing. Raises as `run` does."""
    with ExitStack() as stack:
        ingest = _look(spark, plan=plan, stack=stack)
        return IngestEstimate.of(
            ingest.survey,
            plan=plan,
            unmatched=ingest.found.told(),
            already_there=ingest.done_count,
            stale=_stale(ingest, None, of_listing(ingest.entries), stack=stack),
            remarks=class_remarks(ingest.survey.images_by_class, plan=plan, destination=ingest.destination),
        )


def _look(spark: SparkSession, *, plan: IngestPlan, stack: ExitStack) -> _Ingest:
    """List the source and look at what is there already; nothing is written."""
    if plan.near_duplicates:
        require_imagehash()
    control = None
    if plan.target is None:
        control = stack.enter_context(Control.from_spark(spark))
        check_fits_early(control, plan=plan)
        check_tables(control, plan=plan)
    stack.enter_context(secrets_on_executors(spark))
    log.info("list %s", plan.source.name)
    stack.enter_context(plain_inside(spark))
    found = list_source(spark, plan.source, dataset=plan.dataset, keep=partial(kept, stack=stack))
    if found.listing.has_data:
        stack.enter_context(pictures_in_rows(spark))
    entries = kept(found.listing.names, stack=stack)
    survey = Survey.of(entries.transform(count_entries).collect(), classes=found.listing.classes)
    if not survey.files:
        raise SourceError(f"Wanted images in {plan.source.address}. Found: no file at all.")
    found.check(entries)
    check_class_level(entries, tops=survey.tops, listing=found.listing, plan=plan.source)
    destination = None if control is None else look(spark, control, plan=plan, names=survey.classes)
    done = files_done(spark, entries, plan=plan) if control is None else None
    done = None if done is None else kept(done, stack=stack)  # now: later what this run writes is there, too
    done_count, done_rows = 0 if done is None else done.count(), list[Row]()
    there = None
    if control is not None and not is_empty(control, plan=plan):
        if plan.near_duplicates:
            refuse_other_groups(grouped_rows(spark, tables=plan.tables), tables=plan.tables)
        log.info("look for these images in %s", plan.tables.metadata)
        there = entries.transform(there_already, known=_metadata(spark, plan=plan), source=plan.source_name)
        there = kept(there, stack=stack)  # now: later the table has this run's rows as well
        before = there.transform(as_outcomes)
        told = before.transform(tally, seeds=SUM_SEEDS).collect()
        if not plan.overwrite:
            refuse(there, count=sum(row.files for row in told if row.stage == THERE_FROM_OTHERS), plan=plan)
        if plan.resume:
            done, done_rows = before.where(F.col("stage") == THERE), [row for row in told if row.stage == THERE]
            done_count = sum(row.files for row in done_rows)
            if changed := sum(row.files for row in told if row.stage == THERE_OTHERWISE):
                log.warning("%s images are there with another class and are written again", f"{changed:,}")
    if done is not None:
        log.info("%s images are there already and are left out", f"{done_count:,}")
    return _Ingest(
        spark=spark,
        plan=plan,
        found=found,
        entries=entries,
        survey=survey,
        done=done,
        done_count=done_count,
        done_rows=done_rows,
        there=there,
        control=control,
        destination=destination,
    )


def _write(ingest: _Ingest, *, started: float, stack: ExitStack) -> IngestReport:
    spark, plan, survey = ingest.spark, ingest.plan, ingest.survey
    ingest_id = plan.ingest_id or new_ingest_id()
    unmatched, images = ingest.found.told(), survey.images_by_class
    for remark in [*unmatched, *class_remarks(images, plan=plan, destination=ingest.destination).lines]:
        log.warning("%s", remark)
    left = survey.files - ingest.done_count
    log.info("%s of %s files are ingest %s", f"{left:,}", f"{survey.files:,}", ingest_id)
    beginning = _begin(ingest, ingest_id=ingest_id)
    outcomes, counters = _outcomes(ingest, beginning, ingest_id=ingest_id)
    outcomes = kept(outcomes, stack=stack)
    allowed = plan.tolerance.allowed(survey.files)
    group = f"ingest {ingest_id}"
    spark.sparkContext.setJobGroup(group, f"write {plan.source.name}")
    stop = partial(spark.sparkContext.cancelJobGroup, group)
    watch = Watch(counters, files=left, allowed=allowed, stop=stop)
    try:
        with watch:
            all_there = ingest.done_rows and ingest.done_count == survey.files
            rows = ingest.done_rows if all_there else tally(outcomes, seeds=SUM_SEEDS).collect()
        stopped_at = 0
    except (PySparkException, Py4JJavaError):
        if not watch.is_over:
            raise
        rows, stopped_at = [], counters.rejected
    report = IngestReport.of(
        rows,
        plan=plan,
        classes=len(survey.classes) if plan.source.label_type == "int" else 0,
        ingest_id=str(ingest_id),
        seconds=time.monotonic() - started,
        unmatched=unmatched,
        run=None if beginning is None else beginning.run,
        remarks=class_remarks(images, plan=plan, destination=ingest.destination, beginning=beginning),
    )
    if plan.target is not None and not stopped_at:
        publish_rejected(spark, outcomes, plan=plan)
    _check(report, files=survey.files, allowed=allowed, stopped_at=stopped_at, plan=plan)
    stale = _stale(ingest, beginning, outcomes, stack=stack)
    duplicates = None
    if report.images:
        # a table may have more than this source
        rows_there = outcomes if ingest.there is None else _metadata(spark, plan=plan)
        duplicates = summarise(duplicate_groups(rows_there))
        for same in duplicates.examples:
            log.info("the same picture: %s", same)
    groups, ungrouped = _groups(ingest, beginning, outcomes)
    return report.finished(
        stale=stale,
        duplicates=duplicates,
        groups=groups,
        ungrouped=ungrouped,
        seconds=time.monotonic() - started,
    )


def _stale(ingest: _Ingest, beginning: Beginning | None, outcomes: DataFrame, *, stack: ExitStack) -> StaleRows | None:
    """Count the rows of this source that were not found again; list and remove them if the plan says so."""
    plan, control = ingest.plan, ingest.control
    if control is None or ingest.there is None:
        return None
    splits = splits_of(plan.source, found=ingest.survey.images_by_split)
    rows = _metadata(ingest.spark, plan=plan).transform(rows_of_source, source=plan.source_name, splits=splits)
    rows = kept(rows, stack=stack)
    stale = kept(rows.transform(not_found, outcomes=outcomes), stack=stack)
    found = StaleRows(stale.count(), rows.count())
    if plan.list_stale:
        for row in stale.orderBy("or_split", "path").toLocalIterator():
            log.info("stale: %s", f"{row.or_split}/{row.path}" if row.or_split else row.path)
    if not plan.prune or beginning is None:
        return found
    found.check(plan.prune_count)
    removal = Removal(cluster=_cluster(control), tables=plan.tables, clock=beginning.run.last_clock)
    return replace(found, removed=stale.transform(remove, removal=removal).count())


def _groups(ingest: _Ingest, beginning: Beginning | None, outcomes: DataFrame) -> tuple[int | None, int]:
    """The groups of look-alikes, if they are wanted; else how many images lost theirs with their pictures."""
    spark, plan, control = ingest.spark, ingest.plan, ingest.control
    if control is None or beginning is None:
        return None, 0
    tables, clock = plan.tables, beginning.run.last_clock
    if plan.near_duplicates:
        log.info("look for pictures that look alike")
        return group_again(spark, outcomes=outcomes, tables=tables, cluster=_cluster(control), clock=clock), 0
    if ingest.there is None:
        return None, 0
    has_hashes = control.columns(tables.perceptual_hashes) is not None
    cleared = clear_replaced(
        spark, before=ingest.there, outcomes=outcomes, tables=tables, has_hashes=has_hashes, clock=clock
    )
    return None, cleared


def _cluster(control: Control) -> Cluster:
    """Where executors find the tables."""
    return replace(control.cluster, datacenter=control.datacenter)


def _begin(ingest: _Ingest, *, ingest_id: uuid.UUID) -> Beginning | None:
    """Create what is missing of the tables and begin a run; None if nothing is to be written to tables."""
    control, destination, plan = ingest.control, ingest.destination, ingest.plan
    is_idle = _all_there(ingest) and not plan.prune and not plan.near_duplicates
    if control is None or destination is None or is_idle:
        return None
    create_tables(control, plan=plan)
    return destination.begin(control, plan=plan, kind="ingest", ingest_id=ingest_id)


def _all_there(ingest: _Ingest) -> bool:
    return ingest.done is not None and ingest.done_count == ingest.survey.files


def _outcomes(ingest: _Ingest, beginning: Beginning | None, *, ingest_id: uuid.UUID) -> tuple[DataFrame, Counters]:
    """The rows of `OUTCOMES`, not written yet unless they were there already, and what will count them."""
    plan, survey, listing = ingest.plan, ingest.survey, ingest.found.listing
    context = ingest.spark.sparkContext
    counters = Counters(context)
    if ingest.done is not None and _all_there(ingest):
        return ingest.done, counters
    order = WriteOrder(
        target=_target(ingest, beginning, ingest_id=ingest_id),
        preparation=Preparation(
            check=plan.check, recode=plan.recode, label_type=plan.source.label_type, look=plan.near_duplicates
        ),
        labels={} if beginning is None else beginning.numbers,
        in_turn=listing.access != "random",
        counters=counters,
    )
    tasks = task_count(rows=survey.files, size=survey.bytes, cores=context.defaultParallelism)
    left = without(listing, entries=ingest.entries, done=ingest.done)
    outcomes = write(left, order=order, tasks=tasks, access=listing.access)
    return outcomes if ingest.done is None else outcomes.unionByName(ingest.done), counters


def _check(report: IngestReport, *, files: int, allowed: int, stopped_at: int, plan: IngestPlan) -> None:
    """Raise `EtlError` if more was rejected than may be, or everything; ``stopped_at`` that many already."""
    rejected = max(report.quarantined, stopped_at)
    if rejected > allowed:
        where = f"{rejected:,}. Reasons: {report.rejected_at}"
        if stopped_at:  # there is no list in a folder yet
            where = f"{rejected:,} so far" + ("" if plan.target else f". Reasons: {report.rejected_at}")
        raise EtlError(f"Wanted at most {allowed:,} of {files:,} files rejected. Found: {where}")
    if not report.images and not report.already_there:
        raise EtlError(
            f"Wanted images in {plan.source.address}. Found: {report.quarantined:,} files, all rejected. "
            f"Reasons: {report.rejected_at}"
        )


def _metadata(spark: SparkSession, *, plan: IngestPlan) -> DataFrame:
    own = (plan.columns.id, plan.columns.label)
    names = (*own, "or_label", "or_split", "path", "bytes", "sha256", "source", "group_id")
    return read_table(spark, plan.tables.metadata, columns=names).transform(known_images, columns=plan.columns)


def _target(ingest: _Ingest, beginning: Beginning | None, *, ingest_id: uuid.UUID) -> Target:
    plan, control = ingest.plan, ingest.control
    if control is None or beginning is None:
        return folder_target(plan)
    return TableTarget(
        cluster=_cluster(control),
        tables=plan.tables,
        source=plan.source_name,
        ingest_id=ingest_id,
        run=beginning.run,
        has_groups=plan.source.group_column is not None,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, args = parse_args(argv)
    work = estimate if args.plan else run
    return execute("ingest.py", lambda spark: work(spark, plan=plan), as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
