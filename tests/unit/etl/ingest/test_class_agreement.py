"""The table of class numbers is compared with the labels of rows."""

from collections.abc import Mapping

import pytest

from etl.ingest.class_agreement import ClassAgreement

ROWS = {("ant", 0): 4, ("bee", 1): 4}


def conflicts(counts: Mapping[tuple[str | None, int | None], int], known: dict[str, int], *names: str) -> list[str]:
    first = max([-1, *known.values()]) + 1
    return ClassAgreement.of(counts, known=known).conflicts(names, first=first)


@pytest.mark.parametrize(
    ("known", "names", "wanted"),
    [
        ({"ant": 0, "bee": 1}, ("ant", "bee", "cat"), []),
        ({}, ("ant",), ["no number of 'ant', which is 0 in its 4 rows"]),
        ({}, ("cat",), ["the next number, for 'cat', is 0, which rows of 'ant' have"]),
        ({"ant": 0}, ("ant",), []),
        ({"ant": 0}, ("bee",), ["no number of 'bee', which is 1 in its 4 rows"]),
        ({"ant": 0}, ("ant", "cat"), ["the next number, for 'cat', is 1, which rows of 'bee' have"]),
        ({"ant": 1, "bee": 0}, ("ant",), ["'ant' is 1, but 0 in its 4 rows"]),
        ({"ant": 7, "bee": 1}, ("ant", "bee"), ["'ant' is 7, but 0 in its 4 rows"]),
        ({"ant": 0, "bee": 1, "cat": 1}, ("cat",), ["1 is the number of 'bee', 'cat'"]),
    ],
)
def test_an_ingest_finds_every_number_that_it_would_write_and_rows_contradict(
    known: dict[str, int], names: tuple[str, ...], wanted: list[str]
) -> None:
    assert conflicts(ROWS, known, *names) == wanted


def test_single_wrong_rows_do_not_count_against_the_numbers() -> None:
    known = {"ant": 0, "bee": 1}
    wrong = {("ant", 1): 1, ("bee", 7): 1, ("wasp", 0): 1, (None, 1): 2, ("bee", None): 3, ("wasp", None): 1}
    agreement = ClassAgreement.of({**ROWS, **wrong}, known=known)
    assert (agreement.lost, agreement.unclear, agreement.changed) == ({}, {}, {})
    assert agreement.numbers == known
    assert agreement.conflicts(["ant", "bee", "cat"], first=2) == []
    assert agreement.conflicts(["cat"], first=7) == ["the next number, for 'cat', is 7, which rows of 'bee' have"]
    assert (agreement.wrong_rows(["cat"], first=7), agreement.wrong_rows(["cat"], first=8)) == ([7], [])
    lost = ClassAgreement.of({**ROWS, ("cat", 2): 2, (None, 3): 1}, known=known)
    assert lost.wrong_rows(["dog", "eel"], first=2) == [3]  # 2 is the number of a class that was lost
    only = ClassAgreement.of({("ant", 7): 1, ("bee", 1): 4}, known=known)  # the row or the number may be wrong
    assert (only.single, only.numbers) == ({"ant"}, known)
    assert only.conflicts(["ant"], first=2) == ["'ant' is 0, but 7 in its 1 row"]


def test_a_lost_number_is_restored_only_if_rows_agree_on_it_and_no_other_class_has_it() -> None:
    counts = {**ROWS, ("cat", 2): 3, ("cow", 3): 3, ("dog", 3): 1, ("eel", 4): 2, ("eel", 5): 2, ("fly", 0): 2}
    agreement = ClassAgreement.of(counts, known={"ant": 0})
    assert agreement.lost == {"bee": 1, "cat": 2}
    assert agreement.unclear == {"cow": (3,), "dog": (3,), "eel": (4, 5), "fly": (0,)}
    assert agreement.doubtful == {"cow": (3,), "dog": (3,), "eel": (4, 5)}
    assert agreement.numbers == {"ant": 0, "bee": 1, "cat": 2}
    changed = ClassAgreement.of(ROWS, known={"ant": 1, "bee": 0})
    assert changed.numbers == {"ant": 0, "bee": 1}
