"""The images of two tables or of a split, for packing."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import check_columns
from etl.cassandra.tables import read_table, uuid_bytes
from etl.errors import TableError
from etl.frames import from_pandas
from etl.tables.earlier import THEN, EarlierMetadata
from etl.tables.metadata_table import MetadataTable
from formats import open_split
from schemas import Columns, TableName
from schemas.tables import LabelType

_TEXT = ("or_split", "path", "or_label", "group_id")


@dataclass(frozen=True, slots=True)
class ChosenSplit:
    """A split to pack: its ids and labels by position, as an Arrow table, and its properties."""

    rows: pa.Table
    label_type: str
    class_names: Mapping[int, str]
    data_table: TableName
    metadata_table: TableName
    columns: Columns
    fingerprint: str
    address: str

    @classmethod
    def open(cls, address: str, index: int) -> "ChosenSplit":
        """Open one split of a split folder or dictionary. Raises `FormatsError`, `SchemaError`, `TableError`."""
        split = open_split(address)
        manifest = split.manifest
        if index >= len(manifest.splits):
            raise TableError(_no_index(address, index, len(manifest.splits)))
        rows = split.rows(index)
        if rows.labels is None:
            raise TableError(f"Wanted a split dictionary with labels at {address}. Found: one without")
        arrow = pa.table(
            {
                "id": pa.Array.from_buffers(pa.binary(16), len(rows), [None, pa.py_buffer(rows.ids.tobytes())]).cast(
                    "binary"
                ),
                "split_label": pa.array(rows.labels, pa.int32()),
                "position": pa.array(np.arange(len(rows), dtype=np.int64)),
            }
        )
        return cls(
            arrow,
            manifest.label_type,
            manifest.class_names,
            TableName.parse(manifest.data_table),
            TableName.parse(manifest.metadata_table),
            manifest.columns,
            split.part(index).fingerprint,
            split.address,
        )

    def frame(self, spark: SparkSession) -> DataFrame:
        """``id, split_label, position``."""
        return from_pandas(spark, self.rows.to_pandas(), "id BINARY, split_label INT, position BIGINT")


def table_entries(
    table: MetadataTable, *, data: TableName, kind: LabelType, earlier: EarlierMetadata | None
) -> DataFrame:
    """The images of a metadata table with the columns of `ENTRIES`, and ``label``. Their bytes are read by id. With
    ``earlier``, they are those of an earlier run, with the column ``then``. Raises `TableError` for a table without
    sizes; tables of an ingest have sizes.
    """
    columns = table.columns
    needed = [columns.id, "bytes", *([columns.label] if kind == "int" else [])]
    check_columns(table.control, table.name, columns=needed)
    more = [name for name in _TEXT if name in table.fields]
    read = [*needed, *more]
    read += [name for name in (earlier.needed if earlier else []) if name not in read]
    rows = read_table(table.spark, table.name, columns=read)
    if earlier is not None:
        rows = earlier.rows(rows)
    text = {name: F.col(name) if name in more else F.lit(None).cast("string") for name in _TEXT}
    null = F.lit(None)
    return rows.select(
        uuid_bytes(columns.id).alias("id"),
        F.encode(F.coalesce(text["or_split"], F.lit("")), "UTF-8").alias("or_split"),
        F.encode(F.coalesce(text["path"], F.lit("")), "UTF-8").alias("path"),
        text["or_label"].alias("or_label"),
        text["group_id"].alias("group_id"),
        F.encode(F.lit(str(data)), "UTF-8").alias("place"),
        null.cast("long").alias("offset"),
        F.col("bytes").cast("long").alias("bytes"),
        null.cast("binary").alias("label_place"),
        null.cast("long").alias("label_offset"),
        null.cast("long").alias("label_bytes"),
        null.cast("string").alias("reason"),
        (F.col(columns.label) if kind == "int" else null).cast("int").alias("label"),
        *([THEN] if earlier and earlier.states else []),
    )


def _no_index(address: str, index: int, splits: int) -> str:
    return f"Wanted split {index} of {os.fspath(address)}. Found: splits 0 to {splits - 1}"
