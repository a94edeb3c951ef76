"""What a source delivers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray


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
