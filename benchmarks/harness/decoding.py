"""DALI's own reader of files, in the graph that `loader.ClassificationIterator` has for training."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from loader.adapters.iterators import classification


def read_files(
    names: Sequence[str], labels: Sequence[int], *, batch_size: int, size: int, threads: int
) -> Iterator[tuple[Any, Any]]:
    """Decoded batches and their labels without end, from the page cache."""
    fn, pipelines = (import_module(f"nvidia.dali.{name}") for name in ("fn", "pipeline"))
    for name in set(names):
        Path(name).read_bytes()  # into the page cache
    pipeline = pipelines.Pipeline(
        batch_size=batch_size, num_threads=threads, device_id=None, seed=1, prefetch_queue_depth=2, exec_dynamic=True
    )
    with pipeline:
        pictures, numbers = fn.readers.file(files=list(names), labels=list(labels), random_shuffle=True)
        pipeline.set_outputs(*classification(pictures, numbers, size=size, train=True))
    pipeline.build()

    def outputs() -> Iterator[tuple[Any, Any]]:
        while True:
            yield tuple(np.from_dlpack(found.as_tensor()) for found in pipeline.run())  # type: ignore[misc]

    return outputs()
