"""The parts of the benchmark of splits that can be right or wrong; nothing here is timed."""

import json
import sys
import uuid
from dataclasses import asdict
from fractions import Fraction
from math import ceil, floor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from benchmarks.harness.results import Row
from benchmarks.splits import commands, groups, identity, large, recount, tables
from benchmarks.splits.figures import FIGURES
from benchmarks.splits.frames import id_number, read_cache, split_frame
from benchmarks.splits.plot import CONTENDERS, draw
from benchmarks.splits.processes import peak_mb, watched
from benchmarks.splits.recount import cells_off, contents, footer_rows, largest_distance, leaked_groups, split_files
from benchmarks.splits.sizes import FULL, QUICK, fitted

RATIOS = (8, 1, 1)


def ids(rows: int, *, seed: int = 1) -> list[bytes]:
    raw = np.random.default_rng(seed).bytes(16 * rows)
    return [raw[at : at + 16] for at in range(0, len(raw), 16)]


def write(path: Path, rows: list[tuple[bytes, int]], groups: list[str] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "id": pa.array([one for one, _ in rows], pa.binary()),
        "label": pa.array([n for _, n in rows], pa.int32()),
    }
    pq.write_table(pa.table(columns | ({"group_id": groups} if groups is not None else {})), path, row_group_size=7)
    return path


def test_every_figure_has_one_part_that_measures_it() -> None:
    parts = (tables, groups, large, commands, identity)
    assert sorted(number for part in parts for number in part.NUMBERS) == list(FIGURES) == list(range(1, 14))
    assert len({figure.text for figure in FIGURES.values()}) == 13
    assert set(CONTENDERS) < set(FIGURES)
    for number, figure in FIGURES.items():
        assert FIGURES.value_row(number, figure.target, note="").met == ("=" in figure.op)  # every operator is known


def test_a_row_has_the_median_of_its_pairs_and_their_interval() -> None:
    full = FIGURES.ratio_row(1, [3.0, 6.0, 10.0], [2.0, 3.0, 4.0], note="few")
    assert (full.value, full.note, full.met) == (2.0, "few", True)
    assert full.interval is not None
    assert full.interval[0] < 2.0 < full.interval[1]
    assert FIGURES.ratio_row(4, [1.0], [4.0], note="").interval is None
    assert FIGURES.value_row(11, 3, note="").met is False


def test_a_quick_row_has_no_verdict_but_reports_what_was_found() -> None:
    row = FIGURES.quick_row(1, FIGURES.ratio_row(1, [3.0, 6.0, 10.0], [2.0, 3.0, 4.0], note="few"))
    assert (row.value, row.interval, row.met) == (None, None, None)
    assert (row.pairs, row.ours, row.other) == (3, 6.0, 3.0)
    assert row.note.startswith("not at this size, it needs millions of rows; 2.00 (")
    assert row.note.endswith(") ratio; few")
    assert FIGURES.quick_row(4, FIGURES.value_row(4, 12.0, note="few")).value is None
    assert FIGURES.quick_row(11, FIGURES.value_row(11, 3, note="few")).value == 3


def test_failed_measurements_get_rows_that_say_so() -> None:
    rows = FIGURES.failed_rows([9, 10], RuntimeError("no\n  memory"))
    assert {number: (row.value, row.note) for number, row in rows.items()} == {
        9: (None, "not measured: RuntimeError: no memory"),
        10: (None, "not measured: RuntimeError: no memory"),
    }


def test_new_measurements_replace_earlier_rows(tmp_path: Path) -> None:
    path = tmp_path / "splits.json"
    old = [FIGURES.ratio_row(number, [3.0, 3.0], [2.0, 2.0], note="old") for number in (9, 2)]
    path.write_text(json.dumps({"quick": False, "rows": [asdict(row) for row in old]}))
    new = FIGURES.value_row(12, 0.5, note="new"), FIGURES.ratio_row(2, [3.0, 3.0], [3.0, 3.0], note="new")
    assert FIGURES.with_earlier({12: new[0], 2: new[1]}, path, quick=False) == [new[1], old[0], new[0]]
    assert FIGURES.with_earlier({12: new[0], 2: new[1]}, path, quick=True) == [new[1], new[0]]  # of another size
    assert FIGURES.with_earlier({12: new[0]}, tmp_path / "none.json", quick=True) == [new[0]]


