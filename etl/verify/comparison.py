"""Comparison of an image's two rows with each other, with the records of their table, and with their source.

`problems_of` decides about one image; it is pure. What the source determines comes from `image_rows.image_row`, with
which an ingest writes.
"""

import hashlib
import math
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from etl.ingest.writing.image_rows import METADATA_COLUMNS, ImageRow
from etl.sources.labels.values import is_number, number_of
from schemas.identity import is_id_of
from schemas.tables import ClassNames, LabelType

MISSING_BLOB = "missing blob"
NO_METADATA = "blob without metadata"
WRONG_SIZE = "wrong size"
WRONG_HASH = "wrong hash"
MISSING_IMAGE = "missing image"
CHANGED = "changed in the source"
UNREADABLE = "unreadable in the source"
GONE = "no longer in the source"
UNKNOWN_CLASS = "class without a number"
NO_INGEST = "written by no ingest"
FOREIGN = "of another source"
"""Not a problem: an image of the source whose row another source has written. It is not compared with the source."""

_OF_BYTES = ("bytes", "sha256", "xxhash64")
_READ = ("format", "width", "height", *_OF_BYTES)
MASKS: tuple[LabelType, ...] = ("blob", "multi")
_UNREADABLE = "unreadable"  # the failure may be temporary
_SHOWN = 200
_START = 0x01B21DD213814000  # of Unix time, in the time of uuids


def wrong(column: str) -> str:
    """The kind of problem of a column."""
    return f"wrong {column}"


KINDS = (
    *(MISSING_BLOB, NO_METADATA, WRONG_SIZE, WRONG_HASH, MISSING_IMAGE, CHANGED, UNREADABLE, GONE),
    *map(wrong, METADATA_COLUMNS),
    *(UNKNOWN_CLASS, NO_INGEST),
)
"""The kinds of problems of an image, in the order of reports."""


class Stored(NamedTuple):
    """The two rows of an image in the tables. Without a metadata row, ``row`` has only the label of the data row."""

    has_metadata: bool
    ingest_id: str | None
    length: int | None  # of the image bytes; None without them
    digest: bytes | None  # SHA-256 of the image bytes; also None without hash checks
    checksum: int | None  # of them and a mask or array; also None without hash checks
    row: ImageRow  # its ``data_label`` is a `mark`


class Expected(NamedTuple):
    """The rows of an image that its source lists, as an ingest would write them."""

    row: ImageRow
    rejected: str | None  # why the listing rejects it
    unreadable: str | None  # why it cannot be read
    is_excused: bool  # It need not be in the tables: an ingest rejects it, or it was deleted on request.


