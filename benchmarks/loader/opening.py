"""The figures of opening: seconds to the first batch for splits of two sizes, and a rank's memory with a large one."""

import os
import shutil
import statistics
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.loader_fixture import OPENED, LoaderFixture
from benchmarks.harness.pictures import sums_of
from benchmarks.harness.results import Row, tell
from benchmarks.harness.runs import check
from benchmarks.harness.split_folders import write_split
from benchmarks.loader.figures import FIGURES
from loader.order.permutation import epoch_order

NUMBERS = (12, 13, 14, 15)
_PAUSE = 0.5


def rows_of_opening(fixture: LoaderFixture, wanted: Collection[int]) -> dict[int, Row]:
    """Measure the requested rows. The files of each split are in the page cache because they were just written."""
    rows: dict[int, Row] = {}
    sizes, cache = fixture.sizes, fixture.folder / "opened"
    if 12 in wanted:
        split = _Split(fixture, sizes.small, batches=1)
        runs = []
        for _ in range(sizes.opened):
            shutil.rmtree(cache, ignore_errors=True)
            runs.append(split.open(cache))
        rows[12] = _seconds(12, runs, sizes.small)
        split.remove()
    if not {13, 14, 15}.intersection(wanted):
        return rows
    split = _Split(fixture, sizes.large, batches=sizes.read)
    shutil.rmtree(cache, ignore_errors=True)
    without = [split.open(cache)]
    rows[13] = _seconds(13, without, sizes.large)
    if 14 in wanted:
        rows[14] = _seconds(14, [split.open(cache) for _ in range(sizes.opened)], sizes.large)
    if 15 in wanted:
        run = split.open(cache, batches=sizes.read)
        beyond = run["peak_mb"] - sizes.budget / 1e6
        note = f"{sizes.large:,} rows; the most RssAnon is {run['peak_mb']:,.0f} MB, its budget "
        note += f"{sizes.budget / 1e6:.0f}; {run['opened_mb']:,.0f} MB when the split was open, "
        note += f"{without[0]['peak_mb']:,.0f} MB while the cache was built; {sizes.read} batches, slowly, so that it "
        note += "reads ahead all it may"
        rows[15] = FIGURES.value_row(15, beyond, note=note, runs=1)
    split.remove()
    shutil.rmtree(cache, ignore_errors=True)
    return rows


class _Split:
    """A split, and the images that its first epoch begins with in Cassandra."""

    def __init__(self, fixture: LoaderFixture, rows: int, *, batches: int) -> None:
        self._fixture = fixture
        self._folder: Path = fixture.folder / "large"
        tell(f"a split of {rows:,} rows")
        part = write_split(self._folder, OPENED, rows=rows)
        places = epoch_order(rows, fingerprint=part.fingerprint, seed=0, epoch=0, shuffle=True)
        assert places is not None
        ahead = fixture.sizes.budget // 100_000  # more images than fit in the budget
        count = min(rows, batches * fixture.sizes.batch + ahead)
        self._numbers = places(np.arange(count, dtype=np.int64))
        tell(f"{count:,} images that its epoch begins with")
        fixture.write(OPENED, self._numbers)
        fixture.read(OPENED, self._numbers)  # also warms the server up
        os.sync()  # otherwise a later sync of the cache would also wait for these writes

    def open(self, cache: Path, *, batches: int = 1) -> dict[str, Any]:
        """Open the split in a new process and read some batches. Raises RuntimeError if they are not the epoch's."""
        order: dict[str, Any] = {"split": str(self._folder), "cache": str(cache), "batches": batches, "pause": _PAUSE}
        answer, _, _ = self._fixture.answer("loader.memory:open_and_read", **order)
        tell(f"opened in {answer['opened']:.2f} s, first batch {answer['first']:.2f} s, {answer['peak_mb']:,.0f} MB")
        check(answer, asdict(sums_of(OPENED, self._numbers[: batches * self._fixture.sizes.batch])), "opening")
        return answer

    def remove(self) -> None:
        """Remove its files. The images stay in Cassandra."""
        shutil.rmtree(self._folder)


def _seconds(number: int, runs: list[dict[str, Any]], rows: int) -> Row:
    value, opened, connected = (
        statistics.median(run[name] for run in runs) for name in ("first", "opened", "connected")
    )
    note = f"{rows:,} rows, files in the page cache; of it opening {opened:.2f} s; connecting, "
    note += f"{connected:.2f} s, is not in it, imports are"
    return FIGURES.value_row(number, value, note=note, runs=len(runs))
