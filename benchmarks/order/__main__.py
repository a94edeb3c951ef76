"""How exact the orders of classes are, what they cost, and what they do to a training.

    make bench-order

Epochs are counted image by image. An order of 100 million images is opened in a process whose memory is sampled. States
of 90 epochs are asked for the past, and those of random trainings are compared with what was delivered. An epoch in
stratified order is read from an embedded Cassandra in turn with one in the usual order, and an epoch is decoded with
crops by key in turn with crops by DALI's random numbers. The pixels of random trainings with a resume are compared with
those of undisturbed ones. Three sources are mixed in given shares, also by MosaicML streaming, LitData and torch, in
separate environments. Rates that `imagestrata plan` predicts are compared with those that are read at four round trips.
Then a small network learns digits of which some classes have 60 times as many images as others, in four orders, with 10
seeds each; the plot has the recall of each class. QUICK=1 counts and opens fewer images.
"""

import sys
from functools import partial
from operator import attrgetter
from pathlib import Path

from benchmarks.harness.command import Draw, Parts, run
from benchmarks.harness.loader_fixture import BLOBS, FULL, QUICK, LoaderFixture, loader_fixture
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.pictures import require_room
from benchmarks.harness.results import PLACE, Row
from benchmarks.harness.runs import describe
from benchmarks.order.crops import rows_of_crops, rows_of_resumes
from benchmarks.order.figures import FIGURES
from benchmarks.order.histories import rows_of_agreement, rows_of_queries
from benchmarks.order.mixtures import ROWS, row_of
from benchmarks.order.orders import rows_of_exactness, rows_of_large
from benchmarks.order.plans import row_of_plans
from benchmarks.order.study import Scores, draw, rows_of_study

SEEDS = 10
_DISK_BYTES = 4_000_000_000


def rows_of_rates(fixture: LoaderFixture) -> dict[int, Row]:
    """Alternating epochs in stratified and in the usual order."""
    sizes = fixture.sizes
    once = partial(fixture.run, "harness.consumers:fetch", BLOBS)
    names = ("stratified", "shuffled")
    runs = in_turn(sizes.many_pairs, {name: partial(once, sizes.fetched, sampling=name) for name in names})
    note = "; ".join(f"{name}: {describe(runs[name])}" for name in names)
    return {5: FIGURES.ratio_row(5, runs["stratified"], runs["shuffled"], by=attrgetter("rate"), note=note)}


def measure(parts: Parts, folder: Path) -> Draw | None:
    """Measure the requested rows."""
    require_room(folder, bytes=_DISK_BYTES, files=10_000)
    scores: list[Scores] = []
    parts.measure_whole([1, 2, 3], partial(rows_of_exactness, 100_000 if parts.is_quick else 1_000_000))
    parts.measure_whole([4, 6], partial(rows_of_large, folder, 1_000_000 if parts.is_quick else 100_000_000))
    parts.measure_whole([11, 12], partial(rows_of_queries, 1_000_000 if parts.is_quick else 100_000_000))
    parts.measure_whole([13], partial(rows_of_agreement, 50 if parts.is_quick else 1_000))
    if parts.wants([5, 14, 20, 21]):
        with loader_fixture(folder, QUICK if parts.is_quick else FULL) as fixture:
            fixture.write_all(BLOBS)
            for _ in range(3):  # a server is slow at first
                fixture.run("harness.consumers:fetch", BLOBS, fixture.sizes.warm)
            parts.measure_whole([5], partial(rows_of_rates, fixture))
            parts.measure_whole([14], partial(rows_of_crops, fixture))
            for number in (20, 21):
                parts.measure_whole([number], partial(row_of_plans, fixture, number))
    for number in ROWS:  # separately: if one package cannot be installed, the others are still measured
        parts.measure([number], lambda numbers: row_of(numbers, folder / "mixtures"))
    parts.measure_whole([15], partial(rows_of_resumes, folder, 5 if parts.is_quick else 50))

    def study() -> dict[int, Row]:
        rows, found = rows_of_study(SEEDS)
        scores.append(found)
        return rows

    parts.measure_whole([7, 8, 9, 10], study)
    return (lambda _: draw(PLACE / "order.png", scores[0])) if scores else None


if __name__ == "__main__":
    sys.exit(run("order", __doc__, FIGURES, measure, quick="fewer images"))
