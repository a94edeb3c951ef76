"""Tables with rows but without a record: tables of earlier versions, and tables of other tools.

A table comes from an earlier version if the ids of all rows match the dataset, the split folders and the paths.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
from etl.tables.metadata_table import MetadataTable
from etl.tables.sequence import latest_write
from etl.tables.table_records import TableRecord
from etl.workers import map_batches
from schemas import Columns, image_id

OTHER_TOOLS = (
    "You cannot append to tables that other tools created. You can read and split them with cache_rows.py, split.py, "
    "shard.py and the loader, with --id-col, --label-col and --data-col."
)

_COUNTS = "rows BIGINT, foreign BIGINT, example STRING, by_name BIGINT, by_number BIGINT"
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class OldTable:
    """The contents of tables without a record, and the latest time of a write to them, in microseconds."""

    record: TableRecord
    latest_write: int


def examine(spark: SparkSession, control: Control, *, wanted: TableRecord, columns: Columns) -> OldTable:
    """Examine all rows of a metadata table without a record, in one pass of Spark. Raises `ConflictError` if an ingest
    of this dataset with these labels cannot have written them.
    """
    if control.columns(wanted.data_table) is None:
        raise ConflictError(
            f"Wanted the data table of {wanted.metadata_table}, which has rows. Found: no table {wanted.data_table}. "
            "Set --data-table to the table with their images, or use another --metadata-table."
        )
    table = MetadataTable.open(spark, control, wanted.metadata_table, columns=columns)
    found = table.label_type(wanted.data_table)
    if found != wanted.label_type:
        raise ConflictError(
            f"Wanted to ingest {wanted.content} into {wanted.pair}. Found: rows with labels of type "
            f"{found}. Use other tables, with --data-table and --metadata-table."
        )
    names = class_names(control, keyspace=wanted.metadata_table.keyspace, dataset=wanted.dataset)
    label = [columns.label] if found == "int" else []
    read = read_table(spark, wanted.metadata_table, columns=[columns.id, "or_split", "path", "or_label", *label])
    label_column = F.col(columns.label) if label else F.lit(None).cast("int")
    rows = read.select(uuid_bytes(columns.id).alias("id"), "or_split", "path", "or_label", label_column.alias("label"))
    counts = rows.transform(count_rows, dataset=wanted.dataset, names=names).collect()[0]
    if counts["foreign"]:
        raise ConflictError(
            f"Wanted rows of dataset {wanted.dataset!r} in {wanted.metadata_table}, to ingest more into it. "
            f"Found: the ids of {counts['foreign']:,} of {counts['rows']:,} rows do not match this dataset and "
            f"their paths, such as {counts['example']}. If they belong to another dataset, set --dataset; otherwise "
            f"use other tables, with --data-table and --metadata-table. {OTHER_TOOLS}"
        )
    record = wanted
    if found == "int":
        if counts["by_name"] and counts["by_number"]:
            raise ConflictError(
                f"Wanted labels in {wanted.metadata_table} that are class numbers of {wanted.dataset!r}, or the "
                f"class names themselves. Found: {counts['by_name']:,} of {counts['rows']:,} rows differ from the "
                f"numbers in {wanted.metadata_table.keyspace}.classes, and {counts['by_number']:,} from their names. "
                "Ingest the images into other tables, with --data-table and --metadata-table."
            )
        record = replace(wanted, numbering="number" if counts["by_name"] else "name")
    return OldTable(record, latest_write(control, wanted.metadata_table, key=columns.id, column="path"))


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


def is_id_of(image: bytes, /, *, dataset: str, or_split: str, path: str) -> bool:
    """Whether an id matches a dataset, a split folder and a path as in the text columns."""
    # An escape (\xff) is a byte that is not UTF-8, or part of the name.
    readings = [(name, _ESCAPE.sub(_byte, name)) for name in (or_split.encode(), path.encode())]
    return any(image == image_id(dataset, split, name).bytes for split in readings[0] for name in readings[1])


def _byte(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 16)])