def test_numbers_and_words_for_rows_are_checked() -> None:
    assert FIGURES.parse_rows("3, 1") == {1, 3}
    assert FIGURES.parse_rows("4 GB$, groups that") == {8, 10}
    for text in ("", "0", "14", "1,,2", "ones"):
        with pytest.raises(ValueError, match="Wanted numbers of rows from 1 to 13"):
            FIGURES.parse_rows(text)
    with pytest.raises(ValueError, match="Wanted a regular expression"):
        FIGURES.parse_rows("(")


def test_less_disk_means_fewer_rows_and_a_note() -> None:
    assert fitted(FULL, free=12 * 10**9) is FULL
    assert fitted(QUICK, free=2 * 10**9) is QUICK
    less = fitted(FULL, free=6_300_000_000)
    assert (less.large, less.small, less.groups) == (50_000_000, 5_000_000, 500_000)
    assert less.note == "50,000,000 rows instead of 100,000,000, for which the disk had no room; "
    with pytest.raises(OSError, match=r"Wanted 1\.1 GB free for a million rows\. Found: 0\.5 GB"):
        fitted(FULL, free=5 * 10**8)


def test_the_content_digest_ignores_files_and_order_but_not_labels(tmp_path: Path) -> None:
    rows = [(one, number % 5) for number, one in enumerate(ids(50))]
    whole = contents([write(tmp_path / "whole.parquet", rows)])
    assert (whole.rows, whole.counts) == (50, (10,) * 5)
    assert whole.id_sum == sum(int.from_bytes(one, "big") for one, _ in rows) % (1 << 128)
    two = [write(tmp_path / "a.parquet", rows[30:]), write(tmp_path / "b.parquet", rows[:30][::-1])]
    assert contents(two) == contents(two[:1]) + contents(two[1:]) == whole
    (first, a), (second, b), *others = rows
    swapped = contents([write(tmp_path / "swapped.parquet", [(first, b), (second, a), *others])])
    assert (swapped.counts, swapped.id_sum) == (whole.counts, whole.id_sum)
    assert swapped != whole


@given(data=st.data())
def test_cells_off_agrees_with_exact_fractions(data: st.DataObject) -> None:
    totals = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=5))
    counts = st.lists(st.integers(0, 26), min_size=len(totals), max_size=len(totals))
    cells = [data.draw(counts) for _ in RATIOS]
    expected = 0
    for label, total in enumerate(totals):
        row = [of_split[label] for of_split in cells]
        ideals = [Fraction(total * ratio, sum(RATIOS)) for ratio in RATIOS]
        expected += sum(found not in (floor(ideal), ceil(ideal)) for found, ideal in zip(row, ideals, strict=True))
        expected += sum(row) != total
    assert cells_off(totals, cells, RATIOS) == expected


def test_each_wrong_cell_and_total_is_counted() -> None:
    assert cells_off([10, 13], [[8, 10], [1, 2], [1, 1]], RATIOS) == 0
    assert cells_off([10, 13], [[7, 10], [2, 2], [1, 1]], RATIOS) == 2  # 8 and 1 are whole: nothing else will do
    assert cells_off([10, 13], [[8, 12], [1, 1], [1]], RATIOS) == 2  # 10.4 is not 12, 1.3 is not 0
    assert cells_off([10, 13], [[8, 11], [1, 2], [1, 1]], RATIOS) == 1  # each is fine, but 14 rows are not 13
    assert cells_off([10], [[8, 1], [1], [1]], RATIOS) == 2  # a class that is not there: one row too many, twice wrong
    assert largest_distance(23, [18, 3, 2], RATIOS) == pytest.approx(0.7)
    assert largest_distance(20, [16, 2, 2], RATIOS) == 0


