"""The steps of a run that deletes images: choose them, look for splits that hold them, confirm, remove, check."""

import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control, check_columns
from etl.columns import column, exact_names
from etl.deleting.choosing import Chosen, choose
from etl.deleting.holders import OUTSIDE, Holder, check_holders, find_holders, find_models, find_shards
from etl.deleting.plan import DeletePlan
from etl.deleting.quarantined import forget_quarantined
from etl.errors import ConflictError, EtlError, SourceError, TableError
from etl.frames import kept
from etl.ingest.stale_rows import UNCONFIRMED_SHARE
from etl.secrets import secrets_on_executors
from etl.splits.metadata import cache_folder, publish_cache, read_cache, summed_by_file
from etl.splits.metadata_reading import checked
from etl.splits.plan import SplitPlan
from etl.tables.metadata_table import STATE, MetadataTable
from etl.tables.removal import Removal, kept_copies, label_tables, remove_images, value_tables
from etl.tables.runs import recorded_runs
from etl.tables.sequence import Run, finish_run, take_lone_run
from etl.tables.table_records import check_pair
from formats.sizes import counted
from schemas import IdentifierError
from schemas.tables import DELETED, history_of

log = logging.getLogger("imagestrata.delete")

_SOURCES = 20
WRITERS = ("ingest", "repair", "features", "labels")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReport:
    """What was deleted, or would be."""

    data_table: str
    metadata_table: str
    images: int
    of: int  # the images in the table before
    bytes: int
    sources: dict[str, int]
    before: int  # chosen images that were deleted by an earlier run
    replaced: int  # the copies of their bytes that were replaced earlier
    values: list[str]  # the tables from which feature values and labels of these images were removed
    splits: dict[str, int | None]  # The images in each split that holds some; None for a split that cannot be read.
    protected: list[str]  # the splits among these that need ``--force``
    # The images by registered model and use, such as ``model.pt@v1 (training)``; None if its split cannot be read.
    models: dict[str, int | None]
    # The images by registered shard set; None if its split cannot be read, or it was made from a whole table.
    shards: dict[str, int | None]
    caches: dict[str, int]  # the images that were removed from each metadata cache
    confirm: int | None  # the number for ``--count``, if it must be confirmed
    history: str  # the table that has a record of each image
    outside: dict[str, str]  # where else copies can be, and what to do about them
    sequence: int | None  # of the run, among the table's runs; None if nothing was deleted
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        is_done = self.sequence is not None
        lines = [f"{name}: {counted(count, 'image')}" for name, count in self.sources.items()]
        for address, images in self.splits.items():
            number = "cannot be read" if images is None else f"{counted(images, 'image')}"
            note = "; it is pinned or named by --split, so --force is needed" if address in self.protected else ""
            lines.append(f"{address}: {number}{' deleted' if is_done and images is not None else note}")
        for name, images in self.models.items():
            number = "its split cannot be read" if images is None else f"has seen {counted(images, 'image')}"
            lines.append(f"model {name}: {number}")
        for name, images in self.shards.items():
            number = "may have images" if images is None else f"{counted(images, 'image')}"
            lines.append(f"shards {name}: {number}; remove them, or make them again")
        lines += [f"{address}: {counted(images, 'image')} removed from this cache" for address, images in
                  self.caches.items()]  # fmt: skip
        if self.replaced:
            lines.append(f"{counted(self.replaced, 'copy', 'copies')} of bytes that were replaced earlier")
        if self.values:
            lines.append(f"values in {', '.join(self.values)}")
        lines += [f"not removed: {place} ({what})" for place, what in self.outside.items()]
        before = f"; {self.before:,} were deleted before" if self.before else ""
        size = f"{self.images:,} of {counted(self.of, 'image')} ({self.bytes / 1e6:,.1f} MB)"
        if is_done:
            last = f"deleted {size} from {self.metadata_table} and {self.data_table} in {self.seconds:,.1f} s{before}"
            last += f"; run {self.sequence}; recorded in {self.history}"
        else:
            last = f"would delete {size} of {self.metadata_table} and {self.data_table}{before}; nothing was deleted"
            if self.confirm is not None:
                last += f"; to delete them, add --count {self.confirm}"
        return "\n".join([*lines, last])


