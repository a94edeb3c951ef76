"""The cuts of each stratum into splits, found without sorting, from their expected places. Pure arithmetic.

The rows of a stratum are in a seeded random order of signed 64-bit numbers. So the k-th of n rows is near the fraction
k/n of the range, within a few standard deviations of that order statistic. Rows in such a zone are counted one by one,
and rows in a gap between zones together. The counts give the cut::

    stratum c    |   gap, 31,402 rows   | zone, row by row |   gap, 7,611 rows   |
                 split 0 .......................|.. split 1 ...
                                                ^ cut: the first row with 32,000 rows before it

If a cut is in a gap, that gap becomes the next zone. So the cuts are exact whatever was expected.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FIRST, LAST = -(1 << 63), (1 << 63) - 1  # the ends of the order
_DEVIATIONS = 5
_ROWS_AROUND = 25  # if a cut has few rows on one side, a zone of a few standard deviations would be too narrow


@dataclass(frozen=True, slots=True, eq=False)
class Zones:
    """Ranges in the order of some strata: ``lows <= order key < highs``, int64 of shape (strata, zones each)."""

    strata: NDArray[np.int64]
    lows: NDArray[np.int64]
    highs: NDArray[np.int64]

    @classmethod
    def expected(cls, rows: Mapping[int, int], cuts: Iterable[tuple[int, int]]) -> "Zones":
        """The zones of cuts, each a stratum and the rows before it, in strata with these numbers of ``rows``."""

        def around(of_stratum: Sequence[int], total: int) -> Iterator[tuple[int, int]]:
            for before in of_stratum:
                middle = before / total
                reach = _DEVIATIONS * (middle * (1 - middle) / total) ** 0.5 + _ROWS_AROUND / total
                yield at_fraction(middle - reach), at_fraction(middle + reach)

        befores: dict[int, list[int]] = {}
        for stratum, before in cuts:
            befores.setdefault(stratum, []).append(before)
        return cls.of({stratum: list(around(each, rows[stratum])) for stratum, each in befores.items()})

    @classmethod
    def of(cls, zones: Mapping[int, Sequence[tuple[int, int]]]) -> "Zones":
        """Make zones from pairs by stratum."""
        each = max(map(len, zones.values()), default=0)
        bounds = np.full((len(zones), each, 2), FIRST, dtype=np.int64)  # from FIRST to FIRST: empty
        for row, of_stratum in zip(bounds, zones.values(), strict=True):
            row[: len(of_stratum)] = of_stratum
        return cls(np.array(list(zones), dtype=np.int64), bounds[:, :, 0], bounds[:, :, 1])

    def gap(self, stratum: int, key: int) -> tuple[int, int] | None:
        """The gap that begins at an order key, as a zone; None if the key is in a zone."""
        row = int(np.flatnonzero(self.strata == stratum)[0])
        lows, highs = self.lows[row], self.highs[row]
        if key == LAST or np.any((lows <= key) & (key < highs)):
            return None
        return key, min((int(low) for low in lows if low > key), default=LAST)


def at_fraction(fraction: float) -> int:
    """The order key at a fraction of the range."""
    return max(FIRST, min(LAST, int((fraction - 0.5) * 2.0**64)))
