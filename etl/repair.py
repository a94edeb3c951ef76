"""Mending tables: rows whose other half is missing go, and what a source has is written again."""

import logging
import uuid
from collections import Counter
from dataclasses import replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.cassandra import Control
from etl.entries import Listing
from etl.errors import EtlError
from etl.image_writer import Nowhere, WriteOrder
from etl.ingest import Survey, number_classes, own_numbers, task_count, write
from etl.ingest_plan import IngestPlan, new_ingest_id
from etl.outcomes import WRITTEN
from etl.pictures import Preparation
from etl.table_rows import TableTarget
from etl.verification import KINDS, MISSING_BLOB, NO_METADATA, REWRITABLE, VerifyPlan, count_problems, to_rewrite

MOST_DELETED = 100_000

log = logging.getLogger(__name__)


def delete_halves(control: Control, problems: DataFrame, *, plan: VerifyPlan) -> dict[str, int]:
    """Delete rows whose other half is missing; returns how many of each kind are gone.

    Each is looked at once more just before. Raises `EtlError` if they are so many that something else must be wrong.
    """
    halves = problems.where(F.col("kind").isin(MISSING_BLOB, NO_METADATA)).select("kind", "id")
    rows = halves.limit(MOST_DELETED + 1).collect()
    if len(rows) > MOST_DELETED:
        raise EtlError(
            f"Wanted at most {MOST_DELETED:,} rows to delete. Found: more in {plan.metadata_table} and "
            f"{plan.data_table}. Ingest the source again, or name it here; both write what is missing."
        )
    name, data = plan.columns.id, plan.columns.data
    blob = f'SELECT WRITETIME("{data}") AS written FROM {plan.data_table.quoted} WHERE "{name}" = ?'
    known = f'SELECT "{name}" FROM {plan.metadata_table.quoted} WHERE "{name}" = ?'
    delete_known = f'DELETE FROM {plan.metadata_table.quoted} WHERE "{name}" = ?'
    delete_blob = f'DELETE FROM {plan.data_table.quoted} WHERE "{name}" = ?'
    mended: Counter[str] = Counter()
    for row in sorted(rows, key=lambda row: bytes(row["id"])):
        values = (uuid.UUID(bytes=bytes(row["id"])),)
        if row["kind"] == MISSING_BLOB:
            if not any(there.written for there in control.execute(blob, values)):
                control.execute(delete_known, values)
                control.execute(delete_blob, values)  # what is left of it: a label without a picture
        elif not control.execute(known, values):
            control.execute(delete_blob, values)
        mended[row["kind"]] += 1
    log.info("deleted the rest of %s images", f"{len(rows):,}")
    return dict(mended)


def still_rejected(suspects: DataFrame, *, plan: IngestPlan, listing: Listing) -> DataFrame:
    """The ids of rows of `verification.rejected_before` that are rejected today as well, as far as that can be seen.

    They are decoded whole: nobody tells how closely they were looked at when they were rejected.
    """
    order = WriteOrder(
        target=Nowhere(),
        preparation=Preparation(check="full", recode=plan.recode, label_type=plan.source.label_type),
        labels={},
        in_turn=listing.access != "random",
    )
    seen = suspects.where(~F.col("by_server")).drop("by_server")
    if listing.has_data:
        seen = listing.entries.join(F.broadcast(seen.select("id")), on="id", how="left_semi")
    outcomes = write(seen, order=order, tasks=seen.sparkSession.sparkContext.defaultParallelism, access=listing.access)
    return outcomes.where(F.col("stage") != WRITTEN).select("id").union(suspects.where("by_server").select("id"))


def rewrite(
    control: Control,
    problems: DataFrame,
    *,
    metadata: DataFrame,
    plan: IngestPlan,
    listing: Listing,
    entries: DataFrame,
    survey: Survey,
) -> dict[str, int]:
    """Write again from a source what is wrong; returns how many problems of each kind that mends. Runs Spark.

    ``entries`` are those of the listing without their bytes, ``survey`` is what was counted of them; ``metadata`` are
    rows of `verification.facts`. What is rejected now goes into the quarantine and is not mended.
    """
    numbers = own_numbers(control, plan=plan, names=survey.classes)
    order = WriteOrder(
        target=TableTarget(
            cluster=replace(control.cluster, datacenter=control.datacenter),
            tables=plan.tables,
            source=plan.source_name,
            ingest_id=new_ingest_id(),
            has_groups=True,
        ),
        preparation=Preparation(check=plan.check, recode=plan.recode, label_type=plan.source.label_type),
        labels=number_classes(control, plan=plan, names=survey.classes) if numbers is None else numbers,
        in_turn=listing.access != "random",
    )
    whole = listing.entries if listing.has_data else entries
    chosen = whole.transform(to_rewrite, problems=problems, metadata=metadata, source=plan.source_name)
    cores = entries.sparkSession.sparkContext.defaultParallelism
    tasks = task_count(rows=survey.files, size=survey.bytes, cores=cores)
    outcomes = write(chosen, order=order, tasks=tasks, access=listing.access).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        written = outcomes.where(F.col("stage") == WRITTEN).select("id")
        mended = problems.where(F.col("kind").isin(list(REWRITABLE))).join(written, on="id", how="left_semi")
        counts = {row["kind"]: row["rows"] for row in mended.transform(count_problems).collect()}
    finally:
        outcomes.unpersist()
    return {kind: counts[kind] for kind in KINDS if kind in counts}
