"""The command line of verify."""

from collections.abc import Callable
from pathlib import Path

import pytest

from etl.verify.plan import VerifyPlan
from jobs import verify as job


def refused(command: Callable[[], object], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        command()
    assert caught.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-d", "Bad.Name"], "Wanted a table"),
        (["-d", "k.a", "-m", "k.a"], "k.a for both"),
        (["--split-subdir", "train"], "Wanted a SOURCE"),
        (["--id-col", "label"], "three different columns"),
        (["nowhere"], "Wanted a folder at"),
        (["--check", "full"], "wanted sizes or hashes. Found: full."),
        (["--img-size", "9"], "Wanted an image format"),
        (["--split", "splits/a"], "Wanted --split alone"),
    ],
)
def test_invalid_arguments_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tables = [] if "-m" in arguments else ["-m", "k.metadata"]
    tables += [] if "-d" in arguments else ["-d", "k.data"]
    assert message in refused(lambda: job.parse_args([*tables, *arguments]), capsys)


def test_the_command_line_makes_the_plan(tmp_path: Path) -> None:
    tables = ["-d", "k.data", "-m", "k.metadata"]
    plan, args = job.parse_args(["--split", "splits/a", "--json"])
    assert (plan, args.json) == ("splits/a", True)
    plan, args = job.parse_args([*tables, "--check", "sizes", "--json"])
    assert isinstance(plan, VerifyPlan)
    assert (plan.check, plan.repair, plan.ingest, args.json) == ("sizes", False, None, True)
    (tmp_path / "val").mkdir()
    given = [str(tmp_path), "--split-subdir", "val", "--img-format", "JPEG", "--img-size", "64", "--dataset", "d"]
    plan, _ = job.parse_args([*tables, *given, "--repair"])
    assert isinstance(plan, VerifyPlan)
    assert plan.ingest is not None
    assert plan.ingest.source.splits == ("val",)
    assert plan.ingest.source_name == f"{tmp_path.as_uri()}?img-format=JPEG&img-size=64&quality=90"
    assert (plan.repair, plan.ingest.dataset, plan.ingest.create) == (True, "d", False)
