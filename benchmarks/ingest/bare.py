"""A bare asynchronous writer: rows that are in memory already, sent with acsylla, by a separate process.

Each picture is two requests, the metadata row when the data row is acknowledged, or one batch of both.
"""

import os

from benchmarks.harness.picture_rows import Rows, rows_below, write_bare
from etl.cassandra.cluster import Cluster

_rows: list[Rows] = []


def load(folder: str) -> tuple[int, int]:
    """Make the rows of all pictures of a folder; returns this process and their number."""
    _rows.extend(rows_below(folder))
    return os.getpid(), len(_rows)


def write_first(cluster: Cluster, pictures: int, in_flight: int, is_batch: bool) -> tuple[float, float]:
    """Write so many of the pictures; returns seconds and CPU seconds."""
    return write_bare(cluster, _rows[:pictures], in_flight=in_flight, batch=is_batch)
