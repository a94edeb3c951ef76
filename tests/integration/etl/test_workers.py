"""Generators over batches and items in Spark's Python workers."""

import gc
import os
import sys
from collections.abc import Iterable, Iterator
from zipimport import zipimporter

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from etl.workers import map_batches, map_items

# Executors cannot import the tests, so tasks carry what they need of this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def _tell(items: Iterable[tuple[int, bytes, str | None]]) -> Iterator[pa.RecordBatch]:
    rows = [f"{number} {name!r} {reason}" for number, name, reason in items]
    yield pa.record_batch([rows, [len(rows)] * len(rows)], names=["row", "together"])


@pytest.mark.parametrize("count", [1, 3, 100])
def test_each_item_is_mapped_once_in_a_task_with_its_neighbours(spark: SparkSession, count: int) -> None:
    items = [(number, b"\xff%d" % number, None if number % 2 else "odd") for number in range(count)]
    rows = map_items(spark, items, task=_tell, schema="row STRING, together LONG").collect()
    assert [row.row for row in rows] == [f"{number} {name!r} {reason}" for number, name, reason in items]
    tasks = min(count, 4 * spark.sparkContext.defaultParallelism)
    assert {row.together for row in rows} <= {count // tasks, -(-count // tasks)}


def test_mapping_no_items_gives_no_rows(spark: SparkSession) -> None:
    assert map_items(spark, [], task=_tell, schema="row STRING, together LONG").collect() == []


def _see(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    archives = [place for place, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
    looked_at = len(gc.get_objects())  # of objects that are not frozen
    for _ in batches:
        row = [[os.getpid()], [len(archives)], [gc.get_freeze_count()], [looked_at]]
        yield pa.record_batch(row, names=["pid", "old", "frozen", "looked_at"])


def test_a_reused_worker_starts_its_next_task_without_open_archives(spark: SparkSession) -> None:
    one = spark.range(0, 1, 1, 1)
    schema = "pid LONG, old LONG, frozen LONG, looked_at LONG"
    runs = [map_batches(one, task=_see, schema=schema).collect()[0] for _ in range(12)]
    again = [row for n, row in enumerate(runs) if row.pid in {before.pid for before in runs[:n]}]
    assert again  # workers are reused
    assert {row.old for row in again} == {0}
    assert all(row.frozen > 10 * row.looked_at for row in runs)
    frozen = {row.pid: row.frozen for row in reversed(again)}  # at the first of these tasks
    counts = [(row.pid, row.frozen) for row in again]
    # Memory must not grow from task to task; what earlier tests left may be freed.
    assert all(row.frozen <= frozen[row.pid] for row in again), counts
