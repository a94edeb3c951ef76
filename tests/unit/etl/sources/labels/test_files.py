"""Quotes in label files."""

import io

import pytest

from etl.errors import SourceError
from etl.sources.labels.files import check_quotes


def _checked(data: bytes, name: str = "l.csv") -> None:
    file = io.BytesIO(data)
    check_quotes(file, name)
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
