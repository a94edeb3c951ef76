"""Metadata tables, filled directly."""

from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from schemas import Columns, TableName, image_id
from schemas.tables import Replication, create_data, create_keyspace, create_metadata


def fill(
    spark: SparkSession, keyspace: str, *, columns: Columns, labels: list[int | None], or_label: bool = True
) -> None:
    """Create a keyspace with two tables of one row per label, without real images."""
    table, data = TableName(keyspace, "metadata"), TableName(keyspace, "data")
    with Control.from_spark(spark) as control:
        control.define(create_keyspace(keyspace, Replication.parse("1")))
        control.define(create_metadata(table, columns))
        control.define(create_data(data, columns))
        insert = f'INSERT INTO {table.quoted} ("{columns.id}", "{columns.label}", or_label) VALUES (?, ?, ?)'
        for number, label in enumerate(labels):
            name = f"class {label}" if or_label else None
            row = image_id(keyspace, b"", str(number).encode())
            control.execute(insert, (row, label, name))
            control.execute(f'INSERT INTO {data.quoted} ("{columns.id}", "{columns.data}") VALUES (?, ?)', (row, b"-"))
