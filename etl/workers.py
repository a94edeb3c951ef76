"""How our tasks run in Spark's Python workers."""

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
    """Run a generator over the Arrow batches of each partition, in Python; ``schema`` is that of its own batches."""
    return frame.mapInArrow(partial(_run, task=task), schema)


def map_items(spark: SparkSession, items: Sequence[Any], *, task: Task, schema: str) -> DataFrame:
    """Run a generator over things that the driver knows, in a few tasks for each core; neighbours stay together.

    The items travel with the task. A DataFrame of them would be made by Python workers of another kind, which take
    seconds to start.
    """
    tasks = max(1, min(len(items), _TASKS_PER_CORE * spark.sparkContext.defaultParallelism))
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
    """Keep the collector of garbage from modules, which are none.

    Spark has all of a worker's objects looked through behind each task: 0.1 to 0.2 s of CPU, more than small tasks
    take. What is frozen is never looked at again, so this is done only where something was imported.
    """
    global _frozen
    if len(sys.modules) > _frozen:
        _frozen = len(sys.modules)
        gc.freeze()


def _forget_archives() -> None:
    """Forget in which archives this process looked for modules; imports learn them anew.

    Spark puts archives on the path of its workers, its own jar of thousands of files among them, and lets Python read
    the directories of all that it remembers at the start of each task: 0.1 to 0.2 s of CPU, more than small tasks take.
    """
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(place, None)
