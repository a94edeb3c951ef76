"""The images of two tables or of a split, for packing."""

import os
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import check_columns
from etl.cassandra.tables import read_table, uuid_bytes
from etl.errors import TableError
from etl.frames import from_pandas
from etl.tables.earlier import THEN, EarlierMetadata
from etl.tables.metadata_table import MetadataTable
from formats import SplitRows, open_split
from formats.checksums import COLUMN as CHECKSUM
from formats.checksums import UNKNOWN
from schemas import SplitManifest, TableName
from schemas.tables import LabelType

_TEXT = ("or_split", "path", "or_label", "group_id")


@dataclass(frozen=True, slots=True)
class ChosenSplit:
    """A split to pack, with its rows."""

    rows: SplitRows
    checksums: NDArray[np.int64] | None
    manifest: SplitManifest
    data_table: TableName
    metadata_table: TableName
    fingerprint: str
    address: str

    @classmethod
    def open(cls, address: str, index: int) -> "ChosenSplit":
        """Open one split of a split folder or dictionary. Raises `FormatsError`, `SchemaError`, `TableError`."""
        split = open_split(address)
        manifest = split.manifest
        if index >= len(manifest.splits):
            found = f"splits 0 to {len(manifest.splits) - 1}"
            raise TableError(f"Wanted split {index} of {os.fspath(address)}. Found: {found}")
        rows = split.rows(index)
        if rows.labels is None:
            raise TableError(f"Wanted a split dictionary with labels at {address}. Found: one without")
        data, metadata = TableName.parse(manifest.data_table), TableName.parse(manifest.metadata_table)
        checksums = split.checksums(index)
        return cls(rows, checksums, manifest, data, metadata, split.part(index).fingerprint, split.address)

    def frame(self, spark: SparkSession) -> DataFrame:
        """``id, split_label, split_checksum, position``."""
        ids = np.ascontiguousarray(self.rows.ids).view("V16").ravel().tolist()
        checksums = np.full(len(ids), UNKNOWN) if self.checksums is None else self.checksums
        columns = {"split_label": self.rows.labels, "split_checksum": checksums, "position": np.arange(len(ids))}
        schema = "id BINARY, split_label INT, split_checksum BIGINT, position BIGINT"
        return from_pandas(spark, pd.DataFrame({"id": ids, **columns}), schema)


def table_entries(
    table: MetadataTable, *, data: TableName, kind: LabelType, earlier: EarlierMetadata | None
) -> DataFrame:
    """The images of a metadata table with the columns of `ENTRIES`, ``label`` and the checksum. Their bytes are read by
    id. With ``earlier``, they are those of an earlier run, with the column ``then``. Raises `TableError` for a table
    without sizes; tables of an ingest have sizes.
    """
    columns = table.columns
    needed = [columns.id, "bytes", *([columns.label] if kind == "int" else [])]
    check_columns(table.control, table.name, columns=needed)
    more = [name for name in _TEXT if name in table.fields]
    read = [*needed, *more, *([CHECKSUM] if table.has_checksums(data) else [])]
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
        (F.col(CHECKSUM) if CHECKSUM in read else null).cast("long").alias(CHECKSUM),
        *([THEN] if earlier and earlier.states else []),
    )
