"""The pairs of options that `split.py` refuses, and that the suite of pairs knows every option."""

from itertools import combinations, product

import pytest

from jobs import split
from tests.support.split_pairs import ELSEWHERE, LEVELS, REFUSED, TABLE, cases, is_allowed

KNOWN_LATER = ("Wanted a ratio for each", "Wanted images of one class each")
"""Known only when the other split or the table is read."""


def test_every_option_has_a_place_in_the_suite_of_pairs() -> None:
    options = {action.dest for action in split.parser()._actions} - {"help"}
    assert options | {TABLE} == LEVELS.keys() | ELSEWHERE.keys(), "add the option to tests/support/split_pairs.py"


def test_the_cases_have_every_pair_that_is_not_refused() -> None:
    chosen = cases()
    for one, other in combinations(LEVELS, 2):
        for first, second in product(LEVELS[one], LEVELS[other]):
            if is_allowed({one: first, other: second}):
                assert any(case.get(one) == first and case.get(other) == second for case in chosen), (one, other)


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: f"{refused.first[0]} {refused.second[0]}")
def test_options_that_contradict_each_other_are_refused_before_any_work(refused, capsys) -> None:  # type: ignore[no-untyped-def]
    """In one line, without Java; other pairs are never refused for themselves."""
    found = []
    for first, second in product(LEVELS[refused.first[0]], LEVELS[refused.second[0]]):
        row = {refused.first[0]: first, refused.second[0]: second}
        if refused.applies(row) and not refused.message.startswith(KNOWN_LATER):
            args = [f"--{name.replace('_', '-')}={one}" for name, value in row.items()
                    for one in (value if isinstance(value, list) else [value])]  # fmt: skip
            with pytest.raises(SystemExit) as stopped:
                split.parse_args(["--metadata-ifn", "cache", "-o", "out", *args])
            assert stopped.value.code == 2
            found.append(capsys.readouterr().err.splitlines()[-1])
    assert all(refused.message in line for line in found)
