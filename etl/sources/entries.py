"""The listing of a source: one row per image, with its name, its label and the location of its bytes.

Each source gives a DataFrame of `ENTRIES`, and all later steps (labels from a file, masks, writing, verifying) use only
that. Names are the raw bytes on disk; `text` converts them for text columns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from etl.batches import arrow_schema, batch_of

_BATCH_ROWS = 1000

NO_CLASS_FOLDERS = "Without class folders, set --labels FILE, or --label-type none."

ENTRIES = (
    "id BINARY NOT NULL, or_split BINARY NOT NULL, path BINARY NOT NULL, or_label STRING, group_id STRING, "
    "place BINARY NOT NULL, offset BIGINT, bytes BIGINT NOT NULL, "
    "label_place BINARY, label_offset BIGINT, label_bytes BIGINT, reason STRING"
)
"""The columns of `Entry` without ``data``, which only tables of bytes have, as the last column."""

ARROW_ENTRIES = arrow_schema(ENTRIES)


class Entry(NamedTuple):
    """One image of a source."""

    id: bytes
    or_split: bytes
    path: bytes  # within its split; the id is computed from it
    or_label: str | None  # the name of its class
    group_id: str | None
    place: bytes  # the absolute path of a local file, or a full address (s3://bucket/key)
    offset: int | None  # None: the whole file is the image
    size: int
    label_place: bytes | None = None  # of its mask or array, in the same way
    label_offset: int | None = None
    label_size: int | None = None
    reason: str | None = None  # why it is rejected: `kind` or `kind: detail`
    data: bytes | None = None  # the bytes of the image, if the listing has read them

    @property
    def name(self) -> str:
        """The path with the split, as text."""
        return text(self.or_split + b"/" + self.path if self.or_split else self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The result of listing a source."""

    entries: DataFrame  # in no order; each id occurs once
    bare: DataFrame | None = None  # the entries without `data`, if they need no reading of it; `bytes` are estimates
    not_taken: DataFrame | None = None  # the numbers of ignored files, as rows (kind, files); a kind may have several
    classes: frozenset[str] = frozenset()  # the class names without entries: empty class folders
    order: tuple[str, ...] = ()  # the class names by their numbers, if the source has such names
    # How places can be read: in any order; in several tasks, best in the order of (place, offset) ("sequential"); or
    # only in that order, by one task per place ("stream").
    access: Literal["random", "sequential", "stream"] = "random"
    has_archives: bool = False  # whether the first parts of paths are archives in the source, not folders

    @property
    def has_data(self) -> bool:
        """Whether entries contain the image bytes."""
        return "data" in self.entries.columns

    @property
    def names(self) -> DataFrame:
        """The entries without the image bytes."""
        return self.entries.drop("data") if self.bare is None else self.bare

    def transformed(self, change: Callable[[DataFrame], DataFrame]) -> "Listing":
        """The listing with changed entries, with and without the image bytes."""
        return replace(self, entries=change(self.entries), bare=None if self.bare is None else change(self.bare))


def entry_batches(entries: Iterable[Entry]) -> Iterator[pa.RecordBatch]:
    """Convert entries to Arrow batches of `ENTRIES`, at the end of a listing task."""
    entries = iter(entries)
    while rows := list(islice(entries, _BATCH_ROWS)):
        yield batch_of([row[: len(ARROW_ENTRIES)] for row in rows], ARROW_ENTRIES)


def full_name(path: Column) -> Column:
    """A path with the split of the image, if it has one."""
    return F.when(F.length("or_split") == 0, path).otherwise(F.concat("or_split", F.lit(b"/"), path))


def replaced(columns: Sequence[str], changed: Mapping[str, Column]) -> list[Column]:
    """These columns, those that are changed by their new values."""
    return [changed[name].alias(name) if name in changed else F.col(name) for name in columns]


def text(name: bytes) -> str:
    r"""A raw name as text: UTF-8, with backslash escapes (``\xff``) for other bytes."""
    return name.decode("utf-8", "backslashreplace")
