"""The steps of a sharding job: list, order, measure, pack, write, publish."""

import json
import logging
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.errors import EtlError, SourceError
from etl.frames import fetched, kept, persisted, pictures_in_rows, setting, small_table
from etl.ingest.writing.preparation import Preparation
from etl.ingest.writing.progress import Counters, collect_watched
from etl.ingest.writing.tasks import task_count
from etl.secrets import PROPERTIES, secrets_on_executors
from etl.shards.images import Images, open_images
from etl.shards.making import make
from etl.shards.output import ShardOutput, reasons, source_fingerprint, tag_of
from etl.shards.packing import Packing, add_shards
from etl.shards.plan import ShardPlan
from etl.shards.reading import THREADS
from etl.shards.report import ShardReport
from etl.shards.rows import MADE
from etl.shards.tasks import MEASURES, RESULTS, ShardOrder, measure, shard_of, write_shards
from etl.sources.entries import text
from etl.splits.lookups import check_pictures, draw_ids
from etl.workers import map_batches
from formats.shards.layout import END
from formats.sizes import counted
from schemas.shards import Shard

log = logging.getLogger("imagestrata.shard")


def run(spark: SparkSession, *, plan: ShardPlan) -> ShardReport:
    """Write a folder of shards.

    Args:
        spark: The session.
        plan: The options.

    Returns:
        The report.

    Raises:
        EtlError: The job is not possible, and nothing was published.
        FormatsError: A split cannot be read, or images do not fit in shards; nothing was published.
    """
    started = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(setting(spark, PROPERTIES["endpoint"], plan.endpoint))
        stack.enter_context(secrets_on_executors(spark))
        output = ShardOutput(spark, plan=plan)
        log.info("list %s", plan.source.name if plan.source else plan.split or plan.metadata_table)
        images = open_images(spark, plan=plan, keep=partial(kept, stack=stack))
        if images.has_data or plan.changes_pictures or images.access != "random":
            stack.enter_context(pictures_in_rows(spark))
        measured, of_images = _measured(images)
        tag = tag_of(of_images, plan=plan)  # a split that is made again has its old fingerprint, also with other bytes
        if (before := output.published(tag)) is not None:
            log.info("all shards exist already")
            return ShardReport.of(before, out=output.address, rejected_by_reason={}, remarks=[], is_new=False,
                                  seconds=time.monotonic() - started)  # fmt: skip
        _check_tables(spark, images, rows=len(measured))
        made = _made(images, plan=plan, rows=len(measured), stack=stack)
        if made is not None:
            measured = fetched(made.select("order", "size"))
        samples = images.bare if made is None else made
        packing = _pack(measured, samples, plan=plan, source=images.source)
        log.info("write %s into %s", counted(len(measured), "image"), counted(len(packing), "shard"))
        order = ShardOrder(
            address=plan.out,
            tag=tag,
            firsts=tuple(packing.firsts.tolist()),
            label_type=images.label_type,
            check=plan.check,
            pictures=images.pictures,
            resume=plan.resume,
            is_made=made is not None,
            published=output.digests,
            counters=Counters(spark.sparkContext),
        )
        shards, counts, rejected = _write(samples, order=order, packing=packing, plan=plan)
        options = {**_options(plan), "as-of": images.as_of}
        manifest, remarks = output.publish(
            shards, counts, rejected, tag=tag, content=images.content(of_images), options=options
        )
        return ShardReport.of(
            manifest,
            out=output.address,
            rejected_by_reason=reasons(rejected),
            remarks=[*images.remarks, *remarks],
            seconds=time.monotonic() - started,
        )


def _measured(images: Images) -> tuple[pd.DataFrame, str]:
    """The `MEASURES` of the images, and the fingerprint of all of them. Raises `SourceError` if there are none."""
    measured = fetched(map_batches(images.bare, task=measure, schema=MEASURES))
    if not len(measured):
        raise SourceError(f"Wanted images in {images.source}. Found: none.")
    return measured, source_fingerprint(measured["order"].to_numpy(), measured["digest"].to_numpy())


def _check_tables(spark: SparkSession, images: Images, *, rows: int) -> None:
    """Raise `TableError` if images of a metadata table are missing in its data table. A sample is looked up."""
    if images.pictures is None or images.metadata_table is None:
        return
    sample = images.bare.select("id", F.lit(0).alias("split")).transform(draw_ids, sizes=[rows])
    ids = [bytes(row["id"]) for row in sample.collect()]
    with Control.from_spark(spark) as control:
        check_pictures(
            control,
            ids,
            data=images.pictures.table,
            metadata=images.metadata_table,
            columns=images.pictures.columns,
        )


