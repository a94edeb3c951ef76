"""Cuts: where a histogram says that each split of a class ends."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.cuts import Cut, bucket_bits, cut_class, cut_classes, place_offsets


def deal(buckets: list[int], rows: list[int], cuts: list[Cut]) -> list[int]:
    """The split of each row of a class, in order, as the DataFrame verb finds it: the number of cuts that it passed."""
    found = []
    for bucket, count in zip(buckets, rows, strict=True):
        for rank in range(1, count + 1):
            found.append(sum(bucket > cut.bucket or (bucket == cut.bucket and rank > cut.take) for cut in cuts))
    return found


@given(data=st.data(), rows=st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_each_split_gets_its_quota_of_the_class_in_order(data: st.DataObject, rows: list[int]) -> None:
    buckets = sorted(data.draw(st.sets(st.integers(0, 40), min_size=len(rows), max_size=len(rows))))
    quotas, left = [], sum(rows)
    for _ in range(data.draw(st.integers(1, 5))):
        quotas.append(data.draw(st.integers(0, left)))
        left -= quotas[-1]
    cuts = cut_class(np.array(buckets), np.array(rows), quotas)
    expected = [split for split, quota in enumerate(quotas) for _ in range(quota)] + [len(quotas)] * left
    assert deal(buckets, rows, cuts) == expected


def test_a_cut_between_two_buckets_needs_no_rank() -> None:
    cuts = cut_class(np.array([2, 5, 9]), np.array([10, 10, 10]), [20, 10])
    assert cuts == [Cut(9, 0), Cut(10, 0)]


def test_a_class_without_a_quota_has_no_cuts() -> None:
    labels, buckets, rows = np.array([7, 3, 3]), np.array([0, 1, 0]), np.array([5, 2, 2])
    assert cut_classes(labels, buckets, rows, {3: (3, 1), 7: (0, 0)}) == {3: [Cut(1, 1), Cut(2, 0)]}


def test_places_start_where_those_before_them_end() -> None:
    found = place_offsets(np.array([1, 0, 0, 1]), np.array([0, 1, 0, 3]), np.array([4, 2, 5, 1]))
    assert found == [(0, 0, 0), (0, 1, 5), (1, 0, 0), (1, 3, 4)]


def test_buckets_are_finer_when_classes_are_few() -> None:
    assert [bucket_bits(classes) for classes in (1, 1_000, 100_000, 10_000_000)] == [12, 9, 4, 4]
