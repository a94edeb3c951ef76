"""The order of rows without positions is that of a plain sort, whatever the input order and the buckets."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.hashing import xxhash64
from formats.splits.seeded_order import SeededOrder

IDS = np.random.default_rng(3).integers(0, 256, (3000, 16), dtype=np.uint8)


def ordered(ids: np.ndarray, labels: np.ndarray, cuts: list[int], *, bucket_rows: int, threads: int = 1):
    """Ids and labels in the order of `SeededOrder`, given in pieces."""
    order = SeededOrder(len(ids), seed=7, bucket_rows=bucket_rows)
    pieces = [slice(start, end) for start, end in pairwise([0, *sorted(cuts), len(ids)])]
    found_ids, found_labels = np.zeros_like(ids), np.zeros_like(labels)

    def put(piece: slice) -> np.ndarray:
        places = order.places(ids[piece])
        found_ids[places], found_labels[places] = ids[piece], labels[piece]
        return places

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda piece: order.count(ids[piece]), pieces))
        assert len(order) == len(ids)
        places = np.concatenate(list(pool.map(put, pieces)))
        assert np.array_equal(np.sort(places), np.arange(len(ids)))
        list(pool.map(lambda piece: order.sort(found_ids[piece], found_labels[piece]), order.pieces()))
    return found_ids, found_labels


@given(st.integers(0, 600), st.lists(st.integers(0, 600), max_size=6), st.sampled_from([3, 100, 1 << 18]))
def test_rows_are_in_the_order_of_a_plain_sort(rows: int, cuts: list[int], bucket_rows: int) -> None:
    ids, labels = IDS[:rows], np.arange(rows, dtype=np.int32)
    found_ids, found_labels = ordered(ids, labels, [min(cut, rows) for cut in cuts], bucket_rows=bucket_rows)
    wanted = np.argsort(xxhash64([np.full(rows, 7, dtype=np.int64), ids]))
    assert np.array_equal(found_ids, ids[wanted])
    assert np.array_equal(found_labels, labels[wanted])


def test_threads_change_nothing() -> None:
    labels, cuts = np.arange(3000, dtype=np.int32), list(range(0, 3000, 10))
    alone = ordered(IDS, labels, cuts, bucket_rows=100)
    together = ordered(IDS, labels, cuts, bucket_rows=100, threads=8)
    assert np.array_equal(alone[0], together[0])
    assert np.array_equal(alone[1], together[1])


@pytest.mark.parametrize("bucket_rows", [10, 1 << 18])
def test_ties_are_broken_by_id_and_then_by_label(monkeypatch: pytest.MonkeyPatch, bucket_rows: int) -> None:
    monkeypatch.setattr(SeededOrder, "_hashes", lambda self, ids: ids.view("<i8")[:, 0] % 3 - 1)
    ids = np.concatenate([IDS[:300], IDS[:300]])
    labels = np.arange(600, dtype=np.int32)
    wanted = sorted(zip((ids.view("<i8")[:, 0] % 3).tolist(), map(bytes, ids), labels.tolist(), strict=True))
    for cuts in ([], [100, 400]):
        found_ids, found_labels = ordered(ids, labels, cuts, bucket_rows=bucket_rows)
        assert [bytes(one) for one in found_ids] == [one for _, one, _ in wanted]
        assert found_labels.tolist() == [label for _, _, label in wanted]
