"""What features cost: computing them, looking for missing ones, storing them, reading them with images and in history.

    make bench-features

An embedded Cassandra and Spark share two cores. Photographs are computed on and compared with decoding them alone. Rows
of metadata and values are made up by Spark. What is compared is checked against values that are computed in another
way. QUICK=1 measures less; a figure that means nothing at that size has no value, and its note has what was measured.
"""

import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.features import featurizing, history, labels, loading, tables, vectors
from benchmarks.harness.command import Draw, Parts, run
from benchmarks.harness.figures import Figure, Figures
from benchmarks.harness.results import Row

MILLION = 1_000_000
_ROWS = "a million rows"
FIGURES = Figures(
    {
        1: Figure(
            "featurize (sharpness, phash), its time over decoding the same pictures",
            "<=",
            1.4,
            needs="more work than a job's start",
        ),
        2: Figure("featurize with nothing new, 1,000,000 rows of metadata", "<", 30, "s", _ROWS),
        3: Figure("bytes on disk of a 512-float feature of 1,000,000 images over its own", "<=", 1.5, needs=_ROWS),
        4: Figure("images/s of the loader with a 512-float feature, over those without", ">=", 0.9),
        5: Figure(
            "as-of selection from 10,000,000 rows with 5 label versions, its time over a plain read",
            "<=",
            2,
            needs=_ROWS,
        ),
        6: Figure(
            "point-in-time join of 1,000,000 requests and 10,000,000 values, its time over an equi-join",
            "<=",
            3,
            needs=_ROWS,
        ),
        7: Figure("storing vectors of 500 new images with a vector index, its time over without", "", None),
    }
)


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    pictures: int = 12_000
    pairs: int = 5
    rows: int = MILLION
    reads: int = 7
    labelled: int = 2 * MILLION
    values: int = 10 * MILLION
    few_pairs: int = 3
    indexed: int = 20_000


FULL = Scale()
QUICK = Scale(pictures=600, pairs=3, rows=20_000, reads=3, labelled=20_000, values=200_000, few_pairs=2, indexed=1_000)


def measure(parts: Parts, folder: Path) -> Draw | None:
    """Measure the requested rows."""
    scale = QUICK if parts.is_quick else FULL

    def part(numbers: Collection[int], work: Callable[..., Mapping[int, Row]], **sizes: int) -> None:
        place = folder / str(min(numbers))
        place.mkdir()
        parts.measure_whole(numbers, partial(work, place, FIGURES, **sizes))
        shutil.rmtree(place)

    part((1,), featurizing.rows_of_featurizing, pictures=scale.pictures, pairs=scale.pairs)
    part((2, 3), tables.rows_of_tables, rows=scale.rows)
    part((4,), loading.rows_of_loading, pairs=scale.reads, is_quick=parts.is_quick)
    part((5,), labels.rows_of_labels, rows=scale.labelled, pairs=scale.few_pairs)
    part((6,), history.rows_of_joins, requests=scale.values // 10, values=scale.values, pairs=scale.few_pairs)
    part((7,), vectors.rows_of_index, vectors=scale.indexed, new=500, pairs=scale.few_pairs)
    return None


if __name__ == "__main__":
    sys.exit(run("features", __doc__, FIGURES, measure, quick="less of everything, in some three minutes"))
