"""Tables for spreadsheets: no cell is a formula."""

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from etl.spreadsheets import csv_pieces, csv_text


def test_texts_that_would_be_formulas_begin_with_an_apostrophe() -> None:
    texts = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t1", "\r1", "\n1", "＝1", "a=1", "'=1", "", " =1", "a;1"]
    found = _read(csv_text(["path", "bytes"], [(text, -5) for text in texts]))
    cells = [f"'{text}" for text in texts[:8]] + texts[8:]
    assert found == [["path", "bytes"], *([cell, "-5"] for cell in cells)]
    assert csv_text(["a"], [(None,), (1.5,)]) == 'a\r\n""\r\n1.5\r\n'


def test_no_part_of_a_text_is_a_formula_where_the_separator_is_a_semicolon_or_a_tab() -> None:
    texts = {"a;=1.png": "a;'=1.png", 'a;"=1"': 'a;\'"=1"', "a\t@x\n+1;b": "a\t'@x\n'+1;b", ";=1;-1": ";'=1;'-1"}
    text = csv_text(["path"], [(text,) for text in texts])
    assert [row[0] for row in _read(text)[1:]] == list(texts.values())
    for separator in ";\t":
        cells = [cell for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) for cell in row]
        assert [cell for cell in cells if cell.startswith((*"=+-@",))] == []


@given(st.lists(st.tuples(st.text(), st.integers())))
def test_nothing_else_of_a_text_changes(rows: list[tuple[str, int]]) -> None:
    found = _read(csv_text(["text", "number"], rows))
    for (text, number), (cell, digits) in zip(rows, found[1:], strict=True):
        assert (cell.replace("'", ""), int(digits)) == (text.replace("'", ""), number)
        assert cell[:1] not in {*"=+-@\t\r\n"} or not cell


def test_a_long_table_is_made_in_pieces_with_all_rows() -> None:
    rows = [(str(number) * 1000,) for number in range(5000)]
    pieces = list(csv_pieces(["text"], rows))
    assert len(pieces) == 3
    assert all(len(piece) >= 8 << 20 for piece in pieces[:-1])
    assert _read("".join(pieces)) == [["text"], *map(list, rows)]


def _read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))
