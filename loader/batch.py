"""What a source delivers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from loader.errors import require

if TYPE_CHECKING:
    import PIL.Image


@dataclass(frozen=True, slots=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        size = sum(map(len, self.images)) / 1e6
        parts = [f"{len(self)} images of {size:,.1f} MB"]
        if len(self.labels):
            parts.append(f"{len(np.unique(self.labels))} classes")
        if self.label_blobs:
            parts.append(f"{len(self.label_blobs)} masks or arrays")
        parts += [f"metadata {', '.join(self.metadata)}"] if self.metadata else []
        parts += [f"epoch={self.epoch}, step={self.step}"]
        parts += [f"repeats={self.repeats}"] if self.repeats else []
        return f"{type(self).__name__}({', '.join(parts)})"

    def show(self, class_names: Mapping[int, str] | None = None, *, count: int = 16) -> "PIL.Image.Image":
        """Show the first images on one picture, as `Split.show` does.

        Args:
            class_names: Names by class number, as ``split.class_names``; without them, numbers are shown.
            count: How many images, at most 64.

        Returns:
            A ``PIL.Image.Image``, which a notebook shows.

        Raises:
            OptionError: ``count`` is above 64.
            MissingExtraError: Pillow is not installed.
        """
        require("PIL", extra="train", purpose="show()")
        from loader.adapters.contact_sheet import sheet_of_batch

        return sheet_of_batch(self, class_names or {}, count)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A sample that was done without, and why: its image or metadata are not there, or it is no picture."""

    id: UUID
    position: int
    epoch: int
    reason: str
