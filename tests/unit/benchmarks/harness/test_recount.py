"""Recounts of splits: cells, groups, and whether the rows are the same."""

from fractions import Fraction
from math import ceil, floor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.recount import cells_off, contents, footer_rows, largest_distance, leaked_groups, split_contents

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
    assert cells_off([10, 13], [[7, 10], [2, 2], [1, 1]], RATIOS) == 2  # 8 and 1 are exact: nothing else is accepted
    assert cells_off([10, 13], [[8, 12], [1, 1], [1]], RATIOS) == 2  # neither 10.4 to 12 nor 1.3 to 0 is rounding
    assert cells_off([10, 13], [[8, 11], [1, 2], [1, 1]], RATIOS) == 1  # each cell is right, but 14 rows are not 13
    assert cells_off([10], [[8, 1], [1], [1]], RATIOS) == 2  # an extra class: a wrong cell and a wrong total
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


def test_a_split_folder_without_some_of_the_rows_is_refused(tmp_path: Path) -> None:
    rows = [(one, number // 10) for number, one in enumerate(ids(20))]
    for split, some in enumerate((rows[:16], rows[16:18], rows[18:])):
        write(tmp_path / f"split={split}" / "part-0.parquet", some)
    known = contents(tmp_path.rglob("*.parquet"))
    assert [part.rows for part in split_contents(tmp_path, 3, known=known)] == [16, 2, 2]
    assert footer_rows(tmp_path) == 20
    with pytest.raises(RuntimeError, match="Wanted the 20 rows of the input"):
        split_contents(tmp_path, 2, known=known)
