"""Spark's xxhash64 in numpy, against the reference implementation."""

import struct

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from formats.hashing import SPARK_SEED, mix64, xxhash64
from formats.splits.fingerprint import SUM_SEEDS, row_sums, split_fingerprint

int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)


def reference(*columns: bytes, seed: int = SPARK_SEED) -> int:
    """One row: the hash of each column is the seed of the next."""
    for column in columns:
        seed = xxhash.xxh64_intdigest(column, seed=seed % (1 << 64))
    return struct.unpack("<q", struct.pack("<Q", seed % (1 << 64)))[0]


@given(st.lists(st.tuples(st.binary(min_size=16, max_size=16), int32s, int64s), min_size=1, max_size=30))
def test_rows_hash_as_the_reference_does(rows: list[tuple[bytes, int, int]]) -> None:
    ids = np.frombuffer(b"".join(row[0] for row in rows), dtype=np.uint8).reshape(-1, 16)
    labels = np.array([row[1] for row in rows], dtype=np.int32)
    positions = np.array([row[2] for row in rows], dtype=np.int64)
    expected = [reference(one, struct.pack("<i", label), struct.pack("<q", at)) for one, label, at in rows]
    assert xxhash64([ids, labels, positions]).tolist() == expected


@pytest.mark.parametrize("width", [4, 8, 12, 16, 24, 28, 32, 36, 60, 64, 100, 2048])
def test_bytes_of_each_width_hash_as_the_reference_does(width: int) -> None:
    row = bytes(number % 251 for number in range(200, 200 + width))
    assert xxhash64([np.frombuffer(row, dtype=np.uint8).reshape(1, width)]).tolist() == [reference(row)]


def test_rows_hash_alone_as_they_do_among_many() -> None:
    ids = np.random.default_rng(0).integers(0, 256, (20_000, 16), dtype=np.uint8)
    numbers = np.arange(20_000, dtype=np.int64)
    found = xxhash64([ids, numbers])
    for row in (0, 8191, 8192, 16_383, 16_384, 19_999):
        assert found[row] == reference(ids[row].tobytes(), struct.pack("<q", row))
    assert len(xxhash64([ids[:0], numbers[:0]])) == 0


def test_hashes_match_values_computed_by_spark() -> None:
    """The results of `SELECT xxhash64(1), xxhash64(1L)`."""
    assert xxhash64([np.array([1], dtype=np.int32)])[0] == -6698625589789238999
    assert xxhash64([np.array([1], dtype=np.int64)])[0] == -7001672635703045582


@pytest.mark.parametrize("column", [np.zeros(2), np.zeros((2, 6), np.uint8)])
def test_other_columns_are_refused(column: np.ndarray) -> None:
    with pytest.raises(TypeError, match="Found: "):
        xxhash64([column])


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=50, unique=True))
def test_mixing_keeps_different_numbers_different(values: list[int]) -> None:
    assert len(set(mix64(np.array(values, dtype=np.uint64)).tolist())) == len(values)


def test_sums_add_spark_hashes_of_seed_id_label_and_position() -> None:
    row = bytes(range(16)), struct.pack("<i", 5), struct.pack("<q", 9)
    ids = np.frombuffer(row[0], dtype=np.uint8).reshape(1, 16)
    sums = row_sums(ids, np.array([5], dtype=np.int32), np.array([9], dtype=np.int64))
    assert sums == tuple(reference(struct.pack("<q", seed), *row) % (1 << 64) for seed in SUM_SEEDS)


@given(st.permutations(range(12)), st.integers(0, 12))
def test_sums_do_not_depend_on_order_or_cuts(mixed: list[int], cut: int) -> None:
    ids = np.arange(12 * 16, dtype=np.uint8).reshape(12, 16)
    labels, positions = np.arange(12, dtype=np.int32), np.arange(12, dtype=np.int64)
    whole = row_sums(ids, labels, positions)
    parts = [row_sums(ids[rows], labels[rows], positions[rows]) for rows in (mixed[:cut], mixed[cut:])]
    assert tuple((a + b) % (1 << 64) for a, b in zip(*parts, strict=True)) == whole


def test_a_fingerprint_differs_between_splits_that_differ() -> None:
    known = split_fingerprint(seed=1, index=0, rows=2, sums=(3, 4))
    assert known == split_fingerprint(seed=1, index=0, rows=2, sums=(3 - (1 << 64), 4))
    others = [
        split_fingerprint(seed=2, index=0, rows=2, sums=(3, 4)),
        split_fingerprint(seed=1, index=1, rows=2, sums=(3, 4)),
        split_fingerprint(seed=1, index=0, rows=3, sums=(3, 4)),
        split_fingerprint(seed=1, index=0, rows=2, sums=(4, 3)),
    ]
    assert known not in others


def test_swapping_two_rows_changes_the_sums() -> None:
    ids = np.arange(32, dtype=np.uint8).reshape(2, 16)
    labels, positions = np.array([5, 5], dtype=np.int32), np.arange(2, dtype=np.int64)
    assert row_sums(ids, labels, positions) != row_sums(ids, labels, positions[::-1].copy())
