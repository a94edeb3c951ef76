"""Class names that are numbers."""

import pytest

from etl.errors import SourceError
from etl.sources.labels import (
    all_integers,
    class_numbers_of,
)


def test_numeric_class_names_are_parsed_and_others_refused() -> None:
    assert class_numbers_of(["7", "007", "0", "2147483647", " 3", "0" * 5000 + "1"]) == {
        "7": 7,
        "007": 7,
        "0": 0,
        "2147483647": 2147483647,
        " 3": 3,
        "0" * 5000 + "1": 1,
    }
    for name in ("2147483648", "-1", "1.0", "", "٣", "1_0", "9" * 5000):
        with pytest.raises(SourceError, match="Wanted class names that are numbers"):
            class_numbers_of(["1", name])
    with pytest.raises(SourceError) as caught:
        class_numbers_of(["g", "f", "e", "d", "c", "b", "1", "a"])
    assert str(caught.value) == (
        "Wanted class names that are numbers from 0 to 2147483647, for --class-names number. "
        "Found: 'a', 'b', 'c', 'd', 'e', .... Set --class-names name to number the classes by name."
    )


def test_all_integers_accepts_only_non_negative_integers() -> None:
    assert all_integers(["1", "02", "3"])
    assert not all_integers([])
    assert not all_integers(["1", "cat"])
    assert not all_integers(["1", "-2"])