def test_groups_in_two_splits_are_counted(tmp_path: Path) -> None:
    rows = [(one, 0) for one in ids(12)]
    cache = [
        write(tmp_path / "c" / "0.parquet", rows[:6], ["a", "a", "b", "b", "c", "c"]),
        write(tmp_path / "c" / "1.parquet", rows[6:], ["a", "d", "d", "e", "e", "f"]),
    ]
    first = write(tmp_path / "s" / "split=0" / "part-0.parquet", [*rows[:4], rows[7]])
    second = write(tmp_path / "s" / "split=1" / "part-0.parquet", [*rows[4:7], *rows[8:]])
    assert leaked_groups(cache, [[first], [second]]) == 2  # a and d
    assert leaked_groups(cache, [[first, second], []]) == 0
    strange = write(tmp_path / "x.parquet", [(one, 0) for one in ids(1, seed=2)])
    with pytest.raises(ValueError, match="among the metadata"):
        leaked_groups(cache, [[strange]])
    with pytest.raises(ValueError, match="first 8 bytes"):
        leaked_groups([cache[0], cache[0]], [[first]])


def test_a_split_folder_is_counted_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(one, number // 10) for number, one in enumerate(ids(20))]
    write(tmp_path / "cache" / "rows" / "0.parquet", rows, [f"g{number // 2}" for number in range(20)])
    for split, places in enumerate([[*range(8), *range(10, 18)], [8, 18], [9, 19]]):
        write(tmp_path / "s" / f"split={split}" / "part-0.parquet", [rows[place] for place in places])
    assert footer_rows(tmp_path / "s") == 20
    assert [len(split_files(tmp_path / "s", split)) for split in (0, 3)] == [1, 0]
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "cache"), str(tmp_path / "s"), "8,1,1"])
    assert recount.main() == 0
    assert json.loads(capsys.readouterr().out) == {"cells_off": 0, "largest_distance": 0.0, "leaked_groups": 2}


def test_the_pandas_way_splits_every_class_and_keeps_every_row(tmp_path: Path) -> None:
    rows = [(one, number % 3) for number, one in enumerate(ids(90))]
    write(tmp_path / "rows" / "0.parquet", rows)
    known = contents([tmp_path / "rows" / "0.parquet"])
    for as_uuids in (True, False):
        frame = read_cache(tmp_path, as_uuids=as_uuids)
        split = split_frame(frame, ratios=RATIOS, seed=7)
        assert isinstance(split["row_keys"][0], uuid.UUID if as_uuids else bytes)
        assert [len(places) for places in split["split"]] == [72, 9, 9]
        assert sorted(np.concatenate(split["split"]).tolist()) == list(range(90))
        assert any(not np.array_equal(a, b) for a, b in zip(split["split"], again(frame, seed=8), strict=True))
        counts = [np.bincount(frame["label"].to_numpy()[places]).tolist() for places in split["split"]]
        id_sum = sum(map(id_number, split["row_keys"])) % (1 << 128)
        commands.prove_pandas({"counts": counts, "id_sum": id_sum}, known)
        for wrong in ({"counts": counts, "id_sum": id_sum + 1}, {"counts": counts[:2], "id_sum": id_sum}):
            with pytest.raises(RuntimeError, match="Wanted the rows of the input from pandas"):
                commands.prove_pandas(wrong, known)


def again(frame: pd.DataFrame, *, seed: int) -> list[np.ndarray]:
    return list(split_frame(frame, ratios=RATIOS, seed=seed)["split"])


def test_a_process_is_watched_until_it_says_that_it_is_done() -> None:
    work = (
        "import json, time; held = bytearray(60_000_000); time.sleep(0.5); at = time.monotonic();"
        "more = bytearray(200_000_000); time.sleep(0.5); print('noise'); print(json.dumps({'ended': at}))"
    )
    finished = watched([sys.executable, "-c", work])
    assert 60 < peak_mb(finished) < 200
    assert max(memory for _, memory in finished.samples) > 250
    assert finished.seconds > 1
    with pytest.raises(RuntimeError, match=r"Found: 1, \['ZeroDivisionError"):
        watched([sys.executable, "-c", "1 / 0"])


def test_the_plot_is_a_picture_with_and_without_rows(tmp_path: Path) -> None:
    rows = [FIGURES.ratio_row(number, [3.0, 4.0], [2.0, 0.5], note="") for number in (1, 9)]
    failed: list[Row] = list(FIGURES.failed_rows([3], ValueError("x")).values())
    for name, found in (("some", [*rows, *failed]), ("none", [])):
        with Image.open(draw(tmp_path / "build" / f"{name}.png", found)) as image:
            assert image.size == (900, 440)