def _made(images: Images, *, plan: ShardPlan, rows: int, stack: ExitStack) -> DataFrame | None:
    """Samples with their files, persisted on disk, if images must be converted or cannot be read in shard order."""
    bare, in_turn = images.bare, images.access != "random"
    from_table = images.pictures is not None and images.label_type in ("blob", "multi")  # whose sizes are unknown
    if not (plan.changes_pictures or images.has_data or in_turn or from_table):
        return None
    log.info("read the images%s", " and convert them" if plan.changes_pictures else "")
    recode = plan.recode if images.pictures is None else replace(plan.recode, mask_frame="upright")
    preparation = Preparation(check=plan.check, recode=recode, label_type=images.label_type)
    samples = images.samples if images.has_data else bare
    if not images.has_data:
        size = bare.agg(F.sum("bytes")).collect()[0][0] or 0
        tasks = task_count(rows=rows, size=size, cores=bare.sparkSession.sparkContext.defaultParallelism)
        if images.access == "stream":
            samples = samples.repartition(tasks, "place")
        elif in_turn:
            samples = samples.repartitionByRange(tasks, "place", "offset")
        else:
            samples = samples.repartition(tasks, "id")
        samples = samples.sortWithinPartitions("place", "offset")
    task = partial(
        make,
        preparation=preparation,
        compress=plan.compress,
        threads=1 if in_turn else THREADS,
        pictures=images.pictures,
    )
    made = persisted(map_batches(samples, task=task, schema=MADE), StorageLevel.DISK_ONLY)
    stack.callback(made.unpersist)
    return made


def _pack(measured: pd.DataFrame, samples: DataFrame, *, plan: ShardPlan, source: str) -> Packing:
    order, sizes = measured["order"].to_numpy("int64"), measured["size"].to_numpy("int64")
    if int(sizes.max()) > plan.most_bytes - len(END):
        largest = int(sizes.argmax())
        row = samples.where(F.col("order") == int(order[largest])).select("path").first()
        raise EtlError(
            f"Wanted images that fit into a shard of {plan.most_bytes:,} bytes. Found: "
            f"{'' if row is None else text(bytes(row.path))} in {source}, which takes {sizes[largest] + len(END):,}. "
            "Use a larger --maxsize, or make images smaller with --img-size."
        )
    return Packing.of(order, sizes, maxsize=plan.most_bytes, maxcount=plan.maxcount)


def _write(
    samples: DataFrame, *, order: ShardOrder, packing: Packing, plan: ShardPlan
) -> tuple[list[Shard], Counter[int], list[dict[str, str]]]:
    """Write all shards; the shards in their order, images by class number, and what was left out."""
    spark = samples.sparkSession
    ranges = small_table(spark, packing.ranges, "bucket INT, low BIGINT, high BIGINT, shard INT, key INT")
    placed = samples.transform(add_shards, packing=packing, ranges=ranges)
    results = map_batches(placed, task=partial(write_shards, order=order), schema=RESULTS)
    files = int(packing.firsts[-1])
    tolerance = plan.limit
    allowed = tolerance.allowed(files)
    rows = collect_watched(
        results,
        group=f"shards {order.tag}",
        description=f"write {order.address}",
        counters=order.counters,
        files=files,
        allowed=allowed,
    )
    if rows is None:
        raise EtlError(f"Wanted {tolerance.limit(files)}. Found: {order.counters.rejected:,} so far.{_remedy(plan)}")
    rejected: list[dict[str, str]] = [json.loads(row.text) for row in rows if row.kind == "rejected"]
    shards: list[Shard] = []
    counts: Counter[int] = Counter()
    for row in rows:
        if row.kind == "shard":
            shard, classes = shard_of(row.text)
            shards.append(shard)
            counts.update(classes)
    if len(rejected) > allowed or not shards:
        kinds = ", ".join(f"{count:,} {reason}" for reason, count in reasons(rejected).items())
        first = min((one["or_split"], one["path"]) for one in rejected)
        kinds += f"; first {'/'.join(filter(None, first))}"
        raise EtlError(
            f"Wanted {tolerance.limit(files)}. Found: {len(rejected):,}. Reasons: {kinds}.{_remedy(plan)}"
            if shards
            else f"Wanted images. Found: {len(rejected):,} files, all rejected. Reasons: {kinds}"
        )
    return sorted(shards, key=lambda shard: shard.name), counts, rejected


def _remedy(plan: ShardPlan) -> str:
    """What to do about rejected images of tables and splits."""
    if plan.tolerance is not None:
        return ""
    verified = (
        " If an ingest runs, try again after it. `verify.py -d ... -m ...` finds out what is wrong with the table."
    )
    allowed = " --max-errors allows images to be left out."
    return allowed if plan.source is not None else f"{verified}{allowed}"


def _options(plan: ShardPlan) -> dict[str, Any]:
    """The options for the manifest, without those that do not affect the shards."""
    return {
        "split": plan.split,
        "index": plan.index,
        "maxsize": plan.most_bytes,
        "maxcount": plan.maxcount,
        "seed": plan.seed,
        "dataset": plan.dataset,
        "pictures": str(plan.recode) or "as they are",
        "check": plan.check,
        "compress": plan.compress,
    }
