"""The figure of consistency: what reading at a quorum costs, where each of three nodes has a copy of each image."""

from functools import partial

import numpy as np

from benchmarks.harness.command import tell
from benchmarks.harness.loader_stage import BLOBS, LoaderStage, Run, describe
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row
from benchmarks.loader.figures import FIGURES

NUMBERS = (16,)
_NODES = 3


def rows_of_copies(stage: LoaderStage, *, is_left_out: bool) -> dict[int, Row]:
    """Both levels in turn, on a cluster of its own; a quick run of all figures leaves it out."""
    if is_left_out:
        return {16: FIGURES.value_row(16, None, note="three nodes take a minute to start: QUICK=1 ONLY=16 measures it")}
    sizes = stage.sizes
    with LoaderStage(stage.folder / "copies", sizes, nodes=_NODES) as cluster:
        tell(f"{sizes.blobs:,} blobs, {_NODES} copies of each")
        cluster.write(BLOBS, np.arange(sizes.blobs, dtype=np.int64))

        def fetch(level: str, rows: int) -> Run:
            run = cluster.run("loader.consumers:fetch", BLOBS, rows, consistency=level)
            tell(f"fetch, {level}: {run.rate:,.0f} images/s")
            return run

        levels = ("LOCAL_QUORUM", "LOCAL_ONE")
        for level in levels:  # warm-up
            fetch(level, sizes.warm)
        runs = in_turn(sizes.pairs, {level: partial(fetch, level, sizes.fetched) for level in levels})
    note = "; ".join(f"{level} {describe(found)}" for level, found in runs.items())
    note += f"; {_NODES} nodes and the client on the same cores, so that the ratio is of CPU"
    return {16: FIGURES.ratio_row(16, *([run.rate for run in found] for found in runs.values()), note=note)}
