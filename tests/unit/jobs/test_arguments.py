"""Common arguments of all jobs: a pair of tables, and a first line that names them."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

from jobs import cache_rows, delete, featurize, ingest, relabel, shard, split, verify
from tests.support.imports import heavy_imports

Parse = Callable[[Sequence[str]], Any]


OTHERS = [
    (ingest.parse_args, ["/data"]),
    (split.parse_args, ["-o", "o"]),
    (split.parse_args, ["--metadata-ifn", "cache", "-o", "o"]),
    (shard.parse_args, ["--out", "o"]),
    (shard.parse_args, ["--split", "s", "--out", "o"]),
    (verify.parse_args, []),
    (cache_rows.parse_args, ["--rows-fn", "r"]),
    (featurize.parse_args, ["--features", "phash"]),
    (relabel.parse_args, ["new.csv"]),
    (delete.parse_args, ["--where", "true", "--reason", "r"]),
    (delete.parse_args, ["--id", "00000000-0000-4000-8000-000000000001", "--reason", "r"]),
]


@pytest.mark.parametrize(("parse_args", "others"), OTHERS)
@pytest.mark.parametrize(
    ("typed", "missing"), [("--data-table", "--metadata-table"), ("--metadata-table", "--data-table")]
)
def test_half_a_pair_of_tables_is_refused(
    parse_args: Parse, others: list[str], typed: str, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if parse_args is cache_rows.parse_args and typed == "--metadata-table":
        return  # it finds the data table by name, and reports it
    with pytest.raises(SystemExit) as stopped:
        parse_args([*others, typed, "other.data"])
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert "Wanted both --data-table and --metadata-table." in told
    assert f"Found: only {typed} other.data. Add {missing}." in told


@pytest.mark.parametrize(("parse_args", "others"), OTHERS)
def test_an_empty_name_of_a_table_is_refused(
    parse_args: Parse, others: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_args([*others, "-d", "", "-m", "ks.metadata"])
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert "Wanted a table as keyspace.table" in told
    assert "Found: ''." in told


@pytest.mark.parametrize(
    ("parse_args", "typed", "told"),
    [
        (
            split.parse_args,
            ["-d", "a.data", "-m", "a.metadata", "-o", "o"],
            "--data-table a.data, --metadata-table a.metadata, --split-ratio 8,2 (default)",
        ),
        (
            split.parse_args,
            ["--metadata-ifn", "kept", "-o", "o", "-r", "1"],
            "--data-table as in kept, --metadata-table as in kept",
        ),
        (shard.parse_args, ["--split", "s", "--out", "o"], "--data-table as in s, --metadata-table as in s"),
        (
            cache_rows.parse_args,
            ["-m", "a.metadata_val", "-o", "r"],
            "--metadata-table a.metadata_val, --data-table a.data_val (from the name of the metadata table)",
        ),
        (verify.parse_args, ["-d", "a.data", "-m", "a.metadata"], "--data-table a.data, --metadata-table a.metadata"),
    ],
)
def test_the_first_line_names_the_tables_and_what_was_not_typed(
    parse_args: Parse, typed: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parse_args(typed)
    assert capsys.readouterr().err == f"options: {told}\n"


@pytest.mark.parametrize("job", [cache_rows, delete, featurize, ingest, relabel, shard, split, verify])
def test_help_prints_the_manual(job: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        job.main(["--help"])
    assert stopped.value.code == 0
    page, name = capsys.readouterr().out, job.__name__.rpartition(".")[2]
    assert page.startswith(f"usage: {name}.py")
    assert f"  spark-submit jobs/{name}.py " in page
    assert "exit codes:\n  0  " in page
    assert max(map(len, page.splitlines())) <= 120


def test_help_and_wrong_options_import_no_spark() -> None:
    code = """
import contextlib
from jobs import cache_rows, delete, featurize, ingest, relabel, shard, split, verify
for job in (cache_rows, delete, featurize, ingest, relabel, shard, split, verify):
    for option in ("--help", "--no-such"):
        with contextlib.suppress(SystemExit):
            job.main([option])
"""
    assert heavy_imports(code) == set()


@pytest.mark.parametrize(
    ("job", "argv"),
    [
        (ingest, ["s3:/b/x", "--data-table", "k.d", "--metadata-table", "k.m"]),
        (ingest, [".", "--target-dir", "s3:/b/x"]),
        (split, ["-d", "k.d", "-m", "k.m", "-o", "s3:/b/x"]),
        (shard, [".", "--out", "s3:/b/x"]),
        (verify, ["s3:/b/x", "-d", "k.d", "-m", "k.m"]),
        (cache_rows, ["-m", "k.metadata", "-o", "s3:/b/x"]),
    ],
)
def test_a_typo_in_an_address_is_refused_before_anything_starts(
    job: ModuleType, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        job.main(argv)
    assert "Found: s3:/b/x. Did you mean s3://b/x?" in capsys.readouterr().err
