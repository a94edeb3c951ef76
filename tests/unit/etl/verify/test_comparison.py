"""The two rows of an image are compared with each other, with the records of their table, and with their source."""

import hashlib
import uuid
from dataclasses import replace
from typing import Any

import pytest

from etl.ingest.writing.image_rows import METADATA_COLUMNS, ImageRow, image_row, label_of
from etl.ingest.writing.preparation import PreparedImage
from etl.pictures.images import Header
from etl.sources.entries import Entry
from etl.tables.runs import new_ingest_id
from etl.verify.comparison import Expected, Problem, Rules, Stored, mark, problems_of
from schemas import image_id

IMAGE = image_id("ks", b"train", b"a/0.png").bytes
DATA, MASK = b"bytes of an image", b"bytes of a mask"
HASH = hashlib.sha256(DATA).digest()
ENTRY = Entry(IMAGE, b"train", b"a/0.png", "a", "patient 1", b"/a/0.png", None, len(DATA))
INGEST, OTHER_INGEST = str(new_ingest_id()), str(new_ingest_id())
RULES = Rules(
    data_table="ks.data",
    metadata_table="ks.metadata",
    dataset="ks",
    numbering="name",
    numbers={"a": 0, "b": 1},
    ingests={INGEST: frozenset({"file:///here"}), OTHER_INGEST: frozenset({"file:///there"})},
    first_run=0,
    source="file:///here",
    compared=frozenset(ImageRow._fields) - {"labels"},
)
NO_SOURCE = replace(RULES, source=None, compared=frozenset())
SIZES = replace(RULES, compared=RULES.compared - {"format", "width", "height", "sha256"})


def written(label_type: str = "int", **changed: Any) -> ImageRow:
    """The row that an ingest writes for the entry, with the label of the data row as a mark."""
    labels = [0, 1] if label_type == "multi" else None
    companion = MASK if label_type in ("blob", "multi") else None
    picture = PreparedImage(DATA, HASH, Header("PNG", 4, 5), companion, labels, None)
    numbers = {"a": 0, "b": 1} if label_type == "int" else {}
    row = image_row(ENTRY, picture, label=label_of(ENTRY, numbers=numbers), source_name="file:///here")
    return row._replace(data_label=mark(row.data_label))._replace(**changed)


def stored(row: ImageRow, **changed: Any) -> Stored:
    """The rows as the tables hold them."""
    there = Stored(has_metadata=True, ingest_id=INGEST, length=len(DATA), digest=HASH, checksum=row.xxhash64, row=row)
    return there._replace(**changed)


EXPECTED = Expected(written(), None, None, False)


def found(there: Stored | None, right: Expected | None, rules: Rules = RULES) -> list[tuple[str, str | None]]:
    return [(one.kind, one.detail) for one in problems_of(IMAGE, there, right, rules=rules)]


def test_rows_as_they_were_written_have_no_problems() -> None:
    for rules in (RULES, SIZES):
        assert found(stored(written()), EXPECTED, rules) == []
    assert found(stored(written()), None, NO_SOURCE) == []
    for kind in ("none", "blob", "multi"):
        rules: Any = {"label_type": kind, "numbering": None, "numbers": {}, "compared": frozenset(ImageRow._fields)}
        row = written(kind)
        assert found(stored(row), Expected(row, None, None, False), replace(RULES, **rules)) == []
        assert found(stored(row), None, replace(NO_SOURCE, **rules)) == []


OTHERS: dict[str, Any] = {
    **{"label": 1, "or_label": "b", "or_split": "val", "path": "b/0.png", "source": "file:///there"},
    **{"group_id": "patient 2", "format": "JPEG", "width": 5, "height": 4, "bytes": 1, "sha256": bytes(32)},
}
UNKNOWN_BY_TABLES = {"group_id", "format", "width", "height"}


@pytest.mark.parametrize("column", OTHERS)
@pytest.mark.parametrize("is_null", [False, True])
def test_a_column_with_another_value_is_one_problem_that_names_both_values(column: str, is_null: bool) -> None:
    """From the source each column, and from the tables alone what they determine twice."""
    value = None if is_null else OTHERS[column]
    (problem,) = problems_of(IMAGE, stored(written(**{column: value})), EXPECTED, rules=RULES)
    right = getattr(written(), column)
    shown = [one.hex() if isinstance(one, bytes) else repr(one) if isinstance(one, str) else one or "null"
             for one in (right, value)]  # fmt: skip
    shown = [0 if column == "label" and one is right else text for one, text in zip((right, value), shown, strict=True)]
    detail = f"{column} of ks.metadata: expected {shown[0]}, found {shown[1]}"
    assert problem == Problem(f"wrong {column}", detail, is_rewritable=True)
    alone = found(stored(written(**{column: value})), None, NO_SOURCE)
    assert bool(alone) == (column not in UNKNOWN_BY_TABLES), alone
    assert len(alone) <= 2


