"""Distribution of listed images over the tasks that write them."""

import math
from functools import partial

from pyspark.sql import DataFrame

from etl.ingest.writing.image_writer import WriteOrder, write_images
from etl.ingest.writing.outcomes import OUTCOMES
from etl.sources.entries import ARROW_ENTRIES
from etl.workers import map_batches

# A task is the unit that is retried after a failure, and after which progress is updated.
_TASK_ROWS = 2_000
_TASK_BYTES = 256 << 20


def task_count(*, rows: int, size: int, cores: int) -> int:
    """The number of tasks for ``rows`` rows of ``size`` bytes in all: whole rounds over the cores, none too large."""
    wanted = max(1, math.ceil(rows / _TASK_ROWS), math.ceil(size / _TASK_BYTES))
    return max(1, min(rows, math.ceil(wanted / cores) * cores))


def write(entries: DataFrame, *, order: WriteOrder, tasks: int, access: str) -> DataFrame:
    """Write images in ``tasks`` tasks; the result has rows of `OUTCOMES`. ``access`` is that of their `Listing`."""
    parts = distributed(entries, tasks=tasks, access=access)
    return map_batches(parts, task=partial(write_images, order=order, in_turn=access != "random"), schema=OUTCOMES)


def distributed(entries: DataFrame, *, tasks: int, access: str) -> DataFrame:
    """Distribute images over ``tasks`` tasks that read them, in the order that ``access`` of a `Listing` asks for."""
    columns = ARROW_ENTRIES.names
    if "data" in entries.columns:
        columns = [*columns, "data"]  # bytes are not shuffled
    elif access == "random":
        entries = entries.repartition(tasks, "id").sortWithinPartitions("place", "offset")
    elif access == "sequential":
        entries = entries.repartitionByRange(tasks, "place", "offset").sortWithinPartitions("place", "offset")
    else:
        entries = entries.repartition(tasks, "place").sortWithinPartitions("place", "offset")
    return entries.select(*columns)
