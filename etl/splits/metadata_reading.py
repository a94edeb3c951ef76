"""Reading what a split is made from: a cache, or the tables, whose copy is kept as a cache if that is wanted."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.errors import TableError, UnreachableError
from etl.splits.candidates import name_labels
from etl.splits.leaks import WATCHED
from etl.splits.lookups import check_pictures, draw_ids
from etl.splits.metadata import CLASS_NAME, CacheOutput, Metadata, copy_table, count_repeated, read_cache, sums
from etl.splits.plan import LABELS, SplitPlan
from etl.splits.positions import added_up
from formats.splits.fingerprint import rows_fingerprint
from schemas.cache import CacheManifest


def open_metadata(spark: SparkSession, *, plan: SplitPlan, aside: str | None) -> Metadata:
    """The metadata of a plan, with class names as far as they are known; the tables are copied to ``aside`` once.

    Without ``aside`` the tables are read as they are, for a single count. Raises `TableError`, `OutputExistsError`,
    `UnreachableError`.
    """
    if plan.metadata_in is not None:
        return _named(read_cache(spark, plan.metadata_in, plan=plan))
    if aside is None:
        return _named(copy_table(spark, None, plan=plan, only=_needed(plan)))
    if plan.metadata_out is None:
        return _belonging(spark, _named(copy_table(spark, aside, plan=plan, only=_needed(plan))))
    with CacheOutput(plan.metadata_out, overwrite=plan.overwrite) as output:
        copied = _belonging(spark, _named(copy_table(spark, output.aside("rows"), plan=plan, only=None)))
        by_file = copied.rows.withColumn("file", F.input_file_name())
        found = [row.asDict() for row in by_file.groupBy("file").agg(*sums()).collect()]
        if not found:
            raise TableError(
                f"Wanted images in {copied.metadata_table}. Found: an empty table. Fill it with jobs/ingest.py."
            )
        output.publish(copied, sums=added_up(found), sizes={row["file"]: row["rows"] for row in found})
    written = read_cache(spark, plan.metadata_out, plan=plan)
    return replace(written, class_names=copied.class_names, cache=None)


def _belonging(spark: SparkSession, metadata: Metadata) -> Metadata:
    """The metadata, if the data table has their pictures: found before time is spent on choosing among them."""
    rows = metadata.rows.select("id", F.lit(0).alias("split"))
    check_sample(spark, rows, metadata=metadata, sizes=[rows.count()])
    return metadata


def check_sample(
    spark: SparkSession, rows: DataFrame, *, metadata: Metadata, sizes: Sequence[int], is_cached: bool = False
) -> list[str]:
    """Look a sample of the ids of ``split, id`` up in the data table.

    Args:
        spark: The session, whose settings say where Cassandra is.
        rows: The images.
        metadata: What they come from.
        sizes: The rows by split.
        is_cached: Whether the metadata come from a cache, which may be used where its Cassandra cannot be reached.

    Returns:
        A warning where nothing could be looked up.

    Raises:
        TableError: If an image is not there.
        UnreachableError: If Cassandra does not answer, unless the metadata are cached.
    """
    data = metadata.data_table
    try:
        with Control.from_spark(spark) as control:
            if is_cached and control.columns(data) is None:
                return [f"not checked that {data} has these images: Cassandra at {control.cluster} has no such table"]
            ids = [bytes(row["id"]) for row in rows.transform(draw_ids, sizes=sizes).collect()]
            check_pictures(control, ids, data=data, metadata=metadata.metadata_table, columns=metadata.columns)
            return []
    except UnreachableError as error:
        if not is_cached:
            raise
        return [f"not checked that {data} has these images: Cassandra does not answer. {error}"]


def _needed(plan: SplitPlan) -> list[str] | None:
    """The columns beside id and label that a plan may ask for; None where a condition may ask for any."""
    if plan.where:
        return None
    watched = WATCHED.values() if plan.has_leak_check else ()
    return [*plan.named_columns, *watched, LABELS]


def _named(metadata: Metadata) -> Metadata:
    """With the names that the rows tell, where the tables have no list of them."""
    if metadata.class_names or metadata.label_type != "int" or CLASS_NAME not in metadata.rows.columns:
        return metadata
    found = metadata.rows.transform(name_labels).collect()
    return replace(metadata, class_names={row["label"]: row["name"] for row in found if row["label"] is not None})


def checked(metadata: Metadata) -> Metadata:
    """The metadata after a pass over its rows that compares a cache with its manifest. Raises `TableError`."""
    if metadata.cache is None:
        return metadata
    check_sums(metadata, metadata.cache, metadata.rows.agg(*sums()).collect())
    return replace(metadata, cache=None)


def check_sums(metadata: Metadata, wanted: CacheManifest, summed: Sequence[Row]) -> None:
    """Raise `TableError` if the rows of a cache are not those that were written, or an id is there twice.

    ``summed``: `etl.splits.metadata.sums` of parts of the rows, which together are all. What is written to a cache has
    no id twice: the table's key is the id, or it was counted.
    """
    parts = [row.asDict() for row in summed]
    rows = sum(part["rows"] for part in parts)
    if (rows, rows_fingerprint(rows=rows, sums=added_up(parts))) == (wanted.rows, wanted.fingerprint):
        return
    repeated = count_repeated(metadata.rows)
    found = f"{repeated:,} ids that are there more than once" if repeated else f"{rows:,} rows of other contents"
    raise TableError(
        f"Wanted the {wanted.rows:,} rows that were written to the metadata cache of {metadata.metadata_table}, each "
        f"id once. Found: {found}. Make it again with --metadata-ofn."
    )
