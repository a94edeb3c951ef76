"""Preparation of an image before it is written. It runs in the threads of a writing task."""

import hashlib
from dataclasses import dataclass, field
from typing import NamedTuple

from etl.pictures.images import Header, RejectedError, disagrees, read_header
from etl.pictures.masks import upright_mask
from etl.pictures.plan import Check, Recode
from etl.pictures.recode import convert
from etl.sources.companions import read_array
from etl.sources.entries import Entry
from etl.sources.reading import Reader
from schemas.tables import LabelType


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """How a file is checked and converted, and what kind of label it has."""

    check: Check = "header"
    recode: Recode = field(default_factory=Recode)
    label_type: LabelType = "int"


class PreparedImage(NamedTuple):
    """An image as it is stored: its bytes, their SHA-256, its header, and its mask or array."""

    data: bytes
    sha256: bytes
    header: Header
    companion: bytes | None  # the mask or the array
    labels: list[int] | None  # the array's numbers
    note: str | None


def prepare_or_reject(entry: Entry, reader: Reader, *, preparation: Preparation) -> PreparedImage | str:
    """Prepare an image, or return the reason for which it is rejected. Raises `SourceError`."""
    try:
        return prepare(entry, reader, preparation=preparation)
    except RejectedError as error:
        return str(error)


def prepare(entry: Entry, reader: Reader, *, preparation: Preparation) -> PreparedImage:
    """Read an image and its mask or array. Raises `RejectedError`, and `SourceError` if the source cannot be read."""
    data = entry.data if entry.data is not None else reader.read(entry.place, entry.offset, entry.size)
    found = header = read_header(data, check=preparation.check)
    note = None
    if found.format and disagrees(entry.path, found.format):
        note = f"{found.format} with another extension"
    if preparation.recode.changes:
        data, header = convert(data, preparation.recode)
    companion, labels = None, None
    has_companion = preparation.label_type in ("multi", "blob")
    if has_companion and entry.label_place is not None and entry.label_size is not None:
        companion = reader.read(entry.label_place, entry.label_offset, entry.label_size)
        if preparation.label_type == "multi":
            labels = read_array(companion)
        elif preparation.label_type == "blob":
            mask = upright_mask(companion, found, preparation.recode, check=preparation.check)
            companion = mask.data
            if mask.is_turned:
                note = "; ".join(filter(None, (note, "with a mask turned upright")))
    elif has_companion:
        raise RejectedError("no mask" if preparation.label_type == "blob" else "no array", "the image has none")
    return PreparedImage(data, hashlib.sha256(data).digest(), header, companion, labels, note)
