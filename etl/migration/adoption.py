"""What tables hold that no ingest has recorded: those of earlier versions, and those restored from a backup.

Their dataset is known if the ids of all rows match it, the split folders and the paths.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.batches import arrow_schema, batch_of, rows_of
from etl.cassandra.control import Control
from etl.cassandra.tables import read_table, uuid_bytes
from etl.errors import ConflictError
from etl.sources.labels.values import number_of
from etl.tables.class_numbers import class_names
from etl.tables.table_records import TableRecord
from etl.workers import map_batches
from schemas import Columns
from schemas.identity import is_id_of

_COUNTS = "rows BIGINT, foreign BIGINT, example STRING, by_name BIGINT, by_number BIGINT"
_SAMPLE = 100


def examined(spark: SparkSession, control: Control, *, wanted: TableRecord, columns: Columns) -> TableRecord:
    """The record of tables without one, with the numbering of its classes, from one pass of Spark over the metadata.
    Raises `ConflictError` if no ingest of this dataset can have written them.
    """
    _check_images(control, wanted=wanted, columns=columns)
    names = class_names(control, keyspace=wanted.metadata_table.keyspace, dataset=wanted.dataset)
    has_classes = wanted.label_type == "int"
    label = [columns.label] if has_classes else []
    read = read_table(spark, wanted.metadata_table, columns=[columns.id, "or_split", "path", "or_label", *label])
    label_column = F.col(columns.label) if label else F.lit(None).cast("int")
    rows = read.select(uuid_bytes(columns.id).alias("id"), "or_split", "path", "or_label", label_column.alias("label"))
    counts = rows.transform(count_rows, dataset=wanted.dataset, names=names).collect()[0]
    if counts["foreign"]:
        raise ConflictError(
            f"Wanted rows of dataset {wanted.dataset!r} in {wanted.metadata_table}. Found: the ids of "
            f"{counts['foreign']:,} of {counts['rows']:,} rows do not match this dataset and their paths, such as "
            f"{counts['example']}. If they belong to another dataset, set --dataset. Tables of other tools stay as "
            "they are. Nothing was changed."
        )
    if not has_classes:
        return wanted
    if counts["by_name"] and counts["by_number"]:
        raise ConflictError(
            f"Wanted labels in {wanted.metadata_table} that are class numbers of {wanted.dataset!r}, or the class "
            f"names themselves. Found: {counts['by_name']:,} of {counts['rows']:,} rows differ from the numbers in "
            f"{wanted.metadata_table.keyspace}.classes, and {counts['by_number']:,} from their names. Ingest the "
            "images into other tables, with --data-table and --metadata-table. Nothing was changed."
        )
    return replace(wanted, numbering="number" if counts["by_name"] else "name")


def _check_images(control: Control, *, wanted: TableRecord, columns: Columns) -> None:
    """Raise `ConflictError` if the data table has none of the first images of the metadata table."""
    first = control.execute(f'SELECT "{columns.id}" AS id FROM {wanted.metadata_table.quoted} LIMIT {_SAMPLE}')
    query = f'SELECT "{columns.id}" FROM {wanted.data_table.quoted} WHERE "{columns.id}" = ?'
    if first and not any(control.execute_all(query, [(row.id,) for row in first])):
        raise ConflictError(
            f"Wanted the data table of {wanted.metadata_table}. Found: {wanted.data_table} has none of its first "
            f"{len(first)} images. Name their table with -d. Nothing was changed."
        )


def count_rows(rows: DataFrame, /, *, dataset: str, names: Mapping[str, int]) -> DataFrame:
    """Count rows in one row: all, those that are ``foreign`` (their ids do not match dataset, split and path), and
    those whose labels are not the numbers of ``names`` (``by_name``) or not their class names (``by_number``).
    """
    counted = map_batches(rows, task=partial(_count_batches, dataset=dataset, names=dict(names)), schema=_COUNTS)
    sums = [F.sum(name).alias(name) for name in ("rows", "foreign", "by_name", "by_number")]
    return counted.agg(*sums, F.min("example").alias("example"))


def _count_batches(
    batches: Iterable[pa.RecordBatch], *, dataset: str, names: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            yield batch_of([_count(rows_of([batch]), dataset, names)], arrow_schema(_COUNTS))


def _count(rows: Iterable[tuple[Any, ...]], dataset: str, names: Mapping[str, int]) -> tuple[Any, ...]:
    count = foreign = by_name = by_number = 0
    example = None
    for image, or_split, path, or_label, label in rows:
        count += 1
        if path is None or not is_id_of(image, dataset=dataset, or_split=or_split or "", path=path):
            foreign += 1
            example = example or ("a row without a path" if path is None else ascii(path))
        by_name += label is None or names.get(or_label) != label
        by_number += label is None or number_of(or_label or "") != label
    return count, foreign, example, by_name, by_number
