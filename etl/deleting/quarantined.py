"""The rows of deleted images in the quarantine table, which have their paths: of failed features and damaged files."""

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.cassandra.deletions import delete_rows
from etl.cassandra.tables import read_table
from etl.tables.metadata_table import MetadataTable, full_path
from etl.tables.sequence import Run
from etl.workers import map_batches
from schemas import TableName
from schemas.identity import ids_of_path

_ROWS = pa.schema([("id", pa.binary()), ("ingest_id", pa.string()), ("path", pa.string())])


def forget_quarantined(table: MetadataTable, ids: DataFrame, /, *, run: Run) -> None:
    """Delete the rows of the quarantine table that have paths of these images (``id`` of 16 bytes), unless they are of
    runs on another table. Do this while the images have metadata rows. Runs Spark.
    """
    control, quarantine = table.control, TableName(table.name.keyspace, "quarantine")
    if control.columns(quarantine) is None:
        return
    ingests = TableName(table.name.keyspace, "ingests").quoted
    runs = control.rows(f"SELECT table_name, ingest_id FROM {ingests}")
    others = [str(one.ingest_id) for one in runs if one.table_name != table.name.table and one.ingest_id is not None]
    rows = read_table(table.spark, quarantine, columns=["ingest_id", "path"])
    rows = rows.where(~F.col("ingest_id").isin(others))
    schema = "id BINARY, ingest_id STRING, path STRING"
    # An image that was pruned has no row any more: nothing but its id says which path it had.
    named = map_batches(rows, task=partial(_with_ids, dataset=table.dataset), schema=schema)
    found = named.join(ids, on="id", how="left_semi").drop("id")
    if "path" in table.fields:  # its ids may be those of another dataset
        paths = table.rows(["or_split", "path"]).join(ids, on="id", how="left_semi")
        paths = paths.select(full_path(F.col("or_split"), F.col("path")).alias("path"))
        found = found.unionByName(rows.join(paths, on="path", how="left_semi"))
    delete_rows(found.distinct(), table=quarantine, cluster=control.located, clock=run.last_clock)


def _with_ids(batches: Iterable[pa.RecordBatch], *, dataset: str) -> Iterator[pa.RecordBatch]:
    """The rows of a quarantine table, each with every id that an image with its path can have."""
    for batch in batches:
        rows = batch.select(["ingest_id", "path"]).to_pylist()
        found = [{"id": one.bytes, **row} for row in rows for one in ids_of_path(dataset, row["path"].encode())]
        yield pa.RecordBatch.from_pylist(found, schema=_ROWS)
