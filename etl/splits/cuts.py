"""Where each stratum is cut into splits, from a histogram: exact without sorting it. Pure arithmetic.

The rows of a stratum stand in a seeded random order. The order is cut into buckets of neighbours, the histogram counts
the rows of each. A cut that falls between two buckets is an edge at once; one that falls inside a bucket leaves only
that bucket's rows to be ranked::

    buckets of stratum c    |  31  |  28  |  35  |  30  | ...     quotas 8 : 2
                            split 0 ............|.. split 1 ...
                                                ^ cut: bucket 2, after 17 of its rows
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_CELLS = 1 << 15
"""How many buckets there are at least, while strata are fewer; twice as many fit into Spark's quick map of groups."""
_FINEST = 24
_ORDER_BITS = 64


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a split within a stratum: rows after ``take`` rows of ``bucket`` lie beyond it.

    ``take`` 0 means that the whole bucket lies beyond, so that nothing in it needs a rank.
    """

    bucket: int
    take: int


def bucket_shifts(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many bits of the order are dropped to make the buckets of each stratum, from its rows; both int64 ``(k,)``.

    Large strata have more buckets than small ones, so that a bucket has about as many rows everywhere.
    """
    target = max(1, -(-int(rows.sum()) // _CELLS))
    bits = np.ceil(np.log2(np.maximum(2, rows / target))).astype(np.int64)
    return _ORDER_BITS - np.clip(bits, 1, _FINEST)


def cut_stratum(buckets: NDArray[np.int64], rows: NDArray[np.int64], quotas: Sequence[int]) -> list[Cut | None]:
    """One cut a split, for one stratum; None where no row lies beyond.

    ``buckets`` are the stratum's buckets, ascending, ``rows`` the rows in each; both int64 ``(k,)``. ``quotas`` are
    rows by split; their sum is at most the stratum's rows, and what remains belongs to no split.
    """
    ends = np.cumsum(rows)
    cuts: list[Cut | None] = []
    for wanted in np.cumsum(quotas).tolist():
        place = int(np.searchsorted(ends, wanted, side="right"))  # the bucket that holds the first row beyond
        if place == len(ends):
            cuts.append(None)
        else:
            cuts.append(Cut(int(buckets[place]), wanted - int(ends[place] - rows[place])))
    return cuts


def cut_strata(
    strata: NDArray[np.int64], buckets: NDArray[np.int64], rows: NDArray[np.int64], quotas: Mapping[int, Sequence[int]]
) -> dict[int, list[Cut | None]]:
    """The cuts of every stratum in the histogram, whose three columns, int64 ``(k,)``, may be in any order."""
    order = np.lexsort((buckets, strata))
    strata, buckets, rows = strata[order], buckets[order], rows[order]
    known, starts = np.unique(strata, return_index=True)
    ends = np.append(starts[1:], len(strata))
    return {
        stratum: cut_stratum(buckets[start:end], rows[start:end], quotas[stratum])
        for stratum, start, end in zip(known.tolist(), starts.tolist(), ends.tolist(), strict=True)
    }
