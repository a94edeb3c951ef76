"""Near duplicates: how close hashes are found and joined."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.splits.dealing.near_duplicates import band_masks, components
from etl.splits.plan import MAX_DISTANCE
from tests.support.near_duplicates import brute_force

MASK = (1 << 64) - 1


@settings(deadline=None)
@given(
    rows=st.integers(0, 1 << 34),
    distance=st.integers(0, MAX_DISTANCE),
    value=st.integers(0, MASK),
    flipped=st.sets(st.integers(0, 63), max_size=MAX_DISTANCE),
)
def test_near_hashes_agree_under_some_mask(rows: int, distance: int, value: int, flipped: set[int]) -> None:
    masks = band_masks(rows, distance)
    assert len(masks) <= 40
    near = value ^ sum(1 << bit for bit in itertools.islice(sorted(flipped), distance))
    assert any(value & mask == near & mask for mask in masks)


def test_masks_keep_more_bits_for_more_hashes() -> None:
    kept = [(len(masks), min(m.bit_count() for m in masks)) for masks in (band_masks(10**n, 3) for n in (3, 6, 9))]
    assert kept == [(4, 16), (10, 25), (20, 31)]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60))
def test_components_agree_with_brute_force(numbers: list[tuple[int, int]]) -> None:
    pairs = [(one * (MASK // 40), other * (MASK // 40)) for one, other in numbers if one != other]
    first, second = (np.array([pair[i] for pair in pairs], np.uint64).view(np.int64) for i in (0, 1))
    nodes, roots = components(first, second)
    assert dict(zip(nodes.tolist(), roots.tolist(), strict=True)) == brute_force(pairs)


def test_long_chains_are_one_component() -> None:
    order = np.random.default_rng(0).permutation(20_000)
    nodes, roots = components(order[:-1], order[1:])
    assert len(nodes) == 20_000
    assert not roots.any()
