"""The figure of shuffling: how much of the sorted order of a tree is left in its shards.

It uses two rank correlations (Spearman's): of the position of each image before and after, and of the labels of
neighbours in the shards. If nothing of the old order is left, each is below 2.58 / sqrt(n - 1) in 99 of 100 cases. The
same images, shuffled with the usual buffer of 5,000 samples, must fail this test.
"""

import json
import math
import random
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.harness.results import Row, tell
from benchmarks.shards.figures import FIGURES, LIMIT
from benchmarks.shards.fixture import ShardFixture
from benchmarks.shards.writing import shard

NUMBERS = (10,)
_PREFIX = "shuffled"


@dataclass(frozen=True)
class Left:
    """How similar two orders are, each value times ``sqrt(n - 1)``: by positions, and by labels of neighbours."""

    places: float
    labels: float

    @property
    def most(self) -> float:
        """The larger of both."""
        return max(self.places, self.labels)


def left_of(order: Sequence[int], labels: NDArray[np.int64]) -> Left:
    """Measure ``order``, the old positions in their new order; ``labels`` are those of the old positions."""
    if sorted(order) != list(range(len(labels))):
        raise ValueError(f"Wanted each of {len(labels)} pictures once. Found: {len(order)}, or others")
    found = pd.Series(labels[np.asarray(order)])
    places, neighbours = pd.Series(order).rank(), found.iloc[1:].reset_index(drop=True).rank()
    return Left(
        abs(places.corr(pd.Series(np.arange(1.0, len(order) + 1)))) * math.sqrt(len(order) - 1),
        abs(neighbours.corr(found.iloc[:-1].rank())) * math.sqrt(len(order) - 2),
    )


def buffer_shuffled(count: int, buffer: int, *, seed: int) -> list[int]:
    """The order that webdataset's shuffle filter makes of sorted positions."""
    filters: Any = import_module("webdataset.filters")
    return list(filters._shuffle(iter(range(count)), bufsize=buffer, initial=buffer, rng=random.Random(seed)))


def order_in(folder: Path, places: dict[str, int]) -> list[int]:
    """The old positions of the images in a folder of shards, in the order of shard names and samples."""
    order = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                if member.name.endswith(".json"):
                    about = tar.extractfile(member)
                    assert about is not None
                    order.append(places[json.loads(about.read())["path"]])
    return order


def rows_of_order(fixture: ShardFixture) -> dict[int, Row]:
    """Our job over the sorted tree with several seeds."""
    found = []
    tree = sorted(path.relative_to(fixture.tree).as_posix() for path in fixture.tree.glob("*/*"))
    places = {path: place for place, path in enumerate(tree)}
    labels = fixture.labels()
    for seed in range(fixture.sizes.seeds):
        shard(fixture, _PREFIX, seed=seed)
        found.append(left_of(order_in(fixture.objects(_PREFIX), places), labels))
        tell(f"seed {seed}: {found[-1].places:.2f} by places, {found[-1].labels:.2f} by labels")
        fixture.remove(_PREFIX)
    few = [left_of(buffer_shuffled(len(places), fixture.sizes.buffer, seed=seed), labels) for seed in range(len(found))]
    note = ", ".join(f"{one.places:.2f} and {one.labels:.2f}" for one in found)
    note = f"by places and by labels of neighbours, for each seed: {note}"
    note += f"; a buffer of {fixture.sizes.buffer:,} samples: {min(one.most for one in few):,.0f} or more"
    value: float | None = max(one.most for one in found)
    if any(one.most <= LIMIT for one in few):
        value, note = None, f"void: the buffer passes the test; {note}"
    return {10: FIGURES.value_row(10, value, note=note, runs=len(found))}
