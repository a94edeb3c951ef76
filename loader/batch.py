"""Batches, and the samples that were left out of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from loader.errors import require

if TYPE_CHECKING:
    import PIL.Image


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Batch:
    """The samples of one rank and one step, in the order of the epoch.

    Attributes:
        images: The encoded images, as they were ingested; ``b`` byte strings.
        labels: Class numbers, int32 ``(b,)``, or ``(0,)`` if the split has none.
        ids: UUIDs, uint8 ``(b, 16)``, big-endian.
        positions: Positions in the split, int64 ``(b,)``.
        places: Places in the order of the epoch, int64 ``(b,)``: a sample that comes twice in an epoch has two. With
            shards, the positions.
        epoch: The number of the epoch.
        step: The number of the batch in the epoch, from 0; the same on all ranks.
        repeats: How many samples at the end repeat other samples of the epoch, to fill the batch.
        label_blobs: The encoded masks or label arrays, if the split has them; ``b`` byte strings, or none.
        metadata: For each requested metadata column, its ``b`` values.
        features: For each requested feature, an array of its type: ``(b,)``, or float32 ``(b, N)`` for a vector.
        delivered: With ``in_order=False``, what of the epoch this rank has delivered with the batch, for states: its
            samples below the first number, without the others.
    """

    images: list[bytes] = field(repr=False)
    labels: NDArray[np.int32] = field(repr=False)
    ids: NDArray[np.uint8] = field(repr=False)
    positions: NDArray[np.int64] = field(repr=False)
    epoch: int
    step: int
    repeats: int = 0
    places: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    label_blobs: list[bytes] = field(default_factory=list, repr=False)
    metadata: Mapping[str, list[Any]] = field(default_factory=dict, repr=False)
    features: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    delivered: tuple[int, Sequence[int]] | None = field(default=None, repr=False)

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
        parts += [f"features {', '.join(self.features)}"] if self.features else []
        parts += [f"epoch={self.epoch}, step={self.step}"]
        parts += [f"repeats={self.repeats}"] if self.repeats else []
        return f"{type(self).__name__}({', '.join(parts)})"

    def show(self, count: int = 16, *, class_names: Mapping[int, str] | None = None) -> "PIL.Image.Image":
        """Show the first images on one picture, as `Split.show` does.

        Args:
            count: How many images, at most 64.
            class_names: Names by class number, as ``split.class_names``; without them, numbers are shown.

        Returns:
            A ``PIL.Image.Image``, which a notebook shows.

        Raises:
            OptionError: ``count`` is above 64, or an argument has another type.
            MissingExtraError: Pillow is not installed.
        """
        require("PIL", package="pillow", purpose="show()")
        from loader.adapters.contact_sheet import sheet_of_batch

        return sheet_of_batch(self, {} if class_names is None else class_names, count)


def taken(batch: Batch, places: Sequence[int]) -> Batch:
    """The samples of a batch at these places, in their order."""

    def of(values: Sequence[Any]) -> list[Any]:
        return [values[place] for place in places] if values else []

    return replace(
        batch,
        images=of(batch.images),
        labels=batch.labels[places] if len(batch.labels) else batch.labels,
        ids=batch.ids[places],
        positions=batch.positions[places],
        places=batch.places[places],
        label_blobs=of(batch.label_blobs),
        metadata={name: of(values) for name, values in batch.metadata.items()},
        features={name: values[places] for name, values in batch.features.items()},
    )


@dataclass(frozen=True, slots=True)
class Skipped:
    """A sample that was left out, and why: its image or metadata are missing, or it is not a picture.

    Attributes:
        id: The id of the image.
        position: Its position in the split.
        epoch: The number of the epoch.
        reason: The message of the error.
        step: The number of the batch in the epoch.
    """

    id: UUID
    position: int
    epoch: int
    reason: str
    step: int = 0
