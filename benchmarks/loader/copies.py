"""The figure of consistency: what reading at a quorum costs, where each of three nodes has a copy of each image."""

from collections.abc import Collection

import numpy as np

from benchmarks.harness.command import tell
from benchmarks.harness.loader_stage import BLOBS, Run, Stage, describe
from benchmarks.harness.results import Row
from benchmarks.loader.figures import FIGURES

NUMBERS = (16,)
_NODES = 3


def rows_of_copies(stage: Stage, wanted: Collection[int], *, is_left_out: bool, quick: bool) -> dict[int, Row]:
    """Both levels in turn, on a cluster of its own; a quick run of all figures leaves it out."""
    if is_left_out:
        note = "three nodes take a minute to start: QUICK=1 ONLY=16 measures it"
        return {number: FIGURES.value_row(number, None, note=note, quick=quick) for number in wanted}
    sizes = stage.sizes
    runs: dict[str, list[Run]] = {"LOCAL_QUORUM": [], "LOCAL_ONE": []}
    with Stage(stage.folder / "copies", sizes, nodes=_NODES) as cluster:
        tell(f"{sizes.blobs:,} blobs, {_NODES} copies of each")
        cluster.write(BLOBS, np.arange(sizes.blobs, dtype=np.int64))
        for level in runs:  # warm-up
            cluster.run("fetch", BLOBS, sizes.warm, consistency=level)
        for turn in range(sizes.pairs):
            for level in runs if turn % 2 == 0 else reversed(runs):
                runs[level].append(cluster.run("fetch", BLOBS, sizes.fetched, consistency=level))
                tell(f"fetch, {level}: {runs[level][-1].rate:,.0f} images/s")
    note = "; ".join(f"{level} {describe(found)}" for level, found in runs.items())
    note += f"; {_NODES} nodes and the client on the same cores, so that the ratio is of CPU"
    rates = ([run.rate for run in found] for found in runs.values())
    return {number: FIGURES.ratio_row(number, *rates, note=note, quick=quick) for number in wanted}
