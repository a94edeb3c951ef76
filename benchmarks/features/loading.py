"""The figure of the loader with a vector for each image, compared with the loader without."""

from functools import partial
from operator import attrgetter
from pathlib import Path

from benchmarks.harness.figures import Figures
from benchmarks.harness.loader_fixture import BLOBS, FULL, QUICK, loader_fixture
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row
from benchmarks.harness.runs import describe
from benchmarks.harness.split_folders import add_vectors

NAME = "embedding"
FLOATS = 512
FETCH = "harness.consumers:fetch"


def rows_of_loading(folder: Path, figures: Figures, *, pairs: int, is_quick: bool) -> dict[int, Row]:
    """Read one epoch of the same images alternately with and without vectors, which are checked."""
    sizes = QUICK if is_quick else FULL
    with loader_fixture(folder, sizes) as fixture:
        fixture.write_all(BLOBS)
        add_vectors(fixture.split(BLOBS, sizes.fetched), name=NAME, length=FLOATS)
        read = partial(fixture.run, FETCH, BLOBS, sizes.fetched)
        contenders = {"with": partial(read, features=[NAME]), "without": read}
        in_turn(2, contenders)  # also fills the cache of opened splits
        runs = in_turn(pairs, contenders, told=lambda name, run: f"{name}: {run.rate:,.0f} images/s")
    note = (
        f"{sizes.fetched:,} images of 110 kB, {FLOATS} floats each, without decoding, server and client on the same 2 "
    )
    note += f"cores; with {describe(runs['with'])}; without {describe(runs['without'])}"
    return {4: figures.ratio_row(4, *runs.values(), by=attrgetter("rate"), note=note)}