def run(spark: SparkSession, *, plan: DeletePlan) -> DeleteReport:
    """Delete images. Raises `EtlError` if they cannot be deleted, or their number is not confirmed. Nothing was deleted
    then, unless the message says otherwise.
    """
    started = time.monotonic()
    with ExitStack() as stack:
        found = _survey(spark, plan=plan, stack=stack)
        table, report = found.table, found.report
        check_holders(found.holders, plan=plan)
        check_count(report.images if found.unrecorded else 0, of=report.of, plan=plan)
        gone = _all_deleted(found)
        caches = {address: _clean_cache(spark, address, ids=gone, plan=plan) for address in plan.caches}
        run = take_lone_run(table, kind="delete", dataset=table.dataset)
        log.info("this is %s", run)
        removal = Removal.begin(table, data=plan.data_table, run=run, on_request=True)
        forget_quarantined(table, found.ids, run=run)
        remove_images(
            found.ids,
            count=report.images + report.before,
            states=_states_now(found),
            removal=removal,
            kind=DELETED,
            reason=plan.reason.strip(),
        )
        _check_alone(found, run=run)
        finish_run(table.control, run)
        seconds = round(time.monotonic() - started, 3)
        return replace(report, caches=caches, sequence=run.sequence, seconds=seconds)


def _all_deleted(found: "_Found") -> DataFrame:
    """The ids of the images, and of all that were deleted before: a cache may have been left out then."""
    before = found.table.deleted()
    return found.ids if before is None else found.ids.unionByName(before).distinct()


def _states_now(found: "_Found") -> DataFrame:
    """The states of the images, read again: another run may have replaced some before this one began."""
    now = found.table.rows(STATE).join(found.ids, on="id", how="left_semi")
    return now.unionByName(found.chosen.states.join(now.select("id"), on="id", how="left_anti"))


