"""The figures of decoded pictures: over a long way, and beside DALI's own reader of files."""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from benchmarks.harness.command import tell
from benchmarks.harness.loader_stage import PICTURES, Far, LoaderStage, Run, describe
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row
from benchmarks.loader.figures import FIGURES

NUMBERS = (8, 9)
SIZE = 224
THREADS = 2


def rows_of_decoded(stage: LoaderStage, wanted: Collection[int]) -> dict[int, Row]:
    """Measure, and make the rows that are wanted."""
    rows, pairs = {}, stage.sizes.many_pairs
    folder = stage.folder / "pictures"
    plant(folder, count=stage.sizes.pictures)
    decoded(stage, None, rows=stage.sizes.pictures)  # warm-up
    if 8 in wanted:
        far, near = in_turn(pairs, {0.15: lambda: decoded(stage, 0.15), 0.0: lambda: decoded(stage, 0.0)}).values()
        note = f"150 ms {describe(far)}; 0 ms {describe(near)}; {SIZE} pixels, {THREADS} threads"
        rates = ([run.rate for run in runs] for runs in (far, near))
        rows[8] = FIGURES.ratio_row(8, *rates, note=note, void=stage.void(far, near))
    if 9 in wanted:
        ours, files = in_turn(
            pairs, {"ours": lambda: decoded(stage, None), "files": lambda: from_files(stage, folder)}
        ).values()
        note = f"ours {describe(ours)}; files {describe(files)}; no proxy; {SIZE} pixels, {THREADS} threads"
        costs = ([1e3 / run.course.cpu_ms for run in runs] for runs in (ours, files))
        rows[9] = FIGURES.ratio_row(9, *costs, note=note)
    return rows


def decoded(stage: LoaderStage, rtt: float | None, *, rows: int | None = None) -> Run:
    """Our iterator once."""
    far = None if rtt is None else Far(rtt)
    run = stage.run(
        "loader.consumers:decode", PICTURES, rows or stage.sizes.decoded, far=far, size=SIZE, threads=THREADS
    )
    tell(f"decoded, {'no proxy' if rtt is None else f'{1e3 * rtt:.0f} ms'}: {run.rate:,.0f} images/s")
    return run


def from_files(stage: LoaderStage, folder: Path) -> Run:
    """DALI's reader once."""
    run = stage.run(
        "loader.rivals:decode_files", PICTURES, stage.sizes.decoded, files=str(folder), size=SIZE, threads=THREADS
    )
    tell(f"decoded from files: {run.rate:,.0f} images/s")
    return run


def plant(folder: Path, *, count: int) -> None:
    """The pictures of the table as files, each named by its label."""
    folder.mkdir()
    for _, label, data in PICTURES.rows(np.arange(count, dtype=np.int64)):
        (folder / f"{label:06}.jpg").write_bytes(data)
