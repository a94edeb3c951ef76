"""Two runs that publish into one folder at once: one wins as a whole, and the other one says so."""

import random
import shutil
from pathlib import Path

import pytest

from etl.errors import OutputExistsError
from etl.splits.output import SplitOutput
from tests.support.publications import check_turns


@pytest.mark.parametrize("overwrite", [True, False])
def test_of_two_runs_at_once_the_later_one_wins_as_a_whole_or_fails(tmp_path: Path, overwrite: bool) -> None:
    counts = set()
    for seed in range(150):
        counts.add(len(check_turns(str(tmp_path / str(seed)), seed=seed, overwrite=overwrite)))
    assert counts == ({1, 2} if overwrite else {1})


def test_a_killed_run_leaves_a_whole_output_to_readers_and_to_the_next_run(tmp_path: Path) -> None:
    steps = random.Random(0)
    for seed in range(150):
        check_turns(str(tmp_path / str(seed)), seed=seed, kills={"one": steps.randrange(60)})


def test_whatever_fails_once_another_run_has_removed_the_files_is_told_so(tmp_path: Path) -> None:
    """Spark reads what it has written aside, and says that a path does not exist."""
    with (
        pytest.raises(OutputExistsError, match=r"Wanted no other run that writes a split to .* Nothing of this run"),
        SplitOutput(str(tmp_path / "split"), overwrite=True) as output,
    ):
        shutil.rmtree(Path(output.aside("rows").removeprefix("file://")).parent)
        raise RuntimeError("PATH_NOT_FOUND")
    with (
        pytest.raises(RuntimeError, match="something else"),
        SplitOutput(str(tmp_path / "other"), overwrite=True),
    ):
        raise RuntimeError("something else")
