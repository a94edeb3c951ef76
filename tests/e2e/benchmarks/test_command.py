"""What the commands of benchmarks share."""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from benchmarks.harness import command
from benchmarks.harness.command import Asked, Parts, asked, run
from benchmarks.harness.figures import Figure, Figures
from benchmarks.harness.results import Row
from devstack import NodeError

FIGURES = Figures({1: Figure("one", "<", 1), 2: Figure("two", "<", 2), 3: Figure("three", "<", 3)})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], Asked(False, frozenset({1, 2, 3}))),
        (["--quick", "--only", "3, 1"], Asked(True, frozenset({1, 3}))),
    ],
)
def test_arguments_say_how_much_and_which_rows(given: list[str], found: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *given])
    assert asked("what it is", FIGURES) == found


def test_unknown_rows_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "4"])
    with pytest.raises(SystemExit) as ended:
        asked("what it is", FIGURES)
    assert ended.value.code == 2
    assert "from 1 to 3" in capsys.readouterr().err


def test_a_failing_part_does_not_affect_the_others() -> None:
    def measured(here: Collection[int]) -> Mapping[int, Row]:
        return {number: FIGURES.value_row(number, 0.5, note="") for number in here}

    def failing(here: Collection[int]) -> Mapping[int, Row]:
        raise ValueError(f"no {here}")

    parts = Parts(FIGURES, [2, 3])
    parts.measure([1], failing)  # which nobody wants
    assert parts.is_whole
    parts.measure([2], failing)
    parts.measure([1, 3], measured)
    assert not parts.is_whole
    assert {number: row.value for number, row in parts.rows.items()} == {2: None, 3: 0.5}
    assert "ValueError: no [2]" in parts.rows[2].note


def test_the_temporary_folder_is_removed_after_success_failure_or_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "PLACE", tmp_path / "bench")
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)

    def failing(folder: Path) -> bool:
        (folder / "data").write_bytes(b"1")
        raise NodeError("Wanted a server. Found: none")

    def interrupted(folder: Path) -> bool:
        raise KeyboardInterrupt

    assert [run("x", work) for work in (lambda _: True, lambda _: False, failing, interrupted)] == [0, 1, 1, 130]
    assert "error: Wanted a server. Found: none\n" in capsys.readouterr().err
    assert list((tmp_path / "bench").iterdir()) == []
