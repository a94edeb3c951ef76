"""How a task runs its generator."""

import gc
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

from etl.workers import _run


def _pass(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def test_imports_of_a_task_are_frozen_when_it_ends_also_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def importing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        monkeypatch.setitem(sys.modules, "imported.by.a.task", sys)
        raise KeyError("no")
        yield

    batch = pa.record_batch([[1]], names=["id"])
    try:
        list(_run([batch], task=_pass))
        before = gc.get_freeze_count()
        garbage: list[list[int]] = [[] for _ in range(1000)]
        with suppress(KeyError):
            list(_run([batch], task=importing))
        assert gc.get_freeze_count() > before + len(garbage) // 2
        before = gc.get_freeze_count()
        list(_run([batch], task=_pass))
        assert gc.get_freeze_count() <= before
    finally:
        gc.unfreeze()
