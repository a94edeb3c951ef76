"""Tables for people, as CSV that spreadsheets open without running anything from it."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

_SIGNS = "=+\\-@＝＋－＠"  # spreadsheets read the last four, too
# Where Excel's list separator is a semicolon, as in much of Europe, each one begins a new cell, also inside quotes.
_START = re.compile(f'^(?=[{_SIGNS}\t\r\n])|(?<=[;\t\r\n])(?="*[{_SIGNS}])')


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV with a line of column names.

    A text that a spreadsheet would run as a formula gets an apostrophe in front, as OWASP advises; so does the part
    behind a semicolon, a tab or a line break. Numbers stay as they are. Use it only for tables that no program of ours
    reads.
    """
    text = io.StringIO(newline="")
    lines = csv.writer(text)
    lines.writerow(columns)
    lines.writerows([_plain(cell) for cell in row] for row in rows)
    return text.getvalue()


def _plain(cell: object) -> object:
    return _START.sub("'", cell) if isinstance(cell, str) else cell
