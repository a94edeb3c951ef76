"""Tasks in Spark's Python workers."""

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

Task = Callable[[Iterable[Any]], Iterator[pa.RecordBatch]]

_TASKS_PER_CORE = 4


def map_batches(frame: DataFrame, *, task: Task, schema: str) -> DataFrame:
    """Run a generator over the Arrow batches of each partition, in Python. ``schema`` is that of its output."""
    return frame.mapInArrow(partial(_run, task=task), schema)


def map_items(spark: SparkSession, items: Sequence[Any], *, task: Task, schema: str) -> DataFrame:
    """Run a generator over items from the driver, in a few tasks per core. Neighbors stay together."""
    tasks = max(1, min(len(items), _TASKS_PER_CORE * spark.sparkContext.defaultParallelism))
    # The items are sent with the task. A DataFrame of them would need a different kind of Python worker, which takes
    # seconds to start.
    numbers = spark.range(0, len(items), 1, tasks)
    return map_batches(numbers, task=partial(_of_items, items=list(items), task=task), schema=schema)


def _of_items(batches: Iterable[pa.RecordBatch], *, items: Sequence[Any], task: Task) -> Iterator[pa.RecordBatch]:
    return task(items[number] for batch in batches for number in batch.column(0).to_pylist())


def _run(batches: Iterable[pa.RecordBatch], *, task: Task) -> Iterator[pa.RecordBatch]:
    _freeze_modules()
    try:
        yield from task(batches)
    finally:
        _freeze_modules()
        _forget_archives()


_frozen = 0


def _freeze_modules() -> None:
    """Exclude modules from garbage collection, which takes more CPU than small tasks."""
    global _frozen
    # Spark runs a full collection in the worker after each task: 0.1 to 0.2 s of CPU. Frozen objects are never
    # collected, so this is done only after something was imported.
    if len(sys.modules) > _frozen:
        _frozen = len(sys.modules)
        gc.freeze()


def _forget_archives() -> None:
    """Clear the cache of archives in which this process looked for modules. Imports fill it again."""
    # Spark puts archives on the path of its workers, including its jar of thousands of files, and makes Python read the
    # directories of all cached ones at the start of each task: 0.1 to 0.2 s of CPU, more than small tasks take.
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(place, None)
