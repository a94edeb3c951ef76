"""A bare asynchronous writer in a separate process: it sends rows from memory with acsylla.

Each image takes two requests, the metadata row after the data row is acknowledged, or one batch of both.
"""

import os

from benchmarks.harness.picture_rows import Rows, rows_below, write_bare
from etl.cassandra.cluster import Cluster

_rows: list[Rows] = []


def load(folder: str) -> tuple[int, int]:
    """Prepare the rows of all images of a folder; return the pid of this process and the number of images."""
    _rows.extend(rows_below(folder))
    return os.getpid(), len(_rows)


def write_first(cluster: Cluster, pictures: int, in_flight: int, is_batch: bool) -> tuple[float, float]:
    """Write the first images; return seconds and CPU seconds."""
    return write_bare(cluster, _rows[:pictures], in_flight=in_flight, batch=is_batch)
