"""Repair of tables: rows without a counterpart are deleted, and images of a source are written again."""

import logging
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.errors import ConflictError, EtlError
from etl.frames import joined_by_id, kept
from etl.ingest.destination import find_destination
from etl.ingest.listed_images import ListedImages
from etl.ingest.plan import IngestPlan
from etl.ingest.writing.image_writer import Nowhere, WriteOrder
from etl.ingest.writing.outcomes import WRITTEN
from etl.ingest.writing.preparation import Preparation
from etl.ingest.writing.table_rows import TableTarget
from etl.ingest.writing.tasks import task_count, write
from etl.sources.entries import Listing
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import RecordedRun, new_ingest_id, recorded_runs, unfinished
from etl.tables.sequence import SPAN, Run, finish_run, in_session, take_lone_run
from etl.verify.comparison import KINDS, MISSING_BLOB, NO_METADATA, Rules
from etl.verify.expected import Expectation
from etl.verify.plan import VerifyPlan
from etl.verify.problems import compared, count_problems, to_rewrite
from etl.verify.read_back import read_back
from formats.sizes import counted

MOST_DELETED = 100_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Repaired:
    """The problems that a repair has fixed, by kind, after reading back what was written."""

    mended: dict[str, int]
    run: Run | None = None
    """Its position in the sequence of runs, if it wrote anything."""
    unchanged: int = 0
    """The number of images that were written again or deleted, but are unchanged when read."""


def halves(problems: DataFrame, *, plan: VerifyPlan) -> list[tuple[str, uuid.UUID]]:
    """The rows without a counterpart, by kind and id. Runs Spark. Raises `EtlError` if there are too many, which points
    to another cause.
    """
    found = problems.where(F.col("kind").isin(MISSING_BLOB, NO_METADATA)).select("kind", "id")
    rows = found.limit(MOST_DELETED + 1).collect()
    if len(rows) > MOST_DELETED:
        raise EtlError(
            f"Wanted at most {MOST_DELETED:,} rows to delete. Found: more in {plan.metadata_table} and "
            f"{plan.data_table}. Ingest the source again, or pass it to this job; both write what is missing."
        )
    return [(row["kind"], uuid.UUID(bytes=bytes(row["id"]))) for row in sorted(rows, key=lambda row: bytes(row["id"]))]


def delete_halves(rows: Sequence[tuple[str, uuid.UUID]], *, table: MetadataTable, plan: VerifyPlan) -> Repaired:
    """Delete `halves`, and check that they are gone. Each row is checked again just before. Raises `ConflictError`,
    after it has deleted the others, if a run that has not finished may still write the metadata of some.
    """
    control, name, data = table.control, plan.columns.id, plan.columns.data
    blob = f'SELECT WRITETIME("{data}") AS written FROM {plan.data_table.quoted} WHERE "{name}" = ?'
    known = f'SELECT "{name}" FROM {plan.metadata_table.quoted} WHERE "{name}" = ?'
    delete_known = f'DELETE FROM {plan.metadata_table.quoted} USING TIMESTAMP ? WHERE "{name}" = ?'
    delete_blob = f'DELETE FROM {plan.data_table.quoted} USING TIMESTAMP ? WHERE "{name}" = ?'

    def has_blob(image: uuid.UUID) -> bool:
        return any(there.written for there in control.execute(blob, (image,)))

    def is_half(kind: str, image: uuid.UUID) -> bool:
        has_metadata = bool(control.execute(known, (image,)))
        return has_metadata != has_blob(image) and has_metadata == (kind == MISSING_BLOB)

    run = take_lone_run(table, kind="repair")
    begun = unfinished(recorded_runs(control, table.name))

    def writer(image: uuid.UUID) -> RecordedRun | None:
        times = [there.written for there in control.execute(blob, (image,)) if there.written]
        return next((one for one in begun for time in times if one.clock <= time < one.clock + SPAN), None)

    mended: Counter[str] = Counter()
    waiting: Counter[RecordedRun] = Counter()
    for kind, image in rows:
        if kind == NO_METADATA and (by := writer(image)) is not None:
            waiting[by] += 1
            continue
        if is_half(kind, image):
            for delete in (delete_known, delete_blob):  # without an image, the data row may still have a label
                control.execute(delete, (run.clock, image))
        mended[kind] += not is_half(kind, image)
    finish_run(control, run)
    log.info("deleted the remaining rows of %s incomplete images", f"{mended.total():,}")
    if waiting:
        raise ConflictError(
            f"Wanted images whose runs have ended. Found: {counted(waiting.total(), 'incomplete image')} of "
            f"{', '.join(map(str, waiting))}, which has not finished. Wait for it. If it was killed, ingest its source "
            "again with --resume, or pass the source to this job."
        )
    return Repaired(dict(mended), run, unchanged=len(rows) - mended.total())


