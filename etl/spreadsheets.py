"""CSV tables that are safe to open in spreadsheets."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence

_SIGNS = "=+\\-@＝＋－＠"  # spreadsheets treat the full-width signs alike
# If Excel's list separator is a semicolon, as in much of Europe, a semicolon starts a new cell even inside quotes.
_START = re.compile(f'^(?=[{_SIGNS}\t\r\n])|(?<=[;\t\r\n])(?="*[{_SIGNS}])')

_PIECE = 8 << 20  # the parts of an upload to S3 need 5 MiB


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV with a header line, for people, not for programs: text that a spreadsheet would run as a formula
    gets an apostrophe in front, as OWASP advises, and so does text after a semicolon, a tab or a line break.
    """
    return "".join(csv_pieces(columns, rows))


def csv_pieces(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The text of `csv_text` in pieces of 8 MiB or more, but the last."""
    text = io.StringIO(newline="")
    lines = csv.writer(text)
    lines.writerow(columns)
    for row in rows:
        lines.writerow([_plain(cell) for cell in row])
        if text.tell() >= _PIECE:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _plain(cell: object) -> object:
    return _START.sub("'", cell) if isinstance(cell, str) else cell
