"""Cuts: where a histogram says that each split of a class ends."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.splits.cuts import Cut, bucket_shifts, cut_strata, cut_stratum
from etl.splits.positions import Chunks


def deal(buckets: list[int], rows: list[int], cuts: list[Cut | None]) -> list[int]:
    """The split of each row of a class, in order, as the DataFrame verb finds it: the number of cuts that it passed."""
    found = []
    for bucket, count in zip(buckets, rows, strict=True):
        for rank in range(1, count + 1):
            passed = (cut for cut in cuts if cut is not None)
            found.append(sum(bucket > cut.bucket or (bucket == cut.bucket and rank > cut.take) for cut in passed))
    return found


@given(data=st.data(), rows=st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_each_split_gets_its_quota_of_the_class_in_order(data: st.DataObject, rows: list[int]) -> None:
    buckets = sorted(data.draw(st.sets(st.integers(0, 40), min_size=len(rows), max_size=len(rows))))
    quotas, left = [], sum(rows)
    for _ in range(data.draw(st.integers(1, 5))):
        quotas.append(data.draw(st.integers(0, left)))
        left -= quotas[-1]
    cuts = cut_stratum(np.array(buckets), np.array(rows), quotas)
    expected = [split for split, quota in enumerate(quotas) for _ in range(quota)] + [len(quotas)] * left
    assert deal(buckets, rows, cuts) == expected


def test_a_cut_between_two_buckets_needs_no_rank() -> None:
    cuts = cut_stratum(np.array([2, 5, 9]), np.array([10, 10, 10]), [20, 10])
    assert cuts == [Cut(9, 0), None]


def test_strata_are_cut_each_by_its_own_buckets() -> None:
    strata, buckets, rows = np.array([7, 3, 3]), np.array([0, 1, 0]), np.array([5, 2, 2])
    assert cut_strata(strata, buckets, rows, {3: (3, 1), 7: (0, 0)}) == {3: [Cut(1, 1), None], 7: [Cut(0, 0)] * 2}


def test_chunks_start_where_those_before_them_end() -> None:
    chunks = Chunks.of([3_000_000, 10, 0])
    assert chunks.bits == (2, 0, 0)
    assert chunks.firsts == [0, 4, 5, 6]
    assert chunks.starts({0: 7, 1: 5, 3: 2, 4: 10}) == [0, 7, 12, 12, 0, 0]


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=50))
def test_buckets_have_about_as_many_rows_in_every_stratum(rows: list[int]) -> None:
    sizes = np.array(rows, dtype=np.int64)
    bits = 64 - bucket_shifts(sizes)
    assert bits.min() >= 1
    assert bits.max() <= 24
    assert np.sum(2.0**bits) <= 2 * (1 << 15) + 2 * len(rows)
    assert np.all(np.diff(bits[np.argsort(sizes, kind="stable")]) >= 0)  # a larger stratum has no fewer buckets
