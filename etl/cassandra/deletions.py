"""Deletion of many rows of a table by their keys, by tasks on executors."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.cassandra.cluster import Cluster
from etl.cassandra.task_sessions import gathered, task_session
from etl.workers import map_batches
from schemas import TableName
from schemas.tables import check_column


def delete_rows(keys: DataFrame, /, *, table: TableName, cluster: Cluster, clock: int | None = None) -> None:
    """Delete the rows with these keys, columns of the table's primary key, uuids as text: at ``clock`` (microseconds),
    so that later writes stay, or at each machine's time. Runs Spark, within `secrets_on_executors`.
    """
    where = " AND ".join(f'"{check_column(name)}" = ?' for name in keys.columns)
    at = "" if clock is None else f" USING TIMESTAMP {int(clock)}"
    task = partial(_delete_batches, query=f"DELETE FROM {table.quoted}{at} WHERE {where}", table=table, cluster=cluster)
    map_batches(keys, task=task, schema="rows BIGINT").agg(F.sum("rows")).collect()


def _delete_batches(
    batches: Iterable[pa.RecordBatch], *, query: str, table: TableName, cluster: Cluster
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keys = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        asyncio.run(_delete(keys, query, table, cluster))
        yield pa.record_batch([pa.array([len(keys)], pa.int64())], names=["rows"])


async def _delete(keys: Sequence[tuple[Any, ...]], query: str, table: TableName, cluster: Cluster) -> None:
    async with task_session(cluster) as session:
        statement = await session.prepare(query)

        async def delete(key: tuple[Any, ...]) -> None:
            await session.write([(statement, key)], about=f"the removal of {key[0]} from {table}")

        await gathered(delete, keys)
