"""Cuts: where each split of a stratum is expected to end."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.splits.dealing.cuts import FIRST, LAST, Zones
from etl.splits.positions import Chunks

PLACES = st.integers(FIRST, LAST)


@given(
    rows=st.integers(2, 3_000_000_000),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_the_expected_zone_contains_the_cut(rows: int, share: float, seed: int) -> None:
    before = min(rows - 1, max(1, int(rows * share)))
    zones = Zones.expected({7: rows}, [(7, before)])
    # The k-th smallest of n uniform numbers has a beta distribution.
    cut = (np.random.default_rng(seed).beta(before + 1, rows - before) - 0.5) * 2.0**64
    assert zones.lows[0, 0] <= cut <= zones.highs[0, 0]
    width = (int(zones.highs[0, 0]) - int(zones.lows[0, 0])) / 2.0**64
    assert width * rows <= 51 + 5 * rows**0.5  # a few rows are counted individually


@given(
    zones=st.dictionaries(
        st.integers(0, 9), st.lists(st.tuples(PLACES, PLACES).map(sorted), min_size=1, max_size=4), min_size=1
    )
)
def test_gaps_are_the_intervals_between_zones(zones: dict[int, list[tuple[int, int]]]) -> None:
    made = Zones.of(zones)
    for stratum, pairs in zones.items():
        for start in [FIRST, *(high for _, high in pairs)]:
            gap = made.gap(stratum, start)
            if start == LAST or any(low <= start < high for low, high in pairs):
                assert gap is None
            else:
                assert gap == (start, min((low for low, _ in pairs if low > start), default=LAST))


def test_each_chunk_starts_where_the_previous_one_ends() -> None:
    chunks = Chunks.of([3_000_000, 10, 0])
    assert chunks.bits == (2, 0, 0)
    assert chunks.firsts == [0, 4, 5, 6]
    assert chunks.starts({0: 7, 1: 5, 3: 2, 4: 10}) == [0, 7, 12, 12, 0, 0]
