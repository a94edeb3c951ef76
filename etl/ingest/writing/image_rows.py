"""What a source determines of the two rows of an image. An ingest writes these values, a verification compares them.

All other columns (``ingest_id``, ``ingested_at``, ``since``) are about the run that wrote the rows.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from etl.ingest.writing.preparation import PreparedImage
from etl.sources.entries import Entry, text
from formats.checksums import checksum

_Binary: TypeAlias = bytes  # a column has this name


class ImageRow(NamedTuple):
    """The columns of the metadata row, by their usual names, and ``data_label``: the label of the data row."""

    label: int | None
    or_label: str | None
    or_split: str | None
    path: str | None
    source: str | None
    group_id: str | None
    format: str | None = None
    width: int | None = None
    height: int | None = None
    bytes: int | None = None
    sha256: _Binary | None = None
    xxhash64: int | None = None
    labels: list[int] | None = None
    # The number of the class, or the bytes of the mask or array; in a verification, their `mark`.
    data_label: int | _Binary | str | None = None


METADATA_COLUMNS = ImageRow._fields[:-1]  # those of the metadata table that a source determines


def label_of(entry: Entry, *, numbers: Mapping[str, int]) -> int | None:
    """The class number of an image; None if it has no class. ``numbers`` are empty unless labels are classes."""
    return None if entry.or_label is None else numbers.get(entry.or_label)


def image_row(entry: Entry, prepared: PreparedImage | None, *, label: int | None, source_name: str) -> ImageRow:
    """Make the values of both rows of an image; without the ``prepared`` image, those that need not its bytes."""
    row = ImageRow(
        label=label,
        or_label=entry.or_label,
        or_split=text(entry.or_split),
        path=text(entry.path),
        source=source_name,
        group_id=entry.group_id,
        data_label=label,
    )
    if prepared is None:
        return row
    header = prepared.header
    row = row._replace(format=header.format, width=header.width, height=header.height, labels=prepared.labels)
    row = row._replace(bytes=len(prepared.data), sha256=prepared.sha256)
    row = row._replace(xxhash64=checksum(prepared.data, prepared.companion))
    return row if prepared.companion is None else row._replace(data_label=prepared.companion)
