"""What a source delivers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from loader.prefetch.batcher import Filled
from loader.splits import Split


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One rank's samples of one step, in the order of the epoch.

    ``images``: the ``b`` files' bytes, as they were ingested; ``labels``: int32 ``(b,)``, or ``(0,)`` without class
    numbers; ``label_blobs``: the bytes of the ``b`` masks or arrays of a split that has these, else none; ``ids``:
    uint8 ``(b, 16)``, big-endian UUIDs; ``positions``: int64 ``(b,)``, where the samples stand in the split;
    ``metadata``: the ``b`` values of each column that was asked for. ``step`` counts the epoch's batches from 0, the
    same on all ranks. The last ``repeats`` samples repeat the one before them, so that the batch is whole.
    """

    images: list[bytes] = field(repr=False)
    labels: NDArray[np.int32] = field(repr=False)
    ids: NDArray[np.uint8] = field(repr=False)
    positions: NDArray[np.int64] = field(repr=False)
    epoch: int
    step: int
    repeats: int = 0
    label_blobs: list[bytes] = field(default_factory=list, repr=False)
    metadata: Mapping[str, list[Any]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A sample that was done without, and why: its image or metadata are not there, or it is no picture."""

    id: UUID
    position: int
    epoch: int
    reason: str


def batch_of(filled: Filled, epoch: int, split: Split, metadata: Sequence[str]) -> Batch:
    """What has been read for a batch, with labels as the split has them."""
    samples = filled.samples
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
        epoch=epoch,
        step=filled.number,
        repeats=filled.repeats,
        label_blobs=[one.label for one in samples if isinstance(one.label, bytes)],
        metadata={name: [one.metadata[place] for one in samples] for place, name in enumerate(metadata)},
    )