def test_the_label_of_the_data_row_is_a_column_too() -> None:
    wrong = [("wrong label", "label of ks.data: expected 0, found 1")]
    both = [("wrong label", "label of ks.metadata: expected 0, found 1"), *wrong]
    for rules, right in ((RULES, EXPECTED), (SIZES, EXPECTED), (NO_SOURCE, None)):
        assert found(stored(written(data_label="1")), right, rules) == wrong
        assert found(stored(written(label=1, data_label="1")), right, rules) == both
    others = replace(NO_SOURCE, dataset=None, numbers={}, numbering=None, first_run=None)  # of another tool
    assert found(stored(written(data_label="1")), None, others) == wrong
    assert found(stored(written(label=1, data_label="1")), None, others) == []
    of_mask = replace(RULES, label_type="blob", numbering=None, numbers={})
    row = written("blob")
    expected = Expected(row, None, None, False)
    ((kind, detail),) = found(stored(row._replace(data_label=mark(b"another"))), expected, of_mask)
    assert (kind, str(detail).partition(":")[0]) == ("wrong label", "label of ks.data")
    of_array = replace(of_mask, label_type="multi", compared=frozenset(ImageRow._fields))
    row = written("multi")
    ((kind, detail),) = found(stored(row._replace(labels=[1, 1])), row and Expected(row, None, None, False), of_array)
    assert (kind, detail) == ("wrong labels", "labels of ks.metadata: expected [0, 1], found [1, 1]")


def test_classes_by_number_and_unknown_classes_are_checked() -> None:
    by_number = replace(NO_SOURCE, numbering="number", numbers={})
    row = written(or_label="7", label=7, data_label="7")
    assert found(stored(row), None, by_number) == []
    assert [kind for kind, _ in found(stored(row._replace(label=0)), None, by_number)] == ["wrong label"]
    with_source, right = replace(RULES, numbering="number"), Expected(row, None, None, False)
    for text, kinds in (("007", []), ("7.0", []), ("8", ["wrong or_label"]), (None, ["wrong or_label"])):
        assert [kind for kind, _ in found(stored(row._replace(or_label=text)), right, with_source)] == kinds
    outside = written(or_label="c", label=9, data_label="9")
    unknown = ("class without a number", "or_label of ks.metadata: 'c', label 9")
    assert found(stored(outside), None, NO_SOURCE) == [unknown]
    # a class that is new in a corrected label file has no number yet
    corrected = Expected(written(or_label="c", label=None, data_label=None), None, None, False)
    assert [kind for kind, _ in found(stored(written()), corrected)] == ["wrong or_label"]


def test_a_checksum_that_is_not_that_of_the_stored_image_and_mask_is_named() -> None:
    right = written()
    wrong = ("wrong xxhash64", f"xxhash64 of ks.metadata: expected {right.xxhash64}, found 7")
    damaged = stored(written(xxhash64=7), checksum=right.xxhash64)
    assert found(damaged, EXPECTED) == found(damaged, None, NO_SOURCE) == [wrong]
    assert found(stored(written(xxhash64=None)), EXPECTED) == []  # as earlier versions wrote it
    assert found(stored(written(xxhash64=7), checksum=None), EXPECTED) == []  # without hash checks


def test_of_image_metadata_and_source_the_one_that_differs_is_named() -> None:
    other, digest = b"other bytes", hashlib.sha256(b"other bytes").digest()
    damaged = stored(written(), length=len(other), digest=digest)
    assert found(damaged, EXPECTED) == [("wrong size", f"{len(other)} bytes instead of {len(DATA)}")]
    same_size = stored(written(), digest=digest)
    assert found(same_size, EXPECTED) == [("wrong hash", None)]
    new = written(bytes=len(other), sha256=digest, width=9)
    changed = ("changed in the source", f"{len(other)} bytes in the source instead of {len(DATA)}")
    assert found(stored(written()), Expected(new, None, None, False)) == [changed]
    assert found(stored(written()), Expected(written(sha256=digest), None, None, False)) == [
        ("changed in the source", "other bytes, same size")
    ]
    assert found(same_size, Expected(written(sha256=bytes(32)), None, None, False)) == [
        ("changed in the source", "other bytes, same size"),
        ("wrong hash", None),
    ]
    assert found(stored(written(), length=None, digest=None), EXPECTED) == [("missing blob", None)]
    unreadable = EXPECTED._replace(unreadable="empty")
    assert found(stored(written()), unreadable) == [("unreadable in the source", "empty")]


def test_rows_that_the_source_does_not_have_are_told_apart() -> None:
    row = stored(written())
    assert found(row, None) == [("no longer in the source", None)]
    rejected = EXPECTED._replace(rejected="no label")
    assert found(row, rejected) == [("no longer in the source", "no label")]
    assert found(row, None, replace(RULES, splits=frozenset({"val"}))) == []
    theirs = stored(written(source="file:///there"), ingest_id=OTHER_INGEST)
    assert found(theirs, None) == []
    assert found(theirs, EXPECTED) == [("of another source", None)]
    by_hand = stored(written(source=None), ingest_id=None)
    assert found(by_hand, None) == [("written by no ingest", "ingest_id null")]
    unrecorded = str(new_ingest_id())
    assert found(stored(written(), ingest_id=unrecorded), EXPECTED) == [
        ("written by no ingest", f"ingest_id {unrecorded}")
    ]
    later = replace(RULES, first_run=uuid.UUID(unrecorded).time)  # an earlier version recorded no runs
    assert found(stored(written(), ingest_id=unrecorded), EXPECTED, later) == []
    assert found(None, EXPECTED) == [("missing image", None)]
    assert found(None, EXPECTED._replace(is_excused=True)) == []
    assert found(None, rejected) == []
    nothing = ImageRow(*[None] * len(ImageRow._fields))
    assert found(Stored(False, None, 1, None, None, nothing), None) == [("blob without metadata", None)]


def test_every_column_of_the_metadata_is_compared() -> None:
    assert {*OTHERS, "labels", "xxhash64"} == set(METADATA_COLUMNS)  # the last one with the stored bytes
