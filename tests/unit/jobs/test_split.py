"""jobs/split.py's command line: the plan, and bad arguments, which are found before a JVM starts."""

from fractions import Fraction
from pathlib import Path

import pytest

from etl.splits.report import SplitReport
from jobs.split import main, parse_args

GOOD = ["-d", "ks.data", "-m", "ks.metadata", "-o", "unused"]


@pytest.mark.parametrize(
    "args",
    [
        ["-d", "data", "-m", "ks.metadata", "-o", "o"],
        ["-d", "ks.data; DROP TABLE ks.data", "-m", "ks.metadata", "-o", "o"],
        ["-d", "ks.data", "-m", 'ks."metadata"', "-o", "o"],
        ["-d", "Ks.data", "-m", "ks.metadata", "-o", "o"],
        ["-d", "ks.data", "-m", "ks.data", "-o", "o"],
        [*GOOD, "--top", "sharpness"],
        [*GOOD, "--top", "sharpness=0%"],
        [*GOOD, "--top", "sharpness=101%"],
        [*GOOD, "--top", "sharpness=0"],
        [*GOOD, "-r", "0,0"],
        [*GOOD, "-r", "8,-2"],
        [*GOOD, "-r", "a,b"],
        [*GOOD, "-r", ""],
        [*GOOD, "-r", "nan"],
        [*GOOD, "-b", "fair"],
        [*GOOD, "-b", "1,-1"],
        [*GOOD, "-b", "0,0"],
        [*GOOD, "--seed", "x"],
        [*GOOD, "--id-col", "a b"],
        [*GOOD, "--id-col", "label"],
        [*GOOD, "-r", ",".join(["1"] * 2_000)],
        [*GOOD, "-b", "cat=x"],
        [*GOOD, "-b", "cat=1,cat=2"],
        [*GOOD, "-b", "cat=0,dog=0"],
        [*GOOD, "-b", "2,1", "--per-class", "10"],
        [*GOOD, "-b", "uniform", "--stratify", "or_split"],
        [*GOOD, "--per-class", "0"],
        [*GOOD, "--limit", "-1"],
        [*GOOD, "--min-per-split", "-1"],
        [*GOOD, "--look-alike-bits", "9"],
        [*GOOD, "--folds", "1"],
        [*GOOD, "--folds", "5", "-r", "8,2"],
        [*GOOD, "--folds", "5", "--pin", "or_split=val:1"],
        [*GOOD, "--folds", "5", "--extend", "old"],
        [*GOOD, "--stratify", ""],
        [*GOOD, "--stratify", "label,label"],
        [*GOOD, "--group-column", "label", "--stratify", "label"],
        [*GOOD, "--pin", "or_split"],
        [*GOOD, "--pin", "or_split=val"],
        [*GOOD, "--pin", "or_split=val:2"],
        [*GOOD, "--pin", "or_split=val:x"],
        [*GOOD, "--exclude", ""],
        [*GOOD, "--where", " "],
        [*GOOD, "--metadata-ifn", "a", "--metadata-ofn", "b"],
        [*GOOD, "--metadata-ifn", "a", "--dataset", "b"],
        [*GOOD, "--metadata-ifn", "a", "--as-of", "3"],
        [*GOOD, "--as-of", "march"],
        [*GOOD, "--skip-replaced"],
        [*GOOD, "--explain", "--metadata-ofn", "b"],
        [*GOOD, "-b", "cat=1,,dog=2"],
        [*GOOD, "-b", ",cat=1"],
        [*GOOD, "-b", " =1,b=2"],
        [*GOOD, "--group-column", ""],
        [*GOOD, "--group-column", "label"],
        [*GOOD, "--pin", "or_split=val:1", "--pin", "or_split=val:0"],
        [*GOOD, "--extend", "old", "--exclude", "old/:1"],
        ["--metadata-ifn", "", "-o", "o"],
        [*GOOD, "--split", "8,2"],
        ["-d", "ks.data", "-m", "ks.metadata", "-o", "splits/a[1]"],
        ["-d", "ks.data", "-m", "ks.metadata", "-o", "s3://bucket/{a}"],
        [*GOOD, "--metadata-ofn", "build/2026-01-01T10:00"],
        [*GOOD, "--exclude", "splits/b*:1"],
        [*GOOD, "surplus"],
    ],
)
def test_bad_arguments_exit_with_code_2_and_say_what_is_expected(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_args(args)
    assert stopped.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_newer_manifest_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "_manifest.json").write_text('{"format": 99}')
    with pytest.raises(SystemExit) as stopped:
        parse_args(["-d", "ks.data", "-m", "ks.metadata", "-o", str(tmp_path), "--overwrite"])
    assert stopped.value.code == 2
    assert "Found: format 99" in capsys.readouterr().err


def test_arguments_become_the_plan() -> None:
    args = ["-d", "a.b", "-m", "c.d", "--split-ofn=o", "--split-ratio=0.5,0.25,0.25", "--balance=2,1,0", "--json"]
    made, others = parse_args(args)
    assert others.json
    assert made.ratios == (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))
    assert made.balance == (2, 1, 0)
    assert made.as_options()["split-ratio"] == "0.5,0.25,0.25"


def test_weights_may_be_given_by_name_and_names_may_hold_commas() -> None:
    made, _ = parse_args([*GOOD, "-b", "tench, Tinca=2,dog=0.5,a=b=1"])
    assert made.balance == (("tench, Tinca", 2), ("dog", Fraction(1, 2)), ("a=b", 1))
    assert made.as_options()["balance"] == "tench, Tinca=2,dog=0.5,a=b=1"
    exact, _ = parse_args([*GOOD, "-r", "99999999999.00000000001,.1", "--seed", str(2**63 - 1)])
    assert exact.as_options()["split-ratio"] == "99999999999.00000000001,0.1"


def test_a_cache_needs_no_tables() -> None:
    made, others = parse_args(
        ["--metadata-ifn", "cache", "--explain", "--exclude", "splits/a:1", "--exclude", "s3://b/c"]
    )
    assert (made.data_table, made.out, others.explain) == (None, None, True)
    assert [str(ref) for ref in made.exclude] == ["splits/a:1", "s3://b/c"]
    assert [ref.index for ref in made.exclude] == [1, None]


def test_bad_ratios_are_refused_before_spark_is_asked_for_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["-r", "1,0"])
    wanted = "Wanted split ratios as numbers above 0 with commas between them, as in 8,2. Found: '1,0'"
    assert wanted in capsys.readouterr().err


def test_a_report_of_a_plan_that_writes_nothing_shows_a_table() -> None:
    """The text of --explain: warnings, images by class and split, and one last line."""
    made = SplitReport(
        out=None,
        rows=[8, 2],
        images=10,
        unused=1,
        counts=[{"ant": 5, "a bee": 3}, {"ant": 2}],
        fingerprints=[],
        ideals=[8.0, 2.0],
        method="exact quotas by label",
        leaks={},
        warnings=["1 classes are small"],
        replaced=0,
        seconds=1.0,
    )
    assert str(made).splitlines() == [
        "warning: 1 classes are small",
        "class  split 0  split 1",
        "ant          5        2",
        "a bee        3        0",
        "all          8        2",
        "would split 10 images of 2 classes into 8 + 2, 1 left out; exact quotas by label",
    ]
