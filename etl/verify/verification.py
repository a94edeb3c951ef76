"""The verification, from the tables to its report."""

import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control, check_columns
from etl.cassandra.tables import read_table
from etl.errors import ConflictError, TableError
from etl.frames import kept
from etl.ingest.destination import check_fits_early, check_tables, create_history_table, create_records
from etl.ingest.listed_images import ListedImages, list_images
from etl.ingest.plan import IngestPlan
from etl.tables.metadata_table import MetadataTable
from etl.tables.table_records import check_dataset, check_pair
from etl.verify.comparison import FOREIGN, KINDS
from etl.verify.expected import Expectation
from etl.verify.kept_bytes import kept_problems
from etl.verify.plan import VerifyPlan
from etl.verify.problems import (
    blob_digests,
    compared,
    count_problems,
    first_problems,
    page_rows,
    rejected_before,
    stored_metadata,
    without_removed,
)
from etl.verify.records import LOST_NUMBER, records_of, stored_columns, with_source
from etl.verify.repair import Repaired, delete_halves, halves, rewrite, still_rejected
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
    """One verification. Call `list_source`, `compare`, `repair` and `report`, in this order. Persisted DataFrames are
    released when ``stack`` is closed.
    """

    def __init__(self, spark: SparkSession, *, plan: VerifyPlan, stack: ExitStack) -> None:
        """Connect, and read the metadata. Raises `EtlError` for tables that are not a pair or lack columns."""
        self._started = time.monotonic()
        self._spark, self._plan, self._stack = spark, plan, stack
        self._control = stack.enter_context(Control.from_spark(spark))
        table = self._table()
        self._metadata = kept(self._read_metadata(table), stack=stack)
        self._records = records_of(table, plan=plan, metadata=self._metadata)
        self._rules = self._records.rules
        self._images: ListedImages | None = None
        self._expectation: Expectation | None = None
        self._repaired = Repaired({})

    def _table(self) -> MetadataTable:
        """The metadata table as it is now."""
        return MetadataTable.open(self._spark, self._control, self._plan.metadata_table, columns=self._plan.columns)

    def list_source(self) -> None:
        """List the source, if there is one. Raises `EtlError` if the tables hold other labels or another dataset, or if
        a repair could not write its images.
        """
        plan = self._plan.ingest
        if plan is None:
            return
        check_dataset(self._control, self._plan.metadata_table, dataset=plan.dataset)
        check_fits_early(self._control, plan=plan)
        if self._plan.repair:
            check_lasting(self._table())
            create_records(self._control, tables=plan.tables)
            check_tables(self._control, plan=plan)
            create_history_table(self._control, plan=replace(plan, create=True))
        self._images = images = list_images(self._spark, self._control, plan=plan, stack=self._stack)
        self._rules, self._expectation = with_source(self._records, plan, plan=self._plan, images=images)

    def compare(self) -> None:
        """Find and count the problems. Raises `EtlError` if no row can be compared with the source."""
        plan, metadata = self._plan, self._metadata
        sums = metadata.agg(F.count("*").alias("rows"), F.avg("bytes").alias("mean"), F.max("bytes").alias("largest"))
        self._sums = sums.collect()[0]
        rows = page_rows(mean=self._sums["mean"] or 0, largest=self._sums.largest or 0)
        log.info("read the images of %s, %d per page", plan.data_table, rows)
        blobs = kept(self._read_blobs(page_rows=rows), stack=self._stack)
        removed = self._table().removals()
        if removed is not None:
            blobs = kept(blobs.transform(without_removed, removed=removed, metadata=metadata), stack=self._stack)
        self._read = blobs.agg(F.count("*").alias("rows"), F.sum("length").alias("bytes")).collect()[0]
        expected = excused = None
        if self._images is not None and self._expectation is not None and plan.ingest is not None:
            expected = self._expectation.rows(self._images)
            excused = self._excused(self._images, plan=plan.ingest)
        problems = metadata.join(blobs, on="id", how="full")
        problems = problems.transform(compared, expected=expected, excused=excused, rules=self._rules)
        self._problems = problems = kept(problems, stack=self._stack)
        counts = {row["kind"]: row["rows"] for row in problems.transform(count_problems).collect()}
        self._others = counts.get(FOREIGN, 0)
        self._check_others()
        self._counts = {kind: counts[kind] for kind in KINDS if kind in counts}
        firsts = problems.transform(first_problems, examples=EXAMPLES)
        self._examples = describe(firsts.collect()) if self._counts else {}
        for kind, lines in self._records.class_problems().items():
            self._counts[kind], self._examples[kind] = len(lines), lines[:EXAMPLES]
        found = kept_problems(
            self._table(), plan.data_table, check=plan.check, label_type=self._rules.label_type, page_rows=rows,
            examples=EXAMPLES,
        )  # fmt: skip
        for kind, (count, lines) in found.items():
            self._counts[kind], self._examples[kind] = count, lines

    def repair(self) -> None:
        """Repair the problems, if the plan says so."""
        plan, control, problems = self._plan, self._control, self._problems
        if not plan.repair or not self._counts:
            return
        log.info("repair %s problems", f"{sum(self._counts.values()):,}")
        restored = self._records.restore()
        if self._images is None or plan.ingest is None or self._expectation is None:
            self._repaired = delete_halves(halves(problems, plan=plan), table=self._table(), plan=plan)
        elif not self._records.blocks(self._images.counts.classes) and not problems.where("is_rewritable").isEmpty():
            self._repaired = rewrite(
                control,
                problems,
                metadata=self._metadata,
                plan=plan.ingest,
                images=self._images,
                expectation=self._expectation,
                rules=self._rules,
            )
        if restored:
            self._repaired = replace(self._repaired, mended={**self._repaired.mended, LOST_NUMBER: restored})

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
            others=self._others,
            problems=self._counts,
            examples=self._examples,
            mended=repaired.mended,
            left=sum(self._counts.values()) - sum(repaired.mended.values()),
            unchanged=repaired.unchanged,
            sequence=None if repaired.run is None else repaired.run.sequence,
            seconds=round(time.monotonic() - self._started, 3),
        )

    def _read_metadata(self, table: MetadataTable) -> DataFrame:
        """The rows of `stored_metadata`. For tables of other tools, with those columns that exist."""
        plan, control = self._plan, self._control
        needed = [plan.columns.id, "bytes", *(["sha256"] if plan.check == "hashes" else [])]
        check_columns(control, plan.metadata_table, columns=needed)
        check_columns(control, plan.data_table, columns=[plan.columns.id, plan.columns.data])
        check_pair(control, data_table=plan.data_table, metadata_table=plan.metadata_table)
        rows = read_table(self._spark, plan.metadata_table, columns=[plan.columns.id, *stored_columns(table)])
        return rows.transform(stored_metadata, columns=plan.columns)

    def _read_blobs(self, *, page_rows: int) -> DataFrame:
        plan, rules = self._plan, self._rules
        is_compared = rules.label_type == "int" or plan.check == "hashes"
        label_type = rules.label_type if "data_label" in rules.columns and is_compared else None
        columns = [plan.columns.id, plan.columns.data] + ([] if label_type is None else [plan.columns.label])
        data = read_table(self._spark, plan.data_table, columns=columns, page_rows=page_rows)
        return data.transform(blob_digests, columns=plan.columns, check=plan.check, label_type=label_type)

    def _excused(self, images: ListedImages, *, plan: IngestPlan) -> DataFrame | None:
        """The ids of images that need not be in the tables: they are rejected, or were deleted on request."""
        excused = []
        if self._control.columns(self._plan.quarantine) is not None:
            quarantined = read_table(self._spark, self._plan.quarantine, columns=["path", "stage", "bytes"])
            before = images.entries.transform(rejected_before, metadata=self._metadata, quarantined=quarantined)
            before = kept(before, stack=self._stack)
            if count := before.count():
                log.info("check %s rejected files again", f"{count:,}")
                rejected = before.transform(still_rejected, plan=plan, listing=images.listing)
                excused.append(kept(rejected, stack=self._stack).select("id"))
        deleted = self._table().deleted()
        if deleted is not None:  # a repair must not write them again
            excused.append(deleted)
        return reduce(DataFrame.union, excused) if excused else None

    def _check_others(self) -> None:
        plan, images = self._plan.ingest, self._images
        usable = 0 if images is None else images.counts.files - images.counts.rejected
        if plan is None or not usable or self._others < usable:
            return
        raise ConflictError(
            f"Wanted rows of {plan.source_name} in {plan.tables.metadata}. Found: none; its {usable:,} images have "
            "rows of other sources. Give the source from which they were ingested, with the options of that ingest, or "
            "ingest this one with --overwrite."
        )


def check_lasting(table: MetadataTable, /) -> None:
    """Raise `TableError` if images of a table expire: a repair would write rows that do not."""
    expires = [run for run in table.runs if run.writes_images and run.ttl]
    if expires:
        raise TableError(
            "Wanted a table whose images do not expire, for --repair with a source. Found: run "
            f"{expires[0].sequence} of {table.name} with --ttl {expires[0].ttl}. It would write rows that do not "
            "expire."
        )
