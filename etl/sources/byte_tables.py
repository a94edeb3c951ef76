"""Listing of tables that contain the images: local or remote Parquet files, and Spark tables.

Rows contain the image bytes, in a column `data` after those of `ENTRIES`. The image column is binary, or a struct with
a field ``bytes`` and optionally ``path``. Rows with the same path are ambiguous: they become one rejected entry.
"""

import os
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StructType

from etl.columns import column, filled
from etl.errors import SourceError
from etl.secrets import driver_storage
from etl.sources.entries import ARROW_ENTRIES, ENTRIES, Listing
from etl.sources.labels.values import class_label_names, is_label_type, spark_label_text
from etl.sources.parquet_rows import GROUPS, NO_BYTES, NO_PATH, Columns, list_groups, opened, read_groups, unreadable
from etl.sources.plan import SourcePlan
from etl.sources.trees import local_path
from etl.workers import map_batches, map_items
from schemas.identity import NAMESPACE

DATA = ", data BINARY"
_SAMPLE_ROWS = 100


def list_parquet(spark: SparkSession, plan: SourcePlan, *, dataset: str) -> Listing:
    """List the images in a Parquet file, or in all Parquet files below a folder. Row groups are read in parallel.
    Raises `SourceError` if there are no such files or columns.
    """
    folder, files = _parquet_files(spark, plan.address)
    with opened(driver_storage(spark, folder), files[0]) as file:
        schema = file.schema_arrow
    columns = _columns({field.name: _fields(field.type) for field in schema}, plan=plan, place=plan.address)
    label = columns.label
    if label is not None and not is_label_type(kind := schema.field(label).type):
        raise SourceError(f"Wanted text or whole numbers in the column {label!r} of {plan.address}. Found: {kind}.")
    # Names of classes in the schema (a `ClassLabel` of `datasets`) replace the numbers.
    if plan.class_names != "number":
        columns = replace(columns, order=class_label_names(schema, label))
    tasks = 4 * spark.sparkContext.defaultParallelism
    groups = map_items(spark, files, task=partial(list_groups, folder=folder, column=columns.data), schema=GROUPS)
    groups = groups.repartition(tasks, "file", "number")
    read = partial(read_groups, folder=folder, columns=columns, dataset=dataset, or_split=plan.or_split.encode())
    # Without the images, sizes are means of row groups.
    bare = map_batches(groups, task=partial(read, with_data=False), schema=ENTRIES)
    entries = map_batches(groups, task=partial(read, with_data=True), schema=ENTRIES + DATA)
    # Without a path column, paths are FILE/ROW, which are unique: the file without `.parquet`, rows counted from 0.
    listing = _listing(entries, bare) if columns.path else Listing(entries=entries, bare=bare)
    return replace(listing, classes=frozenset(columns.order), order=columns.order)


def list_table(spark: SparkSession, plan: SourcePlan, *, dataset: str) -> Listing:
    """List the images in a table of the Spark catalog, whose rows have paths but no numbers. Raises `SourceError`."""
    name = plan.address
    try:
        table = spark.table(name)
    except AnalysisException as error:
        raise SourceError(f"Wanted the table {name}. Found: {str(error).splitlines()[0]}") from None
    kinds = {field.name: _fields_of_spark(field.dataType) for field in table.schema}
    columns = _columns(kinds, plan=plan, place=f"the table {name}")
    if columns.path is None:
        raise SourceError(f"Wanted --path-column for the table {name}. Found: none.")
    data = _at(columns.data)
    path = F.coalesce(_at(columns.path).cast("string").cast("binary"), F.lit(b""))
    or_split = F.lit(bytearray(plan.or_split.encode()))
    reason = F.when(F.octet_length(path) == 0, NO_PATH)
    for pattern, words in ((r"^/", "it begins at the root"), (r"(^|/)\.\.(/|$)", "it leads out of its folder")):
        reason = reason.when(path.cast("string").rlike(pattern), f"unsafe name: {words}")
    # The entries without the images have the mean size of a few.
    mean = table.limit(_SAMPLE_ROWS).agg(F.avg(F.octet_length(data))).first()
    bare = {
        "id": _number(dataset, or_split, path),
        "or_split": or_split,
        "path": path,
        "place": F.lit(bytearray(f"table:{name}".encode())),
        "bytes": F.lit(int(mean[0] or 0) if mean else 0),
        "reason": reason,
    }
    if columns.label is not None:
        bare["or_label"] = spark_label_text(_at(columns.label), table.schema[columns.label].dataType)
    if columns.group is not None:
        bare["group_id"] = _at(columns.group)
    size, why = F.coalesce(F.octet_length(data), F.lit(0)), F.coalesce(reason, F.when(data.isNull(), NO_BYTES))
    whole = {**bare, "bytes": size, "reason": why, "data": data}
    return _listing(table.select(*filled(ENTRIES + DATA, whole)), table.select(*filled(ENTRIES, bare)))


