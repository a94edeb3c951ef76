"""The command line of sharding: its options, and arguments that are refused before anything starts."""

from pathlib import Path

import pytest

from jobs import shard as job

BAD_ARGUMENTS = [
    ([], "Wanted -o/--out. Found: none."),
    (["-o", "x"], "Wanted a SOURCE, --data-table and --metadata-table, or --split. Found: none."),
    (["nowhere", "-o", "x"], "Wanted a folder at "),
    (["."], "Wanted -o/--out. Found: none."),
    ([".", "-o", "/dev/null"], "Wanted a folder or nothing at '/dev/null'. Found: a file."),
    ([".", "-o", "./x"], "Wanted --out outside of SOURCE"),
    ([".", "-o", "s3://b", "--overwrite", "--resume"], "Wanted --overwrite or --resume. Found: both."),
    ([".", "-o", "s3://b", "--maxsize", "many"], "--maxsize: wanted a size in bytes or with a unit"),
    ([".", "-o", "s3://b", "--maxsize", "1e3"], "Wanted --maxsize of 10,240 bytes or more. Found: 1,000"),
    ([".", "-o", "s3://b", "--maxsize", "1e11"], "on S3, the limit of an upload in parts. Found: 100,000,000,000"),
    ([".", "-o", "s3://b", "--maxcount", "0"], "Wanted --maxcount of 1 or more. Found: 0"),
    ([".", "-o", "s3://b", "--index", "1"], "Wanted --index with --split. Found: --index alone."),
    ([".", "-o", "s3://b", "--split", "s", "--index", "-1"], "Wanted --index of 0 or more. Found: -1"),
    ([".", "-o", "s3://b", "--split", "s", "--seed", "3"], "Wanted --seed or --split"),
    ([".", "-o", "s3://b", "-d", "k.d", "-m", "k.m"], "Wanted images from a SOURCE or from tables. Found: both."),
    (["-o", "s3://b", "-d", "k.d"], "Found: only --data-table k.d."),
    (["-o", "s3://b", "-d", "k.d", "-m", "k.d"], "Wanted two tables, for data and for metadata. Found: k.d for both."),
    (["-o", "s3://b", "-d", "kd", "-m", "k.m"], "Found: 'kd'"),
    (["-o", "s3://b", "-d", "k.d", "-m", "k.m", "--dataset", "x"], "Wanted --dataset with a SOURCE."),
    (["-o", "s3://b", "--split", "s", "--labels", "l.csv"], "Wanted a SOURCE with --labels. Found: none."),
    (["-o", "s3://b", "--split", "s", "--read", "sequential"], "Wanted a SOURCE with --read. Found: none."),
    ([".", "-o", "s3://b", "--as-of", "3"], "Wanted --as-of with --data-table and --metadata-table. Found: a SOURCE."),
    (["-o", "s3://b", "--split", "s", "--as-of", "3"], "Wanted --as-of with --data-table and --metadata-table."),
    (["-o", "s3://b", "-d", "k.d", "-m", "k.m", "--as-of", "may"], "Wanted the number of a run"),
    (["-o", "s3://b", "-d", "k.d", "-m", "k.m", "--skip-replaced"], "Wanted --skip-replaced with --as-of."),
    ([".", "-o", "s3://b", "--id-col", "x"], "Wanted --id-col, --label-col and --data-col with tables."),
    ([".", "-o", "s3://b", "--read", "sequential"], "Wanted --read sequential with tars."),
    ([".", "-o", "x", "--endpoint", "http://h:1"], "Wanted --endpoint with an address on S3. Found: none."),
    ([".", "-o", "s3://b", "--endpoint", "h:1"], "Wanted an --endpoint as http://HOST:PORT or https://HOST."),
    ([".", "-o", "s3://b", "--compress", "gzip"], "wanted none or zstd. Found: gzip."),
    ([".", "-o", "s3://b", "--crop"], "Wanted "),
    ([".", "-o", "s3://b", "--max-errors", "some"], "Found: 'some'"),
]  # fmt: skip


def test_bad_arguments_exit_with_code_2_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for argv, wanted in BAD_ARGUMENTS:
        with pytest.raises(SystemExit) as caught:
            job.main(argv)
        assert (caught.value.code, wanted in (said := capsys.readouterr().err)) == (2, True), (argv, said)
    assert list(tmp_path.iterdir()) == []


def test_options_become_a_plan(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    found, args = job.parse_args(
        [str(tmp_path / "t"), "--out", "s3://b/p", "--maxsize", "1e6", "--seed", "7", "--img-size", "64",
         "--img-format", "JPEG", "--compress", "zstd", "--endpoint", "http://127.0.0.1:9", "--json"]
    )  # fmt: skip
    assert args.json
    assert (found.maxsize, found.maxcount, found.seed, found.out) == (1_000_000, 100_000, 7, "s3://b/p")
    assert (found.recode.size, found.compress, found.endpoint) == (64, "zstd", "http://127.0.0.1:9")
    assert job.parse_args([str(tmp_path / "t"), "-o", "s3://b/p"])[0].maxsize == 100_000_000
    assert job.parse_args([str(tmp_path / "t"), "-o", str(tmp_path / "o")])[0].maxsize == 2_000_000_000
