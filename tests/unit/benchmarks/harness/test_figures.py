"""The figures of a benchmark, and the rows made from measurements."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.harness.figures import Figure, Figures

FIGURES = Figures({1: Figure("time", "<=", 2.0, needs="millions of rows"), 2: Figure("groups", "<=", 0, "groups")})


def test_a_row_has_the_median_of_its_pairs_and_their_interval() -> None:
    full = FIGURES.ratio_row(1, [3.0, 6.0, 10.0], [2.0, 3.0, 4.0], note="few")
    assert (full.value, full.note, full.met) == (2.0, "few", True)
    assert full.interval is not None
    assert full.interval[0] < 2.0 < full.interval[1]
    assert FIGURES.ratio_row(1, ["1"], ["4"], by=len, note="").interval is None
    assert FIGURES.value_row(2, 3, note="").met is False


def test_a_void_row_has_no_value() -> None:
    row = FIGURES.ratio_row(1, [2.0, 2.0], [1.0, 1.0], note="few", void="slow")
    assert (row.value, row.interval, row.met) == (None, None, None)
    assert row.note == "void: slow; 2.00 (2.00 to 2.00) ratio; few"


@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
def test_every_operator_is_known(op: str) -> None:
    figures = Figures({1: Figure("one", op, 2.0)})
    assert figures.value_row(1, 2.0, note="").met == ("=" in op)


@pytest.mark.parametrize(
    ("op", "value", "told"),
    [("<", 0.9952, "0.995"), ("<", 1.0, "1.00"), (">=", 0.99999, "0.99999"), ("<", 1234.5, "1,234.50")],
)
def test_a_value_is_told_with_the_decimals_that_show_its_side_of_the_target(op: str, value: float, told: str) -> None:
    assert Figures({1: Figure("one", op, 1.0)}).value_row(1, value, note="").measured == f"{told} ratio"


def test_a_quick_row_has_no_verdict_but_reports_what_was_found() -> None:
    row = FIGURES.quick_row(1, FIGURES.ratio_row(1, [3.0, 6.0, 10.0], [2.0, 3.0, 4.0], note="few"))
    assert (row.value, row.interval, row.met) == (None, None, None)
    assert (row.pairs, row.ours, row.other) == (3, 6.0, 3.0)
    assert row.note.startswith("not at this size, it needs millions of rows; 2.00 (")
    assert row.note.endswith(") ratio; few")
    assert FIGURES.quick_row(2, FIGURES.value_row(2, 3, note="few")).value == 3


def test_failed_measurements_get_rows_that_say_so() -> None:
    row = FIGURES.failed_rows([2], RuntimeError("no\n  memory"))[2]
    assert (row.value, row.note) == (None, "not measured: RuntimeError: no memory")


def test_new_measurements_replace_earlier_rows(tmp_path: Path) -> None:
    path = tmp_path / "splits.json"
    old = FIGURES.ratio_row(1, [3.0, 3.0], [2.0, 2.0], note="old")
    path.write_text(json.dumps({"quick": False, "rows": [asdict(old), asdict(FIGURES.value_row(2, 1, note="old"))]}))
    new = FIGURES.value_row(2, 0, note="new")
    assert FIGURES.with_earlier({2: new}, path, quick=False) == [old, new]
    assert FIGURES.with_earlier({2: new}, path, quick=True) == [new]  # of another size
    assert FIGURES.with_earlier({2: new}, tmp_path / "none.json", quick=True) == [new]


def test_numbers_and_words_for_rows_are_checked() -> None:
    assert FIGURES.parse_rows("2, 1") == {1, 2}
    assert FIGURES.parse_rows("ti.e$") == {1}
    for text in ("", "0", "3", "1,,2", "ones"):
        with pytest.raises(ValueError, match="Wanted numbers of rows from 1 to 2"):
            FIGURES.parse_rows(text)
    with pytest.raises(ValueError, match="Wanted a regular expression"):
        FIGURES.parse_rows("(")
