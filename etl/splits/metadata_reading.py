"""Reading of a split's input: a cache, or the tables, whose copy can be kept as a cache."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.errors import TableError, UnreachableError
from etl.splits.candidates import name_labels
from etl.splits.leaks import WATCHED
from etl.splits.lookups import check_pictures, draw_ids
from etl.splits.metadata import (
    CLASS_NAME,
    Metadata,
    cache_folder,
    copy_table,
    count_repeated,
    no_images,
    publish_cache,
    read_cache,
    summed_by_file,
    sums,
)
from etl.splits.plan import LABELS, SplitPlan
from etl.splits.positions import added_up
from etl.tables.metadata_table import MetadataTable
from formats.splits.fingerprint import rows_fingerprint
from schemas.cache import CacheManifest

_REMOVED = 4_000


def open_metadata(spark: SparkSession, *, plan: SplitPlan, aside: str | None) -> Metadata:
    """Open the metadata of a plan, with the known class names. The tables are copied to ``aside`` once. Without
    ``aside``, the tables are read directly, for a single count. Raises `TableError`, `OutputExistsError`,
    `UnreachableError`.
    """
    if plan.metadata_in is not None:
        return _named(read_cache(spark, plan.metadata_in, plan=plan))
    if aside is None:
        return _named(copy_table(spark, None, plan=plan, only=_needed(plan)))
    if plan.metadata_out is None:
        return _belonging(spark, _named(copy_table(spark, aside, plan=plan, only=_needed(plan))))
    with cache_folder(plan.metadata_out, overwrite=plan.overwrite) as output:
        copied = _belonging(spark, _named(copy_table(spark, output.aside("rows"), plan=plan, only=None)))
        found = summed_by_file(copied.rows)
        if not found:
            raise no_images(copied)
        publish_cache(output, copied, summed=found)
    written = read_cache(spark, plan.metadata_out, plan=plan)
    return replace(copied, rows=written.rows)


def _belonging(spark: SparkSession, metadata: Metadata) -> Metadata:
    """Check early that the data table has the images, before time is spent on choosing among them."""
    rows = metadata.rows.select("id", F.lit(0).alias("split"))
    check_sample(spark, rows, metadata=metadata, sizes=[rows.count()])
    return metadata


def check_sample(
    spark: SparkSession, rows: DataFrame, *, metadata: Metadata, sizes: Sequence[int], is_cached: bool = False
) -> list[str]:
    """Look up a sample of the ids of ``split, id`` in the data table; a warning if that was not possible. A cache can
    be used without access to its Cassandra. Raises `TableError` if an image is missing, `UnreachableError` if Cassandra
    does not answer and the metadata is not cached.
    """
    data = metadata.data_table
    try:
        with Control.from_spark(spark) as control:
            if is_cached and control.columns(data) is None:
                return [f"not checked that {data} has these images: Cassandra at {control.cluster} has no such table"]
            ids = [bytes(row["id"]) for row in rows.transform(draw_ids, sizes=sizes).collect()]
            if is_cached:
                ids = [*{*ids, *_removed(spark, control, rows, metadata=metadata)}]
            check_pictures(control, ids, data=data, metadata=metadata.metadata_table, columns=metadata.columns)
            return []
    except UnreachableError as error:
        if not is_cached:
            raise
        return [f"not checked that {data} has these images: Cassandra does not answer. {error}"]


def _removed(spark: SparkSession, control: Control, rows: DataFrame, *, metadata: Metadata) -> list[bytes]:
    """Ids of images that were removed from the table at some time, if there are any: a cache may still have them."""
    removed = MetadataTable.open(spark, control, metadata.metadata_table).removals()
    if removed is None:
        return []
    found = rows.select("id").join(removed, on="id", how="left_semi")
    return [bytes(row["id"]) for row in found.distinct().limit(_REMOVED).collect()]


def _needed(plan: SplitPlan) -> list[str] | None:
    """The columns other than id and label that a plan may use; None if a condition may use any."""
    if plan.where:
        return None
    watched = WATCHED.values() if plan.has_leak_check else ()
    return [*plan.named_columns, *watched, LABELS]


def _named(metadata: Metadata) -> Metadata:
    """Add the class names from the rows if the tables have no list of classes."""
    if metadata.class_names or metadata.label_type != "int" or CLASS_NAME not in metadata.rows.columns:
        return metadata
    found = metadata.rows.transform(name_labels).collect()
    return replace(metadata, class_names={row["label"]: row["name"] for row in found if row["label"] is not None})


def checked(metadata: Metadata) -> Metadata:
    """Compare a cache with its manifest in a pass over its rows. Raises `TableError`."""
    if metadata.cache is None:
        return metadata
    check_sums(metadata, metadata.cache, metadata.rows.agg(*sums()).collect())
    return replace(metadata, cache=None)


def check_sums(metadata: Metadata, wanted: CacheManifest, summed: Sequence[Row]) -> None:
    """Raise `TableError` if the rows of a cache were changed, or an id occurs twice. ``summed`` has
    `etl.splits.metadata.sums` of parts of the rows, which together are all rows. Rows written to a cache have no id
    twice: the table's key is the id, or repeated ids were counted.
    """
    parts = [row.asDict() for row in summed]
    rows = sum(part["rows"] for part in parts)
    if (rows, rows_fingerprint(rows=rows, sums=added_up(parts))) == (wanted.rows, wanted.fingerprint):
        return
    repeated = count_repeated(metadata.rows)
    found = f"{repeated:,} ids that occur more than once" if repeated else f"{rows:,} rows with other contents"
    raise TableError(
        f"Wanted the {wanted.rows:,} rows that were written to the metadata cache of {metadata.metadata_table}, each "
        f"id once. Found: {found}. Make a new cache with --metadata-ofn."
    )
