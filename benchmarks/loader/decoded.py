"""The figures of decoded pictures: over a long way, and beside DALI's own reader of files."""

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from benchmarks.harness.command import tell
from benchmarks.harness.loader_stage import PICTURES, Far, Run, Stage, describe
from benchmarks.harness.results import Row
from benchmarks.loader.figures import FIGURES

NUMBERS = (8, 9)
SIZE = 224
THREADS = 2


def rows_of_decoded(stage: Stage, wanted: Collection[int], *, quick: bool) -> dict[int, Row]:
    """Measure, and make the rows that are wanted."""
    rows = {}
    folder = stage.folder / "pictures"
    plant(folder, count=stage.sizes.pictures)
    decoded(stage, None, rows=stage.sizes.pictures)  # warm-up
    if 8 in wanted:
        far, near = _in_turn(stage, lambda: decoded(stage, 0.15), lambda: decoded(stage, 0.0))
        note = f"150 ms {describe(far)}; 0 ms {describe(near)}; {SIZE} pixels, {THREADS} threads"
        rates = ([run.rate for run in runs] for runs in (far, near))
        rows[8] = FIGURES.ratio_row(8, *rates, note=note, quick=quick, void=stage.void(far, near))
    if 9 in wanted:
        ours, files = _in_turn(stage, lambda: decoded(stage, None), lambda: from_files(stage, folder))
        note = f"ours {describe(ours)}; files {describe(files)}; no proxy; {SIZE} pixels, {THREADS} threads"
        costs = ([1e3 / run.course.cpu_ms for run in runs] for runs in (ours, files))
        rows[9] = FIGURES.ratio_row(9, *costs, note=note, quick=quick)
    return rows


def decoded(stage: Stage, rtt: float | None, *, rows: int | None = None) -> Run:
    """Our iterator once."""
    far = None if rtt is None else Far(rtt)
    run = stage.run("decode", PICTURES, rows or stage.sizes.decoded, far=far, size=SIZE, threads=THREADS)
    tell(f"decoded, {'no proxy' if rtt is None else f'{1e3 * rtt:.0f} ms'}: {run.rate:,.0f} images/s")
    return run


def from_files(stage: Stage, folder: Path) -> Run:
    """DALI's reader once."""
    run = stage.run("files", PICTURES, stage.sizes.decoded, files=str(folder), size=SIZE, threads=THREADS)
    tell(f"decoded from files: {run.rate:,.0f} images/s")
    return run


def plant(folder: Path, *, count: int) -> None:
    """The pictures of the table as files, each named by its label."""
    folder.mkdir()
    for _, label, data in PICTURES.rows(np.arange(count, dtype=np.int64)):
        (folder / f"{label:06}.jpg").write_bytes(data)


def _in_turn(stage: Stage, one: Callable[[], Run], other: Callable[[], Run]) -> tuple[list[Run], list[Run]]:
    first: list[Run] = []
    second: list[Run] = []
    for turn in range(stage.sizes.many_pairs):
        for is_first in (True, False) if turn % 2 == 0 else (False, True):
            (first if is_first else second).append((one if is_first else other)())
    return first, second
