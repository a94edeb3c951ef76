"""The figures of decoded images: over a long distance, and compared with DALI's own file reader."""

from collections.abc import Collection
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np

from benchmarks.harness.loader_fixture import PICTURES, LoaderFixture
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row
from benchmarks.harness.runs import Far, Run, describe
from benchmarks.loader.figures import FIGURES

NUMBERS = (8, 9)
SIZE = 224
THREADS = 2


def rows_of_decoded(fixture: LoaderFixture, wanted: Collection[int]) -> dict[int, Row]:
    """Measure the requested rows."""
    rows, pairs = {}, fixture.sizes.many_pairs
    folder = fixture.folder / "pictures"
    plant(folder, count=fixture.sizes.pictures)
    decoded(fixture, None, rows=fixture.sizes.pictures)  # warm-up
    if 8 in wanted:
        rtts = {"150 ms": Far(0.15), "0 ms": Far(0.0)}
        contenders = {name: partial(decoded, fixture, far) for name, far in rtts.items()}
        far, near = in_turn(pairs, contenders, told=_told).values()
        note = f"150 ms {describe(far)}; 0 ms {describe(near)}; {SIZE} pixels, {THREADS} threads"
        rows[8] = FIGURES.ratio_row(8, far, near, by=attrgetter("rate"), note=note, void=fixture.proxy.void(far, near))
    if 9 in wanted:
        contenders = {"ours": partial(decoded, fixture, None), "files": partial(from_files, fixture, folder)}
        ours, files = in_turn(pairs, contenders, told=_told).values()
        note = f"ours {describe(ours)}; files {describe(files)}; no proxy; {SIZE} pixels, {THREADS} threads"
        rows[9] = FIGURES.ratio_row(9, ours, files, by=lambda run: 1e3 / run.course.cpu_ms, note=note)
    return rows


def _told(name: str, run: Run) -> str:
    return f"decoded, {name}: {describe([run])}"


def decoded(fixture: LoaderFixture, far: Far | None, *, rows: int | None = None) -> Run:
    """Run our iterator."""
    rows = rows or fixture.sizes.decoded
    return fixture.run("harness.consumers:decode", PICTURES, rows, far=far, size=SIZE, threads=THREADS)


def from_files(fixture: LoaderFixture, folder: Path) -> Run:
    """Run DALI's reader."""
    rows, files = fixture.sizes.decoded, str(folder)
    return fixture.run("loader.baselines:decode_files", PICTURES, rows, files=files, size=SIZE, threads=THREADS)


def plant(folder: Path, *, count: int) -> None:
    """Write the images of the table as files named by their labels."""
    folder.mkdir()
    for _, label, data in PICTURES.rows(np.arange(count, dtype=np.int64)):
        (folder / f"{label:06}.jpg").write_bytes(data)
