"""The figures of 100 million rows: time compared with plain Spark, class sizes, the driver's load, exactness."""

import shutil
import statistics
from collections.abc import Collection, Mapping
from operator import attrgetter

from benchmarks.harness.recount import Contents, cells_off, contents, largest_distance, split_files
from benchmarks.harness.results import Row, tell
from benchmarks.splits.baselines import copy, range_sort
from benchmarks.splits.caches import Cache, plant
from benchmarks.splits.figures import FIGURES
from benchmarks.splits.fixture import RATIOS, Run, SplitFixture
from benchmarks.splits.sizes import Sizes

NUMBERS = (1, 2, 6, 7, 8, 11, 12)
HEAVY = 0.9

OURS, SORTED, HEAVIER, UNPLACED, COPY = ("ours", "range sort", "ours, a heavy class", "ours, no positions", "copy")
_NEEDED = {1: (OURS, SORTED), 2: (UNPLACED, COPY), 6: (OURS, HEAVIER)}
_TOGETHER = (HEAVIER, OURS, SORTED, UNPLACED, COPY)
"""The order in which they run, and then in reverse: those that are compared are neighbours."""


class Large:
    """Runs contenders over the same rows alternately, and checks what each wrote in its first run."""

    def __init__(self, fixture: SplitFixture, names: Collection[str]) -> None:
        self._fixture = fixture
        self._names = [name for name in _TOGETHER if name in names]
        self._files = 1
        self.runs: dict[str, list[Run]] = {name: [] for name in self._names}
        self.cells_off = 0
        self.distance = 0.0
        self.cells: list[str] = []
        """The runs that were checked."""

    def plant(self, rows: int) -> dict[str, Cache]:
        """Write what each contender reads: usual classes for all but one of them."""
        found: dict[str, Cache] = {}
        for heavy in (0.0, HEAVY):
            readers = [name for name in self._names if (name == HEAVIER) == bool(heavy)]
            if readers:
                tell(f"{rows:,} rows of {'a heavy class' if heavy else 'Zipf classes'}")
                folder = self._fixture.folder / f"cache-{'heavy' if heavy else 'usual'}"
                shutil.rmtree(folder, ignore_errors=True)
                found.update(dict.fromkeys(readers, plant(self._fixture.spark, folder, rows=rows, heavy=heavy)))
        return found

    def measure(self, rows: int, *, rounds: Mapping[str, int]) -> None:
        """Run each contender this often. Raises RuntimeError if one writes other rows, or not the same again."""
        caches = self.plant(rows)
        known = {cache.folder: contents(cache.files) for cache in caches.values()}
        for turn in range(max(rounds.values())):
            names = [name for name in self._names if turn < rounds[name]]
            for name in names if turn % 2 == 0 else reversed(names):
                run = self.once(name, caches[name])
                self.runs[name].append(run)
                tell(f"{turn + 1}: {name}: {run.seconds:.1f} s, {run.result_bytes / 1e6:.1f} MB of results")
                if turn == 0:
                    self._prove(name, known[caches[name].folder])
                elif run.fingerprints != self.runs[name][0].fingerprints:
                    raise RuntimeError(f"Wanted the same split again from {name}. Found: other fingerprints.")

    def once(self, name: str, cache: Cache) -> Run:
        """Run one contender. The range sort writes as many files as our run before it."""
        fixture = self._fixture
        if name == COPY:
            return fixture.measure(lambda: copy(fixture.spark, cache, fixture.out), rows=cache.rows)
        if name == SORTED:
            files = self._files
            return fixture.measure(lambda: range_sort(fixture.spark, cache, fixture.out, files=files), rows=cache.rows)
        run = fixture.ours(cache, has_position=name != UNPLACED)
        self._files = run.files if name == OURS else self._files
        return run

    def _prove(self, name: str, wanted: Contents) -> None:
        """Check that ids and labels are those of the input, and count the cells where a split of ours is not exact."""
        out = self._fixture.out
        if name in (COPY, SORTED):
            found = contents(sorted(out.glob("part-*.parquet")))
        else:
            parts = [contents(split_files(out, number)) for number in range(len(RATIOS))]
            found = sum(parts[1:], start=parts[0])
            self.cells_off += cells_off(wanted.counts, [part.counts for part in parts], RATIOS)
            distance = largest_distance(wanted.rows, [part.rows for part in parts], RATIOS)
            self.distance = max(self.distance, distance)
            self.cells.append(name)
        if found != wanted:
            raise RuntimeError(f"Wanted the rows of the input from {name}. Found: others, {found.rows:,} of them.")


