"""Many rows of a table, deleted by their keys."""

import uuid

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.cassandra.deletions import delete_rows
from etl.cassandra.tables import append_rows, read_table, uuid_text
from etl.errors import UnreachableError
from formats.retries import Retries
from schemas import TableName
from schemas.tables import Replication, create_keyspace, create_vector_index, create_vectors

ROWS, LEFT = 3_000, 5


def test_vectors_are_deleted_while_they_have_an_index(spark: SparkSession, control: Control, keyspace: str) -> None:
    table = TableName(keyspace, "vectors")
    control.define(create_keyspace(keyspace, Replication.parse("1")))
    control.define(create_vectors(table, 2))
    key = uuid_text(F.substring(F.unhex(F.sha2(F.col("number").cast("string"), 256)), 1, 16))
    numbers = spark.range(ROWS).withColumnRenamed("id", "number")
    keyed = numbers.select("number", key.alias("id"))
    vector = F.array(F.cos("number").cast("float"), F.sin("number").cast("float"))
    append_rows(keyed.select("id", F.lit(b"").alias("sha256"), vector.alias("vector")), table=table)
    control.define(create_vector_index(table))
    query = f"SELECT id FROM {table.quoted} ORDER BY vector ANN OF ? LIMIT {LEFT}"
    Retries(seconds=60.0).run(lambda: control.execute(query, ([1.0, 0.0],)), (UnreachableError,))  # until it is built
    delete_rows(keyed.where(F.col("number") >= LEFT).select("id"), table=table, cluster=control.located)
    wanted = {row.id for row in keyed.where(F.col("number") < LEFT).collect()}
    assert {row.id for row in read_table(spark, table, columns=["id"]).collect()} == wanted
    assert {str(row.id) for row in control.execute(query, ([1.0, 0.0],))} == wanted


def test_rows_are_deleted_by_several_columns_unless_they_were_written_later(
    spark: SparkSession, control: Control, keyspace: str
) -> None:
    table, clock = TableName(keyspace, "some"), 1_000_000
    control.define(create_keyspace(keyspace, Replication.parse("1")))
    control.define(f"CREATE TABLE {table.quoted} (run timeuuid, path text, n int, PRIMARY KEY ((run), path))")
    run = uuid.uuid1()
    insert = f"INSERT INTO {table.quoted} (run, path, n) VALUES (?, ?, 1) USING TIMESTAMP ?"
    for path, written in {"a": clock, "b": clock + 1, "c": clock}.items():
        control.execute(insert, (run, path, written))
    keys = spark.createDataFrame([(str(run), "a"), (str(run), "b")], "run STRING, path STRING")
    delete_rows(keys, table=table, cluster=control.located, clock=clock)
    assert [row.path for row in control.execute(f"SELECT path FROM {table.quoted}")] == ["b", "c"]
