"""The common command line of benchmarks."""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Never

import pytest

from benchmarks.harness import command, results
from benchmarks.harness.command import Parts, asked, run
from benchmarks.harness.figures import Figure, Figures
from benchmarks.harness.results import Row
from imagestrata.devstack import NodeError

FIGURES = Figures({1: Figure("one", "<", 1), 2: Figure("two", "<", 2), 3: Figure("three", "<", 3)})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], (False, {1, 2, 3})),
        (["--quick", "--only", "3, 1"], (True, {1, 3})),
        (["--only", "two, ^ON.$"], (False, {1, 2})),
    ],
)
def test_arguments_say_how_much_and_which_rows(
    given: list[str], found: tuple[bool, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *given])
    parts = asked("what it is", FIGURES, quick="less")
    assert (parts.is_quick, parts.wanted) == found


def test_unknown_rows_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "4"])
    with pytest.raises(SystemExit) as ended:
        asked("what it is", FIGURES, quick="less")
    assert ended.value.code == 2
    complaint = capsys.readouterr().err
    assert "from 1 to 3" in complaint
    assert all(f"{number}  {figure.text}\n" in complaint for number, figure in FIGURES.items())


def test_a_failing_part_does_not_affect_the_others() -> None:
    def measured(here: Collection[int]) -> Mapping[int, Row]:
        return {number: FIGURES.value_row(number, 0.5, note="") for number in here}

    def failing(here: Collection[int]) -> Mapping[int, Row]:
        raise ValueError(f"no {here}")

    parts = Parts(FIGURES, [2, 3])
    parts.measure([1], failing)  # not requested
    assert parts.is_whole
    parts.measure([2], failing)
    parts.measure([1, 3], measured)
    assert not parts.is_whole
    assert {number: row.value for number, row in parts.rows.items()} == {2: None, 3: 0.5}
    assert "ValueError: no [2]" in parts.rows[2].note


def test_a_quick_run_has_values_where_its_size_gives_them_a_meaning() -> None:
    figures = Figures({1: Figure("one", "<", 1), 2: Figure("two", "<", 2, "s", needs="a million rows")})
    for is_quick, value in ((True, None), (False, 1.5)):
        parts = Parts(figures, figures, is_quick=is_quick)
        parts.measure_whole([1, 2], lambda: {number: figures.value_row(number, 1.5, note="few") for number in figures})
        assert [row.value for row in parts.rows.values()] == [1.5, value]
        assert parts.rows[1].note == "few"
        assert (parts.rows[2].note == "not at this size, it needs a million rows; 1.50 s; few") == is_quick


def test_the_temporary_folder_is_removed_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "1"])
    monkeypatch.setattr(command, "PLACE", tmp_path / "bench")
    monkeypatch.setattr(results, "PLACE", tmp_path)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)

    def failing(parts: Parts, folder: Path) -> Never:
        (folder / "data").write_bytes(b"1")
        raise NodeError("Wanted a server. Found: none")

    def interrupted(parts: Parts, folder: Path) -> None:
        raise KeyboardInterrupt

    def partial(parts: Parts, folder: Path) -> None:
        parts.measure([1], lambda _: failing(parts, folder))

    def whole(parts: Parts, folder: Path) -> None:
        parts.measure([1], lambda _: {1: FIGURES.value_row(1, 0.5, note="")})

    def forgetful(parts: Parts, folder: Path) -> None:
        """Measures nothing."""

    works = (whole, partial, failing, interrupted, forgetful)
    assert [run("x", "", FIGURES, work) for work in works] == [0, 1, 1, 130, 1]
    assert "no part of the benchmark measures it" in (tmp_path / "x.json").read_text()
    assert "error: Wanted a server. Found: none\n" in capsys.readouterr().err
    assert list((tmp_path / "bench").iterdir()) == []