def still_rejected(suspects: DataFrame, *, plan: IngestPlan, listing: Listing) -> DataFrame:
    """The ids of rows of `problems.rejected_before` that would still be rejected, as far as can be checked."""
    order = WriteOrder(
        target=Nowhere(),
        # completely, because the kind of check at the time of their rejection is unknown
        preparation=Preparation(check="full", recode=plan.recode, label_type=plan.source.label_type),
        labels={},
    )
    seen = suspects.where(~F.col("by_server")).drop("by_server")
    if listing.has_data:
        seen = joined_by_id(listing.entries, seen.select("id"), how="left_semi")
    outcomes = write(seen, order=order, tasks=seen.sparkSession.sparkContext.defaultParallelism, access=listing.access)
    return outcomes.where(F.col("stage") != WRITTEN).select("id").union(suspects.where("by_server").select("id"))


def rewrite(
    control: Control,
    problems: DataFrame,
    *,
    metadata: DataFrame,
    plan: IngestPlan,
    images: ListedImages,
    expectation: Expectation,
    rules: Rules,
) -> Repaired:
    """Write images with problems again from a source, read them back and compare them again. Those that are rejected
    now get into the quarantine table. Runs Spark. ``metadata`` has rows of `problems.stored_metadata`.
    """
    listing, counts = images.listing, images.counts
    spark = problems.sparkSession
    ingest_id = new_ingest_id()
    started = find_destination(control, plan=plan, names=counts.classes, order=images.listing.order).begin(
        control, plan=plan, kind="repair", ingest_id=ingest_id
    )
    order = WriteOrder(
        target=TableTarget(
            cluster=control.located,
            tables=plan.tables,
            source_name=plan.source_name,
            ingest_id=ingest_id,
            run=in_session(started.run, spark),
            has_groups=True,
            replaces=True,
        ),
        preparation=Preparation(check=plan.check, recode=plan.recode, label_type=plan.source.label_type),
        labels=started.numbers,
    )
    has_groups = plan.source.group_column is not None
    chosen = images.without(None).transform(to_rewrite, problems=problems, metadata=metadata, has_groups=has_groups)
    # images may have been deleted since the problems were found
    deleted = MetadataTable.open(spark, control, plan.tables.metadata, columns=plan.columns).deleted()
    if deleted is not None:
        chosen = chosen.join(deleted, on="id", how="left_anti").select(*chosen.columns)
    tasks = task_count(rows=counts.files, size=counts.bytes, cores=spark.sparkContext.defaultParallelism)
    rules = replace(rules, ingests={**rules.ingests, str(ingest_id): frozenset({plan.source_name})})
    with ExitStack() as stack:
        outcomes = kept(write(chosen, order=order, tasks=tasks, access=listing.access), stack=stack)
        written = outcomes.where(F.col("stage") == WRITTEN).select("id")
        stored = kept(outcomes.transform(read_back, cluster=control.located, tables=plan.tables), stack=stack)
        expected = replace(expectation, numbers=started.numbers).rows(images, only=written)
        left = kept(stored.transform(compared, expected=expected, excused=None, rules=rules), stack=stack)
        repaired = problems.where("is_rewritable").join(written, on="id", how="left_semi")
        repaired = repaired.join(left.select("id", "kind"), on=["id", "kind"], how="left_anti")
        found = {row["kind"]: row["rows"] for row in repaired.transform(count_problems).collect()}
        unchanged = left.select("id").distinct().count()
        finish_run(control, started.run)
    return Repaired({kind: found[kind] for kind in KINDS if kind in found}, started.run, unchanged)
