"""The batches of a split: from the steps of its plan to ids, and from what was read to `Batch`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.batch import Batch
from loader.order.schedule import Step
from loader.prefetch.batcher import Batcher, Filled, InOrder, OutOfOrder, Sample
from loader.prefetch.engine import Engine
from loader.prefetch.split_features import gathered
from loader.splits import Split

_REORDER = 4096  # how far, in samples of a rank, one may overtake another out of order


def batcher_of(
    split: Split, *, batch_size: int, is_padded: bool = False, in_order: bool = True
) -> Callable[[Iterator[Step]], Batcher]:
    """A function that makes the batcher of an epoch of its steps."""

    def begin(steps: Iterator[Step]) -> Batcher:
        ids = split.ids.__getitem__
        if in_order:
            return InOrder(steps, ids, batch_size=batch_size, is_padded=is_padded)
        return OutOfOrder(steps, ids, batch_size=batch_size, is_padded=is_padded, reorder=_REORDER)

    return begin


def steps_of(rows: int, *, batch_size: int) -> Iterator[Step]:
    """All positions of a split in their order, cut into batches."""
    for number, start in enumerate(range(0, rows, batch_size)):
        yield Step.plain(number, np.arange(start, min(start + batch_size, rows), dtype=np.int64))


def read_batch(
    engine: Engine,
    split: Split,
    positions: NDArray[np.int64],
    *,
    features: Mapping[str, NDArray[Any]] | None = None,
) -> Batch:
    """The images at some positions of a split, read in parallel. Raises what reading raises."""
    stream = engine.stream(iter([iter([Step.plain(0, positions)])]))
    try:
        filled = stream.take()
    finally:
        stream.close()
    assert filled is not None
    return batch_of(filled, 0, split=split, features=features)


def batch_of(
    filled: Filled,
    epoch: int,
    /,
    *,
    split: Split,
    metadata: Sequence[str] = (),
    features: Mapping[str, NDArray[Any]] | None = None,
) -> Batch:
    """The `Batch` of what was read, with the split's labels and the features at the samples' positions."""
    samples: list[Sample] = filled.samples
    positions = np.array([one.position for one in samples], dtype=np.int64)
    labels = np.empty(0, dtype=np.int32)
    if split.labels is not None:
        labels = split.labels[positions]
    elif split.label_type == "int":
        labels = np.array([one.label for one in samples], dtype=np.int32)
    return Batch(
        images=[one.image for one in samples],
        labels=labels,
        ids=np.frombuffer(b"".join([one.id for one in samples]), dtype=np.uint8).reshape(-1, 16),
        positions=positions,
        places=np.array([one.place for one in samples], dtype=np.int64),
        epoch=epoch,
        step=filled.number,
        repeats=filled.repeats,
        label_blobs=[one.label for one in samples if isinstance(one.label, bytes)],
        metadata={name: [one.metadata[place] for one in samples] for place, name in enumerate(metadata)},
        features=gathered(features or {}, positions),
    )
