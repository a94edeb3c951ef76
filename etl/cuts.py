"""Where each class is cut into splits, from a histogram: exact without sorting a class. Pure arithmetic.

The rows of a class stand in a seeded random order. The order is cut into buckets of neighbours, the histogram counts
the rows of each. A cut that falls between two buckets decides both; one that falls inside a bucket leaves only that
bucket's rows to be ranked::

    buckets of class c    |  31  |  28  |  35  |  30  | ...     quotas 8 : 2
                          split 0 ............|.. split 1 ...
                                              ^ cut: bucket 2, after 17 of its rows
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

_HISTOGRAM_CELLS = 1_000_000
"""About how many counts the driver is sent at the most, while classes are fewer."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a split within a class: rows after ``take`` rows of ``bucket`` lie beyond it.

    ``take`` 0 means that the whole bucket lies beyond, so that nothing in it needs a rank.
    """

    bucket: int
    take: int


def bucket_bits(classes: int) -> int:
    """How many leading bits of the order make a bucket: finer when classes are few, from 4 to 12."""
    return max(4, min(12, int(log2(_HISTOGRAM_CELLS / max(1, classes)))))


def cut_class(buckets: NDArray[np.int64], rows: NDArray[np.int64], quotas: Sequence[int]) -> list[Cut]:
    """One cut a split, for one class.

    ``buckets`` are the class's buckets, ascending, ``rows`` the rows in each; both int64 ``(k,)``. ``quotas`` are rows
    by split; their sum is at most the class's rows, and what remains belongs to no split.
    """
    ends = np.cumsum(rows)
    cuts = []
    for wanted in np.cumsum(quotas).tolist():
        place = int(np.searchsorted(ends, wanted, side="right"))  # the bucket that holds the first row beyond
        if place == len(ends):
            cuts.append(Cut(int(buckets[-1]) + 1, 0))
        else:
            cuts.append(Cut(int(buckets[place]), wanted - int(ends[place] - rows[place])))
    return cuts


def cut_classes(
    labels: NDArray[np.int64], buckets: NDArray[np.int64], rows: NDArray[np.int64], quotas: Mapping[int, Sequence[int]]
) -> dict[int, list[Cut]]:
    """The cuts of every class that has a quota. The histogram's three columns, int64 ``(k,)``, may be in any order."""
    order = np.lexsort((buckets, labels))
    labels, buckets, rows = labels[order], buckets[order], rows[order]
    known, starts = np.unique(labels, return_index=True)
    ends = np.append(starts[1:], len(labels))
    return {
        label: cut_class(buckets[start:end], rows[start:end], quotas[label])
        for label, start, end in zip(known.tolist(), starts.tolist(), ends.tolist(), strict=True)
        if any(quotas.get(label, ()))
    }


def place_offsets(
    splits: NDArray[np.int64], places: NDArray[np.int64], rows: NDArray[np.int64]
) -> list[tuple[int, int, int]]:
    """For each split and bucket, how many of the split's rows lie in the buckets before: ``(split, place, offset)``."""
    found = []
    before: dict[int, int] = {}
    for index in np.lexsort((places, splits)).tolist():
        split = int(splits[index])
        found.append((split, int(places[index]), before.get(split, 0)))
        before[split] = before.get(split, 0) + int(rows[index])
    return found
