"""The rows of deleted images in the quarantine table, which have their paths: of failed features and damaged files."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.cassandra.deletions import delete_rows
from etl.cassandra.tables import read_table
from etl.tables.metadata_table import MetadataTable, full_path
from etl.tables.sequence import Run
from schemas import TableName


def forget_quarantined(table: MetadataTable, ids: DataFrame, /, *, run: Run) -> None:
    """Delete the rows of the quarantine table that have paths of these images (``id`` of 16 bytes), unless they are of
    runs on another table. Only while the images have metadata rows: nothing else knows their paths. Runs Spark.
    """
    control, quarantine = table.control, TableName(table.name.keyspace, "quarantine")
    if control.columns(quarantine) is None or "path" not in table.fields:
        return
    ingests = TableName(table.name.keyspace, "ingests").quoted
    runs = control.rows(f"SELECT table_name, ingest_id FROM {ingests}")
    others = [str(one.ingest_id) for one in runs if one.table_name != table.name.table and one.ingest_id is not None]
    paths = table.rows(["or_split", "path"]).join(ids, on="id", how="left_semi")
    paths = paths.select(full_path(F.col("or_split"), F.col("path")).alias("path"))
    rows = read_table(table.spark, quarantine, columns=["ingest_id", "path"])
    found = rows.where(~F.col("ingest_id").isin(others)).join(paths, on="path", how="left_semi")
    delete_rows(found, table=quarantine, cluster=control.located, clock=run.last_clock)
