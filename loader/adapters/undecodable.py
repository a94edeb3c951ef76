"""Images that are not pictures: the error that names one, and batches without them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any, Literal, TypeAlias
from uuid import UUID

from loader.batch import Batch, Skipped
from loader.errors import DecodeError
from loader.folder.folders import Folder
from loader.mixed.mixture import Mixture
from loader.order.delivery import Position
from loader.splits import Split

OnUndecodable: TypeAlias = Literal["raise", "skip"]

_NOTHING_TO_REPEAT = (
    "Nothing is left of the first batch, so there is nothing to fill it with. Use larger batches, or PARTIAL."
)


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
    source: Any, batch: Batch, errors: Mapping[int, Exception], *, before: Batch | None, skips: bool, reader: Position
) -> Batch | None:
    """The batch of a `Source` without the samples at the places of ``errors``, which are skipped; None if nothing is
    left. If batches are padded, its samples are repeated in turn until it is full, or those of the batch ``before``.
    Raises `DecodeError` if there are none, and without ``skips`` for the first of the errors. The ``reader`` records
    what is left out.
    """
    split, is_padded = source.split, source.last_batch_policy != "PARTIAL"
    kept = [place for place in range(len(batch)) if place not in errors]
    fresh = len([place for place in kept if place < len(batch) - batch.repeats])
    is_usable = before is not None and before.epoch == batch.epoch and len(before) > 0
    if not skips or (is_padded and not kept and not is_usable):
        advice = {} if not skips else {"advice": _NOTHING_TO_REPEAT}
        raise decode_error(split, batch, min(errors), errors[min(errors)], **advice) from errors[min(errors)]
    for place, why in errors.items():
        reader.leave_out(batch.epoch, batch.step, int(batch.positions[place]))
        if place < len(batch) - batch.repeats:
            reason = str(decode_error(split, batch, place, why))
            source.skip(Skipped(_id(batch, place), int(batch.positions[place]), batch.epoch, reason, batch.step))
    if not is_padded:
        return _taken(batch, kept) if kept else None
    if kept:
        return replace(_taken(batch, [*islice(cycle(kept), len(batch))]), repeats=len(batch) - fresh)
    assert before is not None
    again = _taken(before, [*islice(cycle(range(len(before))), len(batch))])
    return replace(again, step=batch.step, repeats=len(batch), delivered=batch.delivered)


def _taken(batch: Batch, places: Sequence[int]) -> Batch:
    """The samples at these places, in their order."""

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


def _id(batch: Batch, place: int) -> UUID:
    return UUID(bytes=batch.ids[place].tobytes())
