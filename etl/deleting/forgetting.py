"""Free the space of replaced bytes: those of states that ended at or before a run.

The states are marked first, then the copies are removed: those that no later state needs. So a run that was killed
leaves copies without a state, which the next run finds. A copy that a run may still write is left; a copy is removed at
the write time of its run.
"""

import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.cassandra.deletions import delete_rows
from etl.cassandra.tables import append_rows, uuid_bytes, uuid_text
from etl.deleting.holders import check_pinned
from etl.deleting.plan import ForgetPlan
from etl.errors import EtlError, TableError
from etl.frames import kept
from etl.ingest.stale_rows import UNCONFIRMED_SHARE
from etl.secrets import secrets_on_executors
from etl.tables.earlier import resolve
from etl.tables.metadata_table import MetadataTable
from etl.tables.removal import kept_copies
from etl.tables.runs import unfinished
from etl.tables.sequence import SPAN, finish_run, take_lone_run
from etl.tables.table_records import check_pair
from formats.checksums import COLUMN as CHECKSUM
from formats.sizes import counted
from schemas import TableName
from schemas.as_of import AsOf
from schemas.tables import kept_of

log = logging.getLogger("imagestrata.delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReport:
    """What was forgotten, or would be."""

    kept_table: str
    before: int  # the run at or before which the states ended
    copies: int  # of replaced bytes
    of: int  # the copies in the table before
    bytes: int
    states: int  # of images, that had these bytes
    left: int  # copies of runs that were killed, or still write
    confirm: int | None  # the number for ``--count``, if it must be confirmed
    sequence: int | None  # of the run; None if nothing was deleted
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        size = f"{self.copies:,} of {counted(self.of, 'copy', 'copies')} of replaced bytes ({self.bytes / 1e6:,.1f} MB)"
        what = f"{size} in {self.kept_table}, of {counted(self.states, 'state')} up to run {self.before}"
        left = f"; {self.left:,} are left, of runs that have not finished" if self.left else ""
        if self.sequence is not None:
            return f"deleted {what} in {self.seconds:,.1f} s{left}; run {self.sequence}"
        confirm = "" if self.confirm is None else f"; to delete them, add --count {self.confirm}"
        return f"would delete {what}{left}; nothing was deleted{confirm}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    table: MetadataTable
    kept: TableName
    copies: DataFrame  # ``id`` (16 bytes), the checksum, ``until, bytes``
    states: DataFrame  # ``id`` (text), ``until``
    report: ForgetReport


def run(spark: SparkSession, *, plan: ForgetPlan) -> ForgetReport:
    """Delete replaced bytes. Raises `EtlError` if their number is not confirmed, or a pinned split may name
    them; nothing was deleted then.
    """
    started = time.monotonic()
    with ExitStack() as stack:
        found = _survey(spark, plan=plan, stack=stack)
        table, report = found.table, found.report
        if report.confirm is not None and plan.count != report.confirm:
            given = "no --count" if plan.count is None else f"--count {plan.count}"
            of = counted(report.of, "copy", "copies")
            raise EtlError(
                f"Wanted --count {report.confirm}, to delete {report.copies:,} of {of} in {found.kept}. "
                f"Found: {given}. Nothing was deleted."
            )
        if not plan.force:
            check_pinned(table.control, metadata=table.name, before=report.before)
        run = take_lone_run(table, kind="forget", dataset=table.dataset)
        log.info("this is %s", run)
        if table.history is not None and report.states:
            append_rows(found.states.withColumn("kept", F.lit(False)), table=table.history, clock=run.clock)
        for until in sorted(row["until"] for row in found.copies.select("until").distinct().collect()):
            keys = found.copies.where(F.col("until") == until).select(uuid_text("id").alias("id"), CHECKSUM)
            # At the end of the run that wrote them: what a later run copies again meanwhile stays.
            clock = table.clocks[until] + SPAN - 1
            delete_rows(keys, table=found.kept, cluster=table.control.located, clock=clock)
        finish_run(table.control, run)
        return replace(report, sequence=run.sequence, seconds=round(time.monotonic() - started, 3))


def estimate(spark: SparkSession, *, plan: ForgetPlan) -> ForgetReport:
    """Find what would be deleted. Writes nothing. Raises `EtlError` if there are no replaced bytes."""
    with ExitStack() as stack:
        return _survey(spark, plan=plan, stack=stack).report


def _survey(spark: SparkSession, *, plan: ForgetPlan, stack: ExitStack) -> _Found:
    started = time.monotonic()
    control = stack.enter_context(Control.from_spark(spark))
    stack.enter_context(secrets_on_executors(spark))
    check_pair(control, data_table=plan.data_table, metadata_table=plan.metadata_table)
    table = MetadataTable.open(spark, control, plan.metadata_table, columns=plan.columns)
    before = resolve(AsOf.parse(plan.before), table.runs, table=table.name, now=datetime.now(UTC))
    place, copies = kept_of(plan.data_table), kept_copies(spark, control, plan.data_table)
    if copies is None:
        raise TableError(
            f"Wanted replaced bytes of {plan.data_table}. Found: no ingest has kept any (ingest.py --keep-replaced)."
        )
    history = table.replaced().select(
        uuid_bytes("id").alias("id"), F.col("id").alias("text"), "until", CHECKSUM, "kept"
    )
    needed = history.where((F.col("until") > before) & F.col(CHECKSUM).isNotNull()).select("id", CHECKSUM).distinct()
    states = history.where(F.col("kept") & (F.col("until") <= before)).join(
        needed, on=["id", CHECKSUM], how="left_anti"
    )
    states = kept(states.select(F.col("text").alias("id"), "until"), stack=stack)
    copies = kept(copies, stack=stack)
    recorded = history.select("id", "until", F.lit(True).alias("is_recorded"))
    ended = copies.join(needed, on=["id", CHECKSUM], how="left_anti").where(F.col("until") <= before)
    ended = kept(ended.join(recorded, on=["id", "until"], how="left"), stack=stack)
    # Its run has not replaced these bytes yet, and may.
    is_open = F.col("is_recorded").isNull() & F.col("until").isin([run.sequence for run in unfinished(table.runs)])
    gone = ended.where(~is_open)
    (sums,) = gone.agg(F.count("*").alias("copies"), F.sum("bytes").alias("bytes")).collect()
    of, count = copies.count(), sums["copies"]
    report = ForgetReport(
        kept_table=str(place),
        before=before,
        copies=count,
        of=of,
        bytes=sums["bytes"] or 0,
        states=states.count(),
        left=ended.count() - count,
        confirm=count if count > UNCONFIRMED_SHARE * of else None,
        sequence=None,
        seconds=round(time.monotonic() - started, 3),
    )
    return _Found(table=table, kept=place, copies=gone, states=states, report=report)
