"""What a source lists: one row an image, with its name, its label and where its bytes lie.

Every source gives a DataFrame of `ENTRIES`; everything after it (labels from a file, masks, writing, verifying) works
on that alone. Names are raw bytes, as they are on disk; what goes into text columns is made text by `text`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from etl.batches import arrow_schema, batch_of

_BATCH_ROWS = 1000

ENTRIES = (
    "id BINARY NOT NULL, or_split BINARY NOT NULL, path BINARY NOT NULL, or_label STRING, group_id STRING, "
    "place BINARY NOT NULL, offset BIGINT, bytes BIGINT NOT NULL, "
    "label_place BINARY, label_offset BIGINT, label_bytes BIGINT, reason STRING"
)
"""The columns of `Entry`, without ``data``, which only tables of bytes have, behind the others."""

ARROW_ENTRIES = arrow_schema(ENTRIES)


class Entry(NamedTuple):
    """One image of a source.

    ``path`` is the image's name within its split, which its id follows from; ``or_label`` the name of its class, if the
    source knows one. ``place`` is what holds the bytes: the absolute path of a local file or a whole address
    (``s3://bucket/key``); they are all of it if ``offset`` is None, else the ``size`` bytes from there. ``label_place``
    holds the mask or the array that belongs to the image in the same way. An entry with a ``reason`` (``kind`` or
    ``kind: detail``) cannot be taken. ``data`` is the image itself, where a source has it at hand.
    """

    id: bytes
    or_split: bytes
    path: bytes
    or_label: str | None
    group_id: str | None
    place: bytes
    offset: int | None
    size: int
    label_place: bytes | None = None
    label_offset: int | None = None
    label_size: int | None = None
    reason: str | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a source found.

    ``entries`` are in no order and each id is there once. ``classes`` are class names that the source knows beside
    those of its entries (empty class folders). ``access`` is how the places may be read: at ``random``, best in the
    order of (place, offset) but in several tasks (``sequential``), or only so, by one task a place (``stream``).
    ``bare`` are the entries without ``data``, where they can be had without reading it; ``bytes`` are guessed there.
    ``not_taken`` counts files beside the images that are not taken: rows (kind, files), several of a kind.
    ``has_archives`` tells that the first names of paths are archives in the source, and no folders.
    """

    entries: DataFrame
    bare: DataFrame | None = None
    not_taken: DataFrame | None = None
    classes: frozenset[str] = frozenset()
    access: Literal["random", "sequential", "stream"] = "random"
    has_archives: bool = False

    @property
    def has_data(self) -> bool:
        """Whether entries bring their images along."""
        return "data" in self.entries.columns

    @property
    def names(self) -> DataFrame:
        """The entries without their images."""
        return self.entries.drop("data") if self.bare is None else self.bare


def entry_batches(entries: Iterable[Entry]) -> Iterator[pa.RecordBatch]:
    """Entries as the Arrow batches of `ENTRIES`, for the end of a task that lists."""
    entries = iter(entries)
    while rows := list(islice(entries, _BATCH_ROWS)):
        yield batch_of([row[: len(ARROW_ENTRIES)] for row in rows], ARROW_ENTRIES)


def text(name: bytes) -> str:
    r"""A raw name as text: its UTF-8, with backslash escapes (``\xff``) for what is none."""
    return name.decode("utf-8", "backslashreplace")
