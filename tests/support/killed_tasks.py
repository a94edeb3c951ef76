"""Tasks that are killed with -9 right before a write to Cassandra."""

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from etl.cassandra.task_sessions import TaskSession
from etl.workers import Task


def run_until_write(batches: Iterable[pa.RecordBatch], *, task: Task) -> Iterator[pa.RecordBatch]:
    """In place of `etl.workers._run`: kill this worker before the first write of its task, if it has one."""
    with patch.object(TaskSession, "write", _killed):
        yield from task(batches)


async def _killed(_: TaskSession, rows: Sequence[Any], *, about: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
