"""Quotes, rows and encodings of label files."""

import io
import re

import pytest

from etl.errors import SourceError
from etl.sources.labels.files import check_rows


def _checked(data: bytes, name: str = "l.csv") -> None:
    file = io.BytesIO(data)
    check_rows(file, name)
    assert not file.closed


def test_values_with_whole_quotes_are_accepted() -> None:
    _checked(b'\xef\xbb\xbf"path",label\n"b,\n.jpg","dog ""s"""\n\xff.jpg,5" nail\n"",""\n')
    _checked(b'path,label\r"a.jpg",cat\rb.jpg,cat\r')
    _checked(b'path\tlabel\n"a\t.jpg"\tcat\n', "l.TSV")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (
            b'path,label\na.jpg,cat\nb.jpg,"cat\nc.jpg,cat\n',
            "a quote that is never closed, in the row that begins on line 3",
        ),
        (b'path,label\n"a.jpg,cat\nb.jpg,"cat\n', "in the row that begins on line 2"),
        (b'path,label\n"a\n.jpg",cat\nb.jpg,"cat"s\n', "in the row that begins on line 4"),
    ],
)
def test_a_quote_that_is_not_closed_is_refused_with_its_line(data: bytes, found: str) -> None:
    with pytest.raises(SourceError, match=rf"Wanted quotes around whole values in l\.csv\. Found: .*{found}\. "):
        _checked(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"path,label\n\na.png,cat\nb.png,dog,extra\n",
            "Wanted 2 values in each row of l.csv, as in its first. Found: 3, in the row that begins on line 4: "
            "'b.png,dog,extra'. Write one value for each column, with quotes around a value that contains a comma.",
        ),
        (b'path,label\n"a\n.png",cat\n\xff.png\n', r"Found: 1, in the row that begins on line 4: '\udcff.png'. Write"),
        ("path,label\n".encode("utf-16"), "Wanted a label file in UTF-8 at l.csv. Found: UTF-16. Save it as UTF-8."),
        ("path,label\n".encode("utf-16-le"), "Found: zero bytes, as in UTF-16. Save it as UTF-8."),
        (
            b"\xef\xbb\xbf\n",
            "Wanted a label file with a row for each image at l.csv. Found: an empty file. "
            "Write the names of the columns first, such as path and label.",
        ),
    ],
)
def test_a_file_that_is_no_table_is_refused_with_what_to_write(data: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=re.escape(message)):
        _checked(data)
