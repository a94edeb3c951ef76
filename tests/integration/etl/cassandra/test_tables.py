"""Tables as DataFrames, while they change."""

from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.cassandra.tables import append_rows, read_table
from schemas import TableName
from schemas.tables import Replication, create_keyspace


def test_a_column_can_be_read_and_written_as_soon_as_it_is_added(
    spark: SparkSession, control: Control, keyspace: str
) -> None:
    table = TableName(keyspace, "some")
    control.define(create_keyspace(keyspace, Replication.parse("1")))
    control.define(f"CREATE TABLE {table.quoted} (id int PRIMARY KEY)")
    assert read_table(spark, table, columns=["id"]).collect() == []  # the connector knows the table now
    control.define(f"ALTER TABLE {table.quoted} ADD since int")
    assert read_table(spark, table, columns=["id", "since"]).collect() == []
    control.define(f"ALTER TABLE {table.quoted} ADD until int")
    append_rows(spark.createDataFrame([(1, 2)], "id int, until int"), table=table)
    assert [tuple(row) for row in read_table(spark, table, columns=["id", "until"]).collect()] == [(1, 2)]
