"""The verification, from the tables to its report."""

import logging
import time
from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control, check_columns
from etl.cassandra.expiry import check_lasting
from etl.cassandra.table_records import check_dataset, check_pair
from etl.cassandra.tables import read_table
from etl.frames import kept, plain_inside
from etl.ingest.destination import check_fits_early, check_tables, create_history_table, create_records
from etl.ingest.listed_images import ListedImages, list_images
from etl.ingest.plan import IngestPlan
from etl.ingest.removal import deleted_images, newest_removals
from etl.verify.plan import VerifyPlan
from etl.verify.problems import (
    KINDS,
    blob_digests,
    count_problems,
    first_problems,
    page_rows,
    rejected_before,
    sample_metadata,
    source_problems,
    table_problems,
    without_removed,
)
from etl.verify.repair import Repaired, delete_halves, rewrite, still_rejected
from etl.verify.report import EXAMPLES, VerifyReport, describe

log = logging.getLogger("imagestrata.verify")


def run(spark: SparkSession, *, plan: VerifyPlan) -> VerifyReport:
    """Verify tables, and repair them if the plan says so.

    Args:
        spark: The session.
        plan: The options.

    Returns:
        The report.

    Raises:
        EtlError: The tables or the source cannot be read.
    """
    with ExitStack() as stack:
        verification = Verification(spark, plan=plan, stack=stack)
        verification.list_source()
        verification.compare()
        verification.repair()
        return verification.report()


class Verification:
    """One verification. Call `list_source`, `compare`, `repair` and `report`, in this order.

    Persisted DataFrames are released when ``stack`` is closed.
    """

    def __init__(self, spark: SparkSession, *, plan: VerifyPlan, stack: ExitStack) -> None:
        """Connect, and read the metadata. Raises `EtlError` for tables that are not a pair or lack columns."""
        self._started = time.monotonic()
        self._spark, self._plan, self._stack = spark, plan, stack
        self._control = stack.enter_context(Control.from_spark(spark))
        stack.enter_context(plain_inside(spark))
        self._metadata = kept(self._read_metadata(), stack=stack)
        self._images: ListedImages | None = None
        self._repaired = Repaired({})

    def list_source(self) -> None:
        """List the source, if there is one.

        Raises `EtlError` if the tables hold another dataset, or if a repair could not write its images.
        """
        plan = self._plan.ingest
        if plan is None:
            return
        check_dataset(self._control, self._plan.metadata_table, dataset=plan.dataset)
        if self._plan.repair:
            check_lasting(self._control, self._plan.metadata_table, wanted="--repair with a source")
            create_records(self._control, tables=plan.tables)
            check_tables(self._control, plan=plan)
            check_fits_early(self._control, plan=plan)
            create_history_table(self._control, plan=replace(plan, create=True))
        self._images = list_images(self._spark, plan=plan, stack=self._stack)

    def compare(self) -> None:
        """Find and count the problems."""
        plan, metadata = self._plan, self._metadata
        sums = metadata.agg(F.count("*").alias("rows"), F.avg("bytes").alias("mean"), F.max("bytes").alias("largest"))
        self._sums = sums.collect()[0]
        rows = page_rows(mean=self._sums["mean"] or 0, largest=self._sums.largest or 0)
        log.info("read the images of %s, %d per page", plan.data_table, rows)
        columns = (plan.columns.id, plan.columns.data)
        data = read_table(self._spark, plan.data_table, columns=columns, page_rows=rows)
        blobs = kept(data.transform(blob_digests, columns=plan.columns, check=plan.check), stack=self._stack)
        removed = newest_removals(self._spark, self._control, metadata=plan.metadata_table)
        if removed is not None:
            blobs = kept(blobs.transform(without_removed, removed=removed, metadata=metadata), stack=self._stack)
        self._read = blobs.agg(F.count("*").alias("rows"), F.sum("length").alias("bytes")).collect()[0]
        problems = metadata.transform(table_problems, blobs=blobs)
        if self._images is not None and plan.ingest is not None:
            problems = problems.union(self._compare_source(self._images, plan=plan.ingest))
        self._problems = problems = kept(problems, stack=self._stack)
        counts = {row["kind"]: row["rows"] for row in problems.transform(count_problems).collect()}
        self._counts = {kind: counts[kind] for kind in KINDS if kind in counts}
        firsts = problems.transform(first_problems, examples=EXAMPLES)
        self._examples = describe(firsts.collect()) if counts else {}

    def repair(self) -> None:
        """Repair the problems, if the plan says so."""
        plan, control, problems = self._plan, self._control, self._problems
        if not plan.repair or not self._counts:
            return
        log.info("mend %s problems", f"{sum(self._counts.values()):,}")
        if self._images is None or plan.ingest is None:
            self._repaired = delete_halves(control, problems, plan=plan)
        else:
            metadata, images = self._metadata, self._images
            self._repaired = rewrite(control, problems, metadata=metadata, plan=plan.ingest, images=images)

    def report(self) -> VerifyReport:
        """Make the report."""
        plan, repaired = self._plan, self._repaired
        return VerifyReport(
            data_table=str(plan.data_table),
            metadata_table=str(plan.metadata_table),
            source=None if plan.ingest is None else plan.ingest.source_name,
            check=plan.check,
            images=self._sums["rows"],
            blobs=self._read["rows"],
            bytes=self._read["bytes"] or 0,
            files=None if self._images is None else self._images.counts.files,
            problems=self._counts,
            examples=self._examples,
            mended=repaired.mended,
            left=sum(self._counts.values()) - sum(repaired.mended.values()),
            unchanged=repaired.unchanged,
            sequence=None if repaired.run is None else repaired.run.sequence,
            seconds=round(time.monotonic() - self._started, 3),
        )

    def _read_metadata(self) -> DataFrame:
        """The rows of `sample_metadata`. For tables of other tools, with those columns that exist."""
        plan, control = self._plan, self._control
        needed = [plan.columns.id, "bytes", *(["sha256"] if plan.check == "hashes" else [])]
        check_columns(control, plan.metadata_table, columns=needed)
        check_columns(control, plan.data_table, columns=[plan.columns.id, plan.columns.data])
        check_pair(control, data_table=plan.data_table, metadata_table=plan.metadata_table)
        found = control.columns(plan.metadata_table) or {}
        more = [name for name in ("or_split", "path", "source", "group_id") if name in found]
        rows = read_table(self._spark, plan.metadata_table, columns=[*needed, *more])
        return rows.transform(sample_metadata, columns=plan.columns)

    def _compare_source(self, images: ListedImages, *, plan: IngestPlan) -> DataFrame:
        rejected = images.entries.where(F.lit(False))
        if self._control.columns(self._plan.quarantine) is not None:
            quarantined = read_table(self._spark, self._plan.quarantine, columns=["path", "stage", "bytes"])
            before = images.entries.transform(rejected_before, metadata=self._metadata, quarantined=quarantined)
            before = kept(before, stack=self._stack)
            if count := before.count():
                log.info("check %s rejected files again", f"{count:,}")
                rejected = kept(before.transform(still_rejected, plan=plan, listing=images.listing), stack=self._stack)
        deleted = deleted_images(self._spark, self._control, metadata=plan.tables.metadata, columns=plan.columns)
        if deleted is not None:  # they are not missing, and a repair must not write them again
            rejected = rejected.select("id").union(deleted)
        return self._metadata.transform(
            source_problems,
            entries=images.entries,
            rejected=rejected,
            source=plan.source_name,
            splits=[split for split in (plan.source.splits or (plan.source.or_split,)) if split],
            sizes=not plan.recode.changes and not images.listing.has_data,
        )