def _listing(entries: DataFrame, bare: DataFrame) -> Listing:
    """Make ids unique: rows with the same id become one rejected entry."""
    others = [name for name in ARROW_ENTRIES.names if name not in ("id", "bytes", "reason")]
    shared = (
        bare.groupBy("id")
        .agg(F.count("*").alias("rows"), F.min(F.struct(*others)).alias("one"))
        .where(F.col("rows") > 1)
    )
    reason = F.concat(F.lit("several rows of this path: "), F.col("rows").cast("string")).alias("reason")
    none = F.lit(0).cast("long").alias("bytes")
    told = shared.select("id", *(F.col(f"one.{name}").alias(name) for name in others), none, reason)

    def once(rows: DataFrame) -> DataFrame:
        alone = rows.join(F.broadcast(shared.select("id")), on="id", how="left_anti")
        return alone.unionByName(told, allowMissingColumns=True)

    return Listing(entries=once(entries).select(*entries.columns), bare=once(bare).select(*bare.columns))


def _number(dataset: str, or_split: Column, path: Column) -> Column:
    """`image_id` as a Spark expression: SHA-1 with the bits of version and variant, 16 bytes."""
    start = bytearray(NAMESPACE.bytes + dataset.encode() + b"\0")
    hashed = F.sha1(F.concat(F.lit(start), or_split, F.lit(bytearray(1)), path))
    variant = F.translate(F.substring(hashed, 17, 1), "0123456789abcdef", "89ab" * 4)
    parts = (F.substring(hashed, 1, 12), F.lit("5"), F.substring(hashed, 14, 3), variant, F.substring(hashed, 18, 15))
    return F.unhex(F.concat(*parts))


def _at(name: str) -> Column:
    whole, _, field = name.partition("\0")
    found = column(whole)
    return found.getField(field) if field else found


def _fields(kind: pa.DataType) -> set[str] | None:
    if pa.types.is_struct(kind):
        return {kind.field(number).name for number in range(kind.num_fields)}
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return {"binary"} if is_bytes else None


def _fields_of_spark(kind: DataType) -> set[str] | None:
    if isinstance(kind, StructType):
        return set(kind.names)
    return {"binary"} if isinstance(kind, BinaryType) else None


def _columns(found: dict[str, set[str] | None], *, plan: SourcePlan, place: str) -> Columns:
    """Check the columns. ``found`` has the fields of structs, ``{"binary"}`` for bytes, and None for other columns."""
    path, data, group = plan.path_column, plan.image_column or "image", plan.group_column
    label = (plan.label_column or "label") if plan.label_type == "int" else None
    missing = [name for name in (path, data, label, group) if name is not None and name not in found]
    if missing:
        raise SourceError(
            f"Wanted the columns {', '.join(missing)} in {place}. Found: {', '.join(found) or 'no columns'}."
        )
    kind = found[data]
    if kind == {"binary"}:
        return Columns(data=data, path=path, label=label, group=group)
    if kind is None or "bytes" not in kind:
        raise SourceError(
            f"Wanted bytes, or a struct with a field bytes, in the column {data} of {place}. "
            f"Found: {'a struct of ' + ', '.join(sorted(kind)) if kind else 'another type'}. "
            "Set --image-column to the column with the images."
        )
    if path is None and "path" in kind:
        path = f"{data}\0path"
    return Columns(data=f"{data}\0bytes", path=path, label=label, group=group)


def _parquet_files(spark: SparkSession, address: str) -> tuple[str, list[str]]:
    """The folder, and the sorted names of its files."""
    local = local_path(address)
    place = os.fsdecode(local) if local else address.rstrip("/")
    storage = driver_storage(spark, place)
    try:
        if place.lower().endswith(".parquet") and not storage.is_folder():
            folder, _, name = place.rpartition("/")
            driver_storage(spark, folder).size(name)
            return folder, [name]
        files = sorted(
            name
            for name, _ in storage.walk()
            if name.lower().endswith(".parquet") and not any(part.startswith((".", "_")) for part in name.split("/"))
        )
    except OSError as error:
        raise SourceError(unreadable(place, error)) from None
    if not files:
        raise SourceError(f"Wanted Parquet files at {address}. Found: none.")
    return place, files