class Problem(NamedTuple):
    """A problem of an image. ``is_rewritable`` says that an ingest of its source would correct it."""

    kind: str
    detail: str | None = None
    is_rewritable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is known of the tables and of the source."""

    data_table: str  # for messages, as ``metadata_table``
    metadata_table: str
    label: str = "label"  # the name of the label columns
    columns: frozenset[str] = frozenset(ImageRow._fields)  # the columns of both rows that the tables have
    dataset: str | None = None  # that the tables are recorded to hold; None if nothing is recorded
    label_type: LabelType = "int"
    numbering: ClassNames | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)  # of classes, by name
    # the sources of the recorded runs, by ingest id
    ingests: Mapping[str, frozenset[str]] = field(default_factory=dict)
    first_run: int | None = None  # when the first run was recorded, in microseconds since 1970
    source: str | None = None  # its name in rows; None without a source
    splits: frozenset[str] = frozenset()  # those that the source lists; empty for all
    compared: frozenset[str] = frozenset()  # the columns to compare with the source

    def number_of(self, name: str) -> int | None:
        """The number of a class; None if it has none."""
        if name not in self.numbers and self.numbering == "number" and is_number(name):
            return number_of(name)
        return self.numbers.get(name)

    def is_same_class(self, one: str | None, other: str | None) -> bool:
        """Whether two names of a class are the same number, as earlier versions have written numbers in other ways."""
        if self.numbering != "number" or one is None or other is None:
            return False
        return number_of(one) == number_of(other) is not None

    def is_own(self, stored: Stored) -> bool:
        """Whether an ingest of the source has written a row, whatever its column ``source`` says now."""
        if stored.row.source == self.source:
            return True
        sources = self.ingests.get(stored.ingest_id or "")
        return self.source in sources if sources else stored.row.source is None

    def has_ingest(self, stored: Stored) -> bool:
        """Whether an ingest may have written a row: a recorded one, or one of a version that recorded none."""
        if self.dataset is None or self.first_run is None or stored.ingest_id in self.ingests:
            return True
        return stored.ingest_id is not None and _began(stored.ingest_id) < self.first_run

    def differs(self, column: str, *, expected: Any, found: Any, is_rewritable: bool = False) -> Problem:
        """The problem of a column; ``data_label`` is the label of the data row."""
        name = self.label if column in ("label", "data_label") else column
        table = self.data_table if column == "data_label" else self.metadata_table
        shown = _plain if column == "data_label" else _shown
        detail = f"{name} of {table}: expected {shown(expected)}, found {shown(found)}"
        return Problem(wrong("label" if column == "data_label" else column), detail, is_rewritable)


def mark(label: int | bytes | str | None) -> str | None:
    """The label of a data row in a form that can be compared: the class number, or the SHA-256 of a mask or array."""
    return hashlib.sha256(label).hexdigest() if isinstance(label, bytes) else None if label is None else str(label)


def problems_of(image: bytes, stored: Stored | None, expected: Expected | None, *, rules: Rules) -> Iterator[Problem]:
    """The problems of an image (an id of 16 bytes), at most one for each column of a table. ``stored`` is None if the
    tables have no row of it, and ``expected`` if the source does not list it, or there is none.
    """
    is_listed = expected is not None and expected.rejected is None
    if stored is None or not stored.has_metadata:
        if stored is not None:
            yield Problem(NO_METADATA, None, is_listed)
        if expected is not None and is_listed and not expected.is_excused:
            yield Problem(MISSING_IMAGE, None, True)
        return
    if expected is not None and not rules.is_own(stored):
        yield Problem(FOREIGN)
        expected = None
    elif expected is None or not is_listed:
        yield from _gone(stored, expected, rules=rules)
        expected = None
    if expected is not None and expected.unreadable is not None:
        yield Problem(UNREADABLE, expected.unreadable)
        expected = None
    if stored.length is None:
        yield Problem(MISSING_BLOB, None, expected is not None)
    if not rules.has_ingest(stored):
        yield Problem(NO_INGEST, f"ingest_id {stored.ingest_id or 'null'}", expected is not None)
        if expected is None:  # its other columns are by hand too
            return
    found = list(_of_bytes(stored, expected, rules=rules))
    yield from found
    if expected is None:
        yield from _of_labels(stored, rules=rules)
        yield from _of_name(image, stored, rules=rules)
        yield from _of_run(stored, rules=rules)
    else:
        is_other = any(problem.kind == CHANGED for problem in found)
        yield from _of_columns(stored, expected, rules=rules, but=_READ if is_other else _OF_BYTES)
        if not _has_number(expected, rules=rules):
            yield from _of_labels(stored, rules=rules)


def _gone(stored: Stored, expected: Expected | None, *, rules: Rules) -> Iterator[Problem]:
    """A row of the source whose image the source does not list, or rejects."""
    or_split = stored.row.or_split
    is_looked_at = not rules.splits or or_split is None or or_split in rules.splits
    if rules.source is None or stored.row.source != rules.source or not (is_looked_at or expected is not None):
        return
    reason = None if expected is None else expected.rejected
    yield Problem(UNREADABLE if (reason or "").partition(": ")[0] == _UNREADABLE else GONE, reason)


def _of_bytes(stored: Stored, expected: Expected | None, *, rules: Rules) -> Iterator[Problem]:
    """Compare the sizes and hashes of the image, its metadata row and its source. Two of the three are right."""
    row, length, digest = stored.row, stored.length, stored.digest
    of_blob = {"bytes": length, "sha256": digest}
    names = [name for name in of_blob if name in rules.columns]
    wanted = {} if expected is None else {name: getattr(expected.row, name) for name in names if name in rules.compared}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    differing = [name for name, value in wanted.items() if getattr(row, name) != value]
    is_blob_right = length is not None and all(of_blob[name] in (None, wanted[name]) for name in wanted)
    if differing and is_blob_right:
        for name in differing:
            yield rules.differs(name, expected=wanted[name], found=getattr(row, name), is_rewritable=True)
        return
    is_rewritable = expected is not None
    if differing and expected is not None:
        size = expected.row.bytes
        detail = f"{size} bytes in the source instead of {row.bytes}" if size != row.bytes else "other bytes, same size"
        yield Problem(CHANGED, detail, True)
    if length is None:
        return
    if rules.dataset is not None:
        for name in names:
            if getattr(row, name) is None and name not in differing:
                yield rules.differs(name, expected=of_blob[name] or "a hash", found=None, is_rewritable=is_rewritable)
    if row.bytes is not None and length != row.bytes:
        yield Problem(WRONG_SIZE, f"{length} bytes instead of {row.bytes}", is_rewritable)
    elif row.sha256 is not None and digest is not None and digest != row.sha256:
        yield Problem(WRONG_HASH, None, is_rewritable)
    elif "xxhash64" in rules.columns and row.xxhash64 is not None and stored.checksum not in (None, row.xxhash64):
        # rows of earlier versions have none
        yield rules.differs("xxhash64", expected=stored.checksum, found=row.xxhash64, is_rewritable=is_rewritable)


def _of_columns(stored: Stored, expected: Expected, *, rules: Rules, but: tuple[str, ...]) -> Iterator[Problem]:
    """Compare all columns but some with those that the source determines."""
    has_number = _has_number(expected, rules=rules)
    for name in ImageRow._fields:
        if name not in rules.compared or name not in rules.columns or name in but:
            continue
        is_class = name == "label" or (name == "data_label" and rules.label_type == "int")
        if (is_class and not has_number) or (name == "data_label" and stored.length is None):
            continue
        right, found = getattr(expected.row, name), getattr(stored.row, name)
        if right != found and not (name == "or_label" and rules.is_same_class(right, found)):
            yield rules.differs(name, expected=right, found=found, is_rewritable=True)


def _has_number(expected: Expected, *, rules: Rules) -> bool:
    """Whether the label is known: a class that is new to the dataset gets its number when it is written."""
    return rules.label_type != "int" or expected.row.or_label is None or expected.row.label is not None


def _of_labels(stored: Stored, *, rules: Rules) -> Iterator[Problem]:
    """Compare the labels of both rows with each other, and with the numbers of classes."""
    row, number = stored.row, stored.row.label
    has_data = stored.length is not None and "data_label" in rules.columns
    if rules.dataset is None:
        if rules.label_type == "int" and has_data and None not in (number, row.data_label):
            yield from _of_data_label(row, number, rules=rules)
        return
    if rules.label_type in MASKS:
        if has_data and row.data_label is None:
            yield rules.differs("data_label", expected="a mask or an array", found=None)
        if rules.label_type == "multi" and row.labels is None:
            yield rules.differs("labels", expected="numbers", found=None)
    if rules.label_type != "int":
        return
    if row.or_label is None and number is not None:
        names = [name for name, one in rules.numbers.items() if one == number]
        yield rules.differs("or_label", expected=names[0] if len(names) == 1 else f"the class of {number}", found=None)
    elif row.or_label is not None and rules.numbering is not None:
        number = rules.number_of(row.or_label)
        if number is None:
            yield Problem(UNKNOWN_CLASS, f"or_label of {rules.metadata_table}: {row.or_label!r}, label {row.label}")
            number = row.label
        elif row.label != number:
            yield rules.differs("label", expected=number, found=row.label)
    if has_data:
        yield from _of_data_label(row, number, rules=rules)


def _of_data_label(row: ImageRow, number: int | None, *, rules: Rules) -> Iterator[Problem]:
    if row.data_label != mark(number):
        yield rules.differs("data_label", expected=number, found=row.data_label)


def _of_name(image: bytes, stored: Stored, *, rules: Rules) -> Iterator[Problem]:
    """Compare the id with the path and the split folder that give it."""
    path, or_split = stored.row.path, stored.row.or_split
    if rules.dataset is None or not {"path", "or_split"} <= rules.columns:
        return
    if or_split is None:
        yield rules.differs("or_split", expected="a name", found=None)
    elif path is None or not is_id_of(image, dataset=rules.dataset, or_split=or_split, path=path):
        full = path if not or_split or path is None else f"{or_split}/{path}"
        yield rules.differs("path", expected="the one of this id", found=full)


def _of_run(stored: Stored, *, rules: Rules) -> Iterator[Problem]:
    """Compare the source of a row with that of the run that has written it."""
    sources = rules.ingests.get(stored.ingest_id or "")
    if sources and stored.row.source not in sources:
        yield rules.differs("source", expected=" or ".join(sorted(sources)), found=stored.row.source)


def _began(ingest_id: str) -> float:
    """When an ingest began, in microseconds since 1970."""
    found = uuid.UUID(ingest_id)
    return (found.time - _START) // 10 if found.version == 1 else math.inf


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    text = repr(value) if isinstance(value, str) else _plain(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _plain(value: Any) -> str:
    return "null" if value is None else str(value)
