"""CSV tables that are safe to open in spreadsheets."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

_SIGNS = "=+\\-@＝＋－＠"  # spreadsheets treat the full-width signs alike
# If Excel's list separator is a semicolon, as in much of Europe, a semicolon starts a new cell even inside quotes.
_START = re.compile(f'^(?=[{_SIGNS}\t\r\n])|(?<=[;\t\r\n])(?="*[{_SIGNS}])')


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV with a header line, for people, not for programs: text that a spreadsheet would run as a formula
    gets an apostrophe in front, as OWASP advises, and so does text after a semicolon, a tab or a line break.
    """
    text = io.StringIO(newline="")
    lines = csv.writer(text)
    lines.writerow(columns)
    lines.writerows([_plain(cell) for cell in row] for row in rows)
    return text.getvalue()


def _plain(cell: object) -> object:
    return _START.sub("'", cell) if isinstance(cell, str) else cell
