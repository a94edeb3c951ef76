"""Figures of three nodes with a copy of every image each: the cost of quorum reads, and what checksums save of it."""

from functools import partial
from operator import attrgetter

from benchmarks.harness.loader_fixture import BLOBS, LoaderFixture, loader_fixture
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row, tell
from benchmarks.harness.runs import Run, describe
from benchmarks.loader.figures import FIGURES

NUMBERS = (16, 18)
_NODES = 3
_QUORUM, _ONE, _CHECKED = "LOCAL_QUORUM", "LOCAL_ONE", "checksums"


def rows_of_copies(fixture: LoaderFixture, *, is_left_out: bool) -> dict[int, Row]:
    """Both levels and a split with checksums alternately, on a separate cluster. A quick run of all figures leaves it
    out.
    """
    if is_left_out:
        note = "three nodes take a minute to start: QUICK=1 ONLY=16,18 measures it"
        return {number: FIGURES.value_row(number, None, note=note) for number in NUMBERS}
    sizes = fixture.sizes
    with loader_fixture(fixture.folder / "copies", sizes, nodes=_NODES) as cluster:
        tell(f"{_NODES} copies of each image")
        cluster.write_all(BLOBS)

        def fetch(way: str, rows: int) -> Run:
            order = {"is_checked": True} if way == _CHECKED else {"consistency": way}
            return cluster.run("harness.consumers:fetch", BLOBS, rows, **order)

        ways = (_QUORUM, _ONE, _CHECKED)
        for way in ways:  # warm-up
            fetch(way, sizes.warm)
        contenders = {way: partial(fetch, way, sizes.fetched) for way in ways}
        runs = in_turn(sizes.pairs, contenders, told=lambda way, run: f"fetch, {way}: {describe([run])}")
    note = "; ".join(f"{way} {describe(found)}" for way, found in runs.items())
    note += f"; {_NODES} nodes and the client on the same cores, so that the ratio is of CPU"
    return {
        16: FIGURES.ratio_row(16, runs[_QUORUM], runs[_ONE], by=attrgetter("rate"), note=note),
        18: FIGURES.ratio_row(18, runs[_CHECKED], runs[_QUORUM], by=attrgetter("rate"), note=note),
    }
