"""The consistency figure: the cost of quorum reads if each of three nodes has a copy of every image."""

from functools import partial
from operator import attrgetter

from benchmarks.harness.loader_fixture import BLOBS, LoaderFixture, loader_fixture
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row, tell
from benchmarks.harness.runs import Run, describe
from benchmarks.loader.figures import FIGURES

NUMBERS = (16,)
_NODES = 3


def rows_of_copies(fixture: LoaderFixture, *, is_left_out: bool) -> dict[int, Row]:
    """Both levels alternately, on a separate cluster. A quick run of all figures leaves it out."""
    if is_left_out:
        return {16: FIGURES.value_row(16, None, note="three nodes take a minute to start: QUICK=1 ONLY=16 measures it")}
    sizes = fixture.sizes
    with loader_fixture(fixture.folder / "copies", sizes, nodes=_NODES) as cluster:
        tell(f"{_NODES} copies of each image")
        cluster.write_all(BLOBS)

        def fetch(level: str, rows: int) -> Run:
            return cluster.run("harness.consumers:fetch", BLOBS, rows, consistency=level)

        levels = ("LOCAL_QUORUM", "LOCAL_ONE")
        for level in levels:  # warm-up
            fetch(level, sizes.warm)
        contenders = {level: partial(fetch, level, sizes.fetched) for level in levels}
        runs = in_turn(sizes.pairs, contenders, told=lambda level, run: f"fetch, {level}: {describe([run])}")
    note = "; ".join(f"{level} {describe(found)}" for level, found in runs.items())
    note += f"; {_NODES} nodes and the client on the same cores, so that the ratio is of CPU"
    return {16: FIGURES.ratio_row(16, *runs.values(), by=attrgetter("rate"), note=note)}