def estimate(spark: SparkSession, *, plan: DeletePlan) -> DeleteReport:
    """Find the images and the splits that hold them. Writes nothing. Raises `EtlError` if they cannot be deleted."""
    with ExitStack() as stack:
        return _survey(spark, plan=plan, stack=stack).report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What is to be deleted."""

    table: MetadataTable
    chosen: Chosen
    ids: DataFrame  # all that are removed, also those that an earlier run deleted
    # The images that no run has recorded as deleted. Without any, an interrupted run is finished, whose number was
    # confirmed: images are only removed when all are recorded, so that the number is the same.
    unrecorded: int
    holders: list[Holder]
    report: DeleteReport  # before anything was deleted


def _survey(spark: SparkSession, *, plan: DeletePlan, stack: ExitStack) -> _Found:
    started = time.monotonic()
    control = stack.enter_context(Control.from_spark(spark))
    stack.enter_context(secrets_on_executors(spark))
    stack.enter_context(exact_names(spark))
    _check_tables(control, plan=plan)
    log.info("look for %s in %s", plan.choice, plan.metadata_table)
    table = MetadataTable.open(spark, control, plan.metadata_table, columns=plan.columns)
    half = table.half_deleted()
    chosen = choose(table, plan=plan, half=half)
    chosen = Chosen(kept(chosen.states, stack=stack), kept(chosen.before, stack=stack))
    by_source = chosen.states.groupBy("source").agg(F.count("*").alias("images"), F.sum("bytes").alias("bytes"))
    rows = by_source.orderBy(F.desc("images"), "source").collect()
    images, before = sum(row["images"] for row in rows), chosen.before.count()
    if not images and not before:
        raise SourceError(f"Wanted images of {plan.metadata_table} by {plan.choice}. Found: none. Nothing was deleted.")
    ids = kept(chosen.states.select("id").union(chosen.before), stack=stack)
    unrecorded = images if half is None else chosen.states.join(half, on="id", how="left_anti").count()
    if begun := images - unrecorded:
        log.warning("%s of them are those that an interrupted run has begun to delete", f"{begun:,}")
    of = table.rows([]).count()
    holders = find_holders(spark, control, chosen.states.select("id"), plan=plan)
    copies = kept_copies(spark, control, plan.data_table)
    report = DeleteReport(
        data_table=str(plan.data_table),
        metadata_table=str(plan.metadata_table),
        images=images,
        of=of,
        bytes=sum(row["bytes"] or 0 for row in rows),
        sources={row["source"] or "no source": row["images"] for row in rows[:_SOURCES]},
        before=before,
        replaced=0 if copies is None else copies.join(ids, on="id", how="left_semi").count(),
        values=[str(one) for of in (value_tables, label_tables) for one in of(control, plan.metadata_table)],
        splits={holder.address: holder.images for holder in holders},
        protected=[] if plan.force else [holder.address for holder in holders if holder.is_protected],
        models=find_models(spark, control, ids, plan=plan),
        shards=find_shards(spark, control, ids, plan=plan),
        caches={},
        confirm=images if unrecorded and needs_confirmation(images, of=of) else None,
        history=str(history_of(plan.metadata_table)),
        outside=OUTSIDE,
        sequence=None,
        seconds=round(time.monotonic() - started, 3),
    )
    return _Found(table=table, chosen=chosen, ids=ids, unrecorded=unrecorded, holders=holders, report=report)


def _check_tables(control: Control, *, plan: DeletePlan) -> None:
    """Raise `TableError`, `ConflictError` for tables that images cannot be deleted from."""
    names = plan.columns
    check_columns(control, plan.data_table, columns=[names.id, names.data])
    check_columns(control, plan.metadata_table, columns=[names.id])
    check_pair(control, data_table=plan.data_table, metadata_table=plan.metadata_table)
    for table in (plan.data_table, plan.metadata_table):
        kind = (control.columns(table) or {})[names.id]
        if kind not in ("uuid", "timeuuid") or control.key(table) != [names.id]:
            raise TableError(f"Wanted a table with the key {names.id} uuid. Found: {table} with {names.id} {kind}.")
    try:
        history_of(plan.metadata_table)
    except IdentifierError as error:
        raise TableError(str(error)) from None


def check_count(images: int, *, of: int, plan: DeletePlan) -> None:
    """Raise `EtlError` unless this number of images, of so many in the table, may be deleted."""
    is_confirmed = not needs_confirmation(images, of=of) if plan.count is None else plan.count == images
    if images and not is_confirmed:
        given = "no --count" if plan.count is None else f"--count {plan.count}"
        raise EtlError(
            f"Wanted --count {images}, to delete {images:,} of {of:,} images of {plan.metadata_table}. Found: {given}. "
            "Nothing was deleted. --plan shows what would be deleted. You must confirm the number of images if it "
            f"exceeds {UNCONFIRMED_SHARE:.0%} of the table."
        )


def needs_confirmation(images: int, *, of: int) -> bool:
    """Whether this number of images, of so many in the table, is deleted only if it is confirmed."""
    return images > UNCONFIRMED_SHARE * of


def _clean_cache(spark: SparkSession, address: str, *, ids: DataFrame, plan: DeletePlan) -> int:
    """Write a metadata cache again without the images of these ids (16 bytes each); returns how many it had."""
    of = SplitPlan(
        data_table=plan.data_table, metadata_table=plan.metadata_table, metadata_in=address, columns=plan.columns
    )
    metadata = checked(read_cache(spark, address, plan=of))
    gone = metadata.rows.join(ids, on="id", how="left_semi").count()
    named = () if metadata.cache is None else [file.path for file in metadata.cache.files]
    left = metadata.rows.join(ids, on="id", how="left_anti").select(*map(column, metadata.rows.columns))
    with cache_folder(address, overwrite=True) as output:
        if not gone and not output.has_more(named):  # files of a run that was killed may have these images
            return 0
        aside = output.aside("rows")
        left.write.option("compression", "zstd").parquet(aside)
        found = summed_by_file(spark.read.parquet(aside))
        if not found:
            raise TableError(f"Wanted other images in the metadata cache {address}. Found: none. Remove the folder.")
        publish_cache(output, metadata, summed=found)
    return gone


def _check_alone(found: _Found, *, run: Run) -> None:
    """Raise `ConflictError` if another run has written, or may write, deleted images again."""
    table, metadata = found.table, found.table.name
    runs = recorded_runs(table.control, metadata)  # now
    later = [one for one in runs if one.sequence > run.sequence and one.kind in WRITERS]
    if later:
        names = ", ".join(f"{row.sequence} ({row.kind})" for row in later)
        raise ConflictError(
            f"Wanted no other run on {metadata} while images are deleted. Found: run {names} began after this one and "
            "may have written some of these images or their values again. The images were deleted; run this again "
            "with their ids when it has ended."
        )
    if left := table.rows([]).join(found.ids, on="id", how="left_semi").count():
        raise TableError(
            f"Wanted no rows of deleted images in {metadata}. Found: {left:,} rows, with later write times (see "
            "WRITETIME in CQL), from a machine whose clock was ahead. Run this again when these times have passed."
        )
