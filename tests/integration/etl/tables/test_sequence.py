"""Write times of whole tables in a real Cassandra."""

import uuid

import pytest

from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.errors import TableError
from etl.tables.sequence import latest_write
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import TableName


def test_the_latest_write_to_a_column_is_found_wherever_its_row_is(cassandra: Cassandra, keyspace: str) -> None:
    table = TableName(keyspace, "metadata")
    with Control(Cluster(tuple(cassandra.hosts), cassandra.port)) as control:
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        control.define(f"CREATE KEYSPACE {keyspace} WITH replication = {replication}")
        control.define(f"CREATE TABLE {keyspace}.metadata (id uuid PRIMARY KEY, path text, label int)")
        assert latest_write(control, table, key="id", column="path") == 0
        write = f"INSERT INTO {keyspace}.metadata (id, path) VALUES (?, ?) USING TIMESTAMP ?"
        images = [uuid.uuid5(uuid.NAMESPACE_URL, str(number)) for number in range(300)]
        for number, image in enumerate(images):
            control.execute(write, (image, "a", 1_000 + number))
        control.execute(f"UPDATE {keyspace}.metadata USING TIMESTAMP ? SET label = 1 WHERE id = ?", (9_999, images[0]))
        assert latest_write(control, table, key="id", column="path") == 1_299
        with pytest.raises(TableError, match="nothing"):
            latest_write(control, table, key="id", column="nothing")
