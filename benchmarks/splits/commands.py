"""The figures of whole processes: the time of our command, and its memory compared with pandas."""

import shutil
import statistics
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness.pairs import in_turn
from benchmarks.harness.recount import Contents, contents, split_contents
from benchmarks.harness.results import Row, tell
from benchmarks.splits.caches import Cache
from benchmarks.splits.figures import FIGURES
from benchmarks.splits.fixture import RATIOS
from benchmarks.splits.processes import call, peak_mb, split_command
from benchmarks.splits.sizes import Sizes

NUMBERS = (4, 5)
HEAP = "2g"
_UUID_BYTES = 700
"""Memory per row of a DataFrame with object ids while it is pickled, as measured, plus a reserve."""


def rows_of_commands(folder: Path, caches: Mapping[int, Cache], sizes: Sizes, *, quick: bool) -> dict[int, Row]:
    """Measure the rows that need the command, over the given caches."""
    rows: dict[int, Row] = {}
    seconds: list[float] = []
    if 4 in caches:
        rows[4], seconds = _memory(folder, caches[4], pairs=sizes.memory_pairs)
    if 5 in caches:
        heap = "a heap of 2 GB"
        if not (quick and seconds):  # else the seconds of the nearly identical command for memory are used
            heap = "Spark's default heap"
            seconds = [_command(folder, caches[5], turn=turn + 1) for turn in range(sizes.command_runs)]
        told = ", ".join(f"{one:.1f}" for one in seconds)
        note = f"{caches[5].rows:,} rows, 2 cores, {heap}; median of {len(seconds)}: {told}"
        rows[5] = FIGURES.value_row(5, statistics.median(seconds), note=note, runs=len(seconds))
    return rows


def _command(folder: Path, cache: Cache, *, turn: int) -> float:
    """The seconds of our command."""
    found = split_command(cache.folder, out=folder / "out", local=folder / "spark")
    _prove(found.answer["rows"], [cache.rows * ratio / sum(RATIOS) for ratio in RATIOS])
    shutil.rmtree(folder / "out")
    tell(f"{turn}: spark-submit over {cache.rows:,} rows: {found.seconds:.1f} s")
    return found.seconds


def _memory(folder: Path, cache: Cache, *, pairs: int) -> tuple[Row, list[float]]:
    """The row of memory, and the seconds of our command."""
    known = contents(cache.files)
    as_uuids = cache.rows * _UUID_BYTES < psutil.virtual_memory().available
    kind = "uuid" if as_uuids else "bytes"
    pickled, split = folder / "frame.pickle", folder / "split.pickle"
    tell(f"{cache.rows:,} ids as {kind} objects in a pickled DataFrame")
    made = call("splits.frames:make", str(pickled), str(cache.folder), kind)
    tell(f"made in {made.seconds:.0f} s")
    times: list[float] = []

    def measure_ours() -> float:
        found = split_command(cache.folder, out=folder / "out", local=folder / "spark", heap=HEAP)
        split_contents(folder / "out", len(RATIOS), known=known)
        shutil.rmtree(folder / "out")
        times.append(found.seconds)
        return peak_mb(found)

    def measure_pandas() -> float:
        found = call("splits.frames:split_pickle", str(split), str(pickled))
        prove_pandas(found.answer, known)
        split.unlink()
        return peak_mb(found)

    contenders = {"ours": measure_ours, "pandas": measure_pandas}
    ours, others = in_turn(pairs, contenders, told=lambda name, mb: f"{name}: {mb:,.0f} MB").values()
    pickled.unlink()
    note = f"{cache.rows:,} rows; RssAnon of all processes together, in MB; ours with a heap of 2 GB, Spark's launcher "
    note += f"and Python included, {statistics.median(times):.0f} s; pandas with ids as "
    note += "UUID objects" if as_uuids else "bytes of 16, as UUID objects would not fit this machine"
    return FIGURES.ratio_row(4, ours, others, note=note), times


def prove_pandas(answer: Mapping[str, Any], known: Contents) -> None:
    """Raise RuntimeError unless the pandas baseline split exactly these rows, near 8:1:1 in every class."""
    found = [sum(rows) for rows in zip_longest(*answer["counts"], fillvalue=0)]
    if tuple(found) != known.counts or answer["id_sum"] != known.id_sum:
        raise RuntimeError(f"Wanted the rows of the input from pandas. Found: others, {sum(found):,} of them.")
    slack = len(known.counts)
    ideals = [known.rows * ratio / sum(RATIOS) for ratio in RATIOS]
    _prove([sum(of_split) for of_split in answer["counts"]], ideals, slack=slack)


def _prove(rows: list[int], ideals: list[float], *, slack: float = 1) -> None:
    if any(abs(found - ideal) > slack for found, ideal in zip(rows, ideals, strict=True)):
        raise RuntimeError(f"Wanted splits of about {ideals} rows. Found: {rows}")