def rows_of_large(fixture: SplitFixture, sizes: Sizes, wanted: Collection[int]) -> dict[int, Row]:
    """Measure the requested rows."""
    names = {name for number in wanted for name in _NEEDED.get(number, (OURS,))}
    if sizes.warm:
        warm = Large(fixture, names)
        for name, cache in warm.plant(sizes.warm).items():
            warm.once(name, cache)
    large = Large(fixture, names)
    rounds = dict.fromkeys(names, sizes.pairs if len(names) > 1 else 1)
    if {HEAVIER, SORTED} <= names:
        rounds[HEAVIER] = sizes.heavy_pairs
    large.measure(sizes.large, rounds=rounds)
    for folder in fixture.folder.glob("cache-*"):
        shutil.rmtree(folder)
    rows: dict[int, Row] = {}
    for number, (one, other) in {1: (OURS, SORTED), 2: (UNPLACED, COPY), 6: (HEAVIER, OURS)}.items():
        if number in wanted:
            pairs = min(rounds[one], rounds[other])
            note, runs = _note(large.runs, one, other, sizes), (large.runs[name][:pairs] for name in (one, other))
            rows[number] = FIGURES.ratio_row(number, *runs, by=attrgetter("seconds"), note=note)
    if {7, 8}.intersection(wanted):
        rows |= _driver_load(fixture, sizes, large.runs[OURS])
    note = f"{sizes.note}{sizes.large:,} rows counted again from Parquet, of {' and of '.join(large.cells)}"
    rows[11] = FIGURES.value_row(11, large.cells_off, note=note)
    rows[12] = FIGURES.value_row(12, large.distance, note=note)
    return rows


def _driver_load(fixture: SplitFixture, sizes: Sizes, runs: list[Run]) -> dict[int, Row]:
    """The bytes that tasks return to the driver, compared with a tenth of the rows."""
    folder = fixture.folder / "cache-small"
    fewer = fixture.ours(plant(fixture.spark, folder, rows=sizes.small))
    small, asked = fewer.result_bytes / 1e6, statistics.median(run.asked_bytes for run in runs)
    shutil.rmtree(folder)
    large = statistics.median(run.result_bytes for run in runs) / 1e6
    note = f"{sizes.note}resultSize of all stages in the session's status store; {sizes.large:,} rows"
    kept = f"in MB; rows that the driver asked for: {asked / 1e6:.2f} over {fewer.asked_bytes / 1e6:.2f}, "
    kept += f"{asked / fewer.asked_bytes:.2f}; the rest is what Spark counts of each task"
    done = f"{note}; all of them done with a heap of {fixture.heap_bytes / 2**30:.1f} GB"
    return {
        7: FIGURES.ratio_row(7, [large], [small], note=f"{note} over {sizes.small:,}; {kept}"),
        8: FIGURES.value_row(8, large, note=done, runs=len(runs)),
    }


def _note(runs: Mapping[str, list[Run]], one: str, other: str, sizes: Sizes) -> str:
    rates = " and ".join(f"{name} {sizes.large / _median(runs[name]) / 1e6:.2f}" for name in (one, other))
    files = " and ".join(f"{runs[name][0].files:,}" for name in (one, other))
    return f"{sizes.note}{sizes.large:,} rows on 2 cores; seconds; million rows a second: {rates}; {files} files"


def _median(runs: list[Run]) -> float:
    return statistics.median(run.seconds for run in runs)
