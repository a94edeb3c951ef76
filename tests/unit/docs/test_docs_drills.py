"""The table of drills in docs/reliability.md, in which results of many runs are counted."""

from pathlib import Path

import pytest

from tests.support.drills.__main__ import add_to_table, main, times_in
from tests.support.drills.drill import DRILLS, Outcome

PAGE = "before\n<!-- drills -->\n<!-- /drills -->\nafter\n"


def test_drills_are_counted_over_runs(tmp_path: Path) -> None:
    page, (first, second) = tmp_path / "page.md", DRILLS[:2]
    page.write_text(PAGE, encoding="utf-8")
    add_to_table(page, [Outcome(first, "ended well"), Outcome(second, "killed", wrong=["one lost"])])
    add_to_table(page, [Outcome(first, "an error"), Outcome(first, "ended well", was_running=False),
                        Outcome(second, not_possible="no disk")])  # fmt: skip
    add_to_table(page, [Outcome(first, "ended well")])
    names = [f"{one.work.name} | {one.fault.name}" for one in (first, second)]
    rows = [f"| {names[0]} | 3 | ended well, or an error | nothing |", f"| {names[1]} | 1 | killed | 1 |"]
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [lines[0], *lines[4:6], lines[-1]] == ["before", *rows, "after"]
    assert [times_in(page, one) for one in DRILLS[:3]] == [3, 1, 0]


@pytest.mark.parametrize("found", [None, "a page without one"])
def test_a_table_that_is_not_there_is_refused_before_anything_starts(
    tmp_path: Path, found: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    if found is not None:
        page.write_text(found, encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["drills", "--table", str(page)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert f"Wanted a table of drills in {page}" in capsys.readouterr().err
