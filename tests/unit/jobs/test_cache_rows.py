"""jobs/cache_rows.py's command line: bad arguments, and the data table that belongs to a metadata table."""

import pytest

from jobs.cache_rows import RowsReport, data_table_of, parse_args
from schemas import TableName


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--rows-fn"),
        (
            ["--rows-fn", "r", "--metadata-table", "ks.facts"],
            "Wanted --data-table, or metadata in the name of the table",
        ),
        (["--rows-fn", "r", "--metadata-table", "metadata"], "keyspace.table"),
        (["--rows-fn", "r", "--metadata-table", "ks.metadata", "--data-table", "ks.metadata"], "two different tables"),
        (["--rows-fn", " ", "--metadata-table", "ks.metadata"], "an empty name"),
        (["--rows-fn", "r", "--metadata-table", "ks.metadata", "--seed", str(1 << 63)], "a seed of 64 bits"),
        (["--rows-fn", "r", "--metadata-table", "ks.metadata", "--id-col", "label"], "three different columns"),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse_args(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("metadata", "data"),
    [("metadata_train", "data_train"), ("metadata", "data"), ("my_metadata_v2", "my_data_v2")],
)
def test_tables_of_pictures_are_found_by_name(metadata: str, data: str) -> None:
    assert data_table_of(TableName("ks", metadata)) == TableName("ks", data)


def test_a_report_fits_a_line() -> None:
    report = RowsReport("train.rows", rows=9469, classes=10, fingerprint="0123456789abcdef", seconds=1.26)
    assert str(report) == "wrote 9,469 rows of 10 classes to train.rows in 1.3 s; fingerprint 0123456789ab"
