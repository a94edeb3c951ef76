"""Images that are not pictures: the error that names one, and batches without them."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import cycle, islice
from typing import Any, Literal, TypeAlias
from uuid import UUID

import numpy as np

from loader.batch import Batch, Skipped, taken
from loader.errors import DecodeError
from loader.folder.folders import Folder
from loader.mixed.mixture import Mixture
from loader.order.delivery import Position
from loader.splits import Split

OnUndecodable: TypeAlias = Literal["raise", "skip"]

_NOTHING_LEFT = "No image of the epoch can be decoded."


def decode_error(
    split: Split,
    batch: Batch,
    place: int,
    reason: object,
    advice: str = "Use on_undecodable='skip' to leave it out.",
) -> DecodeError:
    """The error that names an image that cannot be decoded, and its file if it has one, with the reason."""
    file, position = "", int(batch.positions[place])
    if isinstance(split, Mixture):
        (number,) = split.part_numbers(batch.positions[place : place + 1])
        position -= int(split.starts[number])
        split = split.parts[split.names[number]]
    if isinstance(split, Folder):
        file = f" from the file {os.path.join(split.address, os.fsdecode(split.paths[position]))}"
    label = f"class {batch.labels[place]}, " if len(batch.labels) else ""
    return DecodeError(
        f"Wanted a picture as image {_id(batch, place)}{file} ({label}position {batch.positions[place]}). "
        f"Found: {len(batch.images[place])} bytes that begin with {batch.images[place][:12]!r}, {reason}. {advice}"
    )


def left_out(
    source: Any,
    batch: Batch,
    errors: Mapping[int, Exception],
    *,
    skips: bool,
    reader: Position,
    is_usable: Callable[[Batch], bool],
) -> Batch | None:
    """The batch of a `Source` without the samples at the places of ``errors``, which are skipped; None if nothing is
    left. If batches are padded, its samples are repeated in turn until it is full. If nothing is left of such a batch,
    the first sample of the epoch that ``is_usable``, in a batch of its own, is repeated. Raises `DecodeError` if there
    is none, and without ``skips`` for the first of the errors. The ``reader`` records what is left out.
    """
    first = min(errors)
    if not skips:
        raise decode_error(source.split, batch, first, errors[first]) from errors[first]
    split, is_padded = source.split, source.last_batch_policy != "PARTIAL"
    kept = [place for place in range(len(batch)) if place not in errors]
    fresh = len([place for place in kept if place < len(batch) - batch.repeats])
    for place, why in errors.items():
        reader.leave_out(batch.epoch, batch.step, int(batch.positions[place]))
        if place < len(batch) - batch.repeats:
            reason = str(decode_error(split, batch, place, why))
            source.skip(Skipped(_id(batch, place), int(batch.positions[place]), batch.epoch, reason, batch.step))
    if not is_padded:
        return taken(batch, kept) if kept else None
    if kept:
        # Without what fills the batch already: it is then filled as if all that is left out had been left out at once.
        _, firsts = np.unique(batch.places[kept], return_index=True)
        own = [kept[one] for one in sorted(firsts.tolist())]
        return replace(taken(batch, [*islice(cycle(own), len(batch))]), repeats=len(batch) - fresh)
    full: Batch | None = source.refill(batch, reader=reader, is_usable=is_usable)
    if full is None:
        raise decode_error(split, batch, first, errors[first], advice=_NOTHING_LEFT) from errors[first]
    return full


def _id(batch: Batch, place: int) -> UUID:
    return UUID(bytes=batch.ids[place].tobytes())
