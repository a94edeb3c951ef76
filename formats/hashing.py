"""Spark's hash functions in NumPy: they compute Spark's hashes and the partition of a row without Spark.

``xxhash64`` is XXH64 (Yann Collet's published specification). Spark chains it over the columns of a row: the hash of
one column is the seed of the next. Fixed-width columns need only the branch for inputs below 32 bytes.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

SPARK_SEED = 42
"""The seed that Spark always uses for the first column."""

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)

_PIECE_ROWS = 8192
"""The number of rows that are hashed at a time, so that intermediate results fit in the cache of a core."""

Column: TypeAlias = NDArray[np.int32] | NDArray[np.int64] | NDArray[np.uint8]
Hashes: TypeAlias = NDArray[np.uint64]


def xxhash64(columns: Sequence[Column], *, seed: int = SPARK_SEED) -> NDArray[np.int64]:
    """Hash each row as ``F.xxhash64(*columns)`` does.

    Args:
        columns: int32 ``(n,)``, int64 ``(n,)``, or bytes as uint8 ``(n, w)`` with ``w`` a multiple of 8 below 32.
        seed: The seed of the first column.

    Returns:
        The hashes, int64 ``(n,)``.

    Raises:
        TypeError: A column has another dtype or shape.
    """
    found: Hashes = np.full(len(columns[0]), seed, dtype=np.int64).view(np.uint64)
    with np.errstate(over="ignore"):
        for start in range(0, len(found), _PIECE_ROWS):
            piece = slice(start, start + _PIECE_ROWS)
            hashes = found[piece]
            for column in columns:
                hashes = _hash_column(column[piece], hashes)
            found[piece] = hashes
    return found.view(np.int64)


def murmur3(column: NDArray[np.int32]) -> NDArray[np.int32]:
    """Hash each row as ``F.hash(column)`` does, which decides the partition of a row; returns int32 ``(n,)``.

    This is 32-bit MurmurHash3 (Austin Appleby, public domain) of one block.
    """
    with np.errstate(over="ignore"):
        block = column.view(np.uint32) * np.uint32(0xCC9E2D51)
        block = (block << np.uint32(15) | block >> np.uint32(17)) * np.uint32(0x1B873593)
        hashes = np.uint32(SPARK_SEED) ^ block
        hashes = (hashes << np.uint32(13) | hashes >> np.uint32(19)) * np.uint32(5) + np.uint32(0xE6546B64)
        hashes ^= np.uint32(column.itemsize)
        hashes = (hashes ^ hashes >> np.uint32(16)) * np.uint32(0x85EBCA6B)
        hashes = (hashes ^ hashes >> np.uint32(13)) * np.uint32(0xC2B2AE35)
        return np.asarray(hashes ^ hashes >> np.uint32(16)).view(np.int32)


def mix64(values: Hashes) -> Hashes:
    """The final mixing step of XXH64: a bijection on uint64 in which each input bit affects each output bit."""
    with np.errstate(over="ignore"):
        return _mix(values)


def _hash_column(column: Column, seeds: Hashes) -> Hashes:
    if column.dtype == np.int32 and column.ndim == 1:
        word = column.view(np.uint32).astype(np.uint64)
        return _mix(_rotate((seeds + _P5 + np.uint64(4)) ^ (word * _P1), 23) * _P2 + _P3)
    if column.dtype == np.int64 and column.ndim == 1:
        words = column.view(np.uint64)[:, None]
    elif column.dtype == np.uint8 and column.ndim == 2 and column.shape[1] % 8 == 0 and column.shape[1] < 32:
        words = np.ascontiguousarray(column).view("<u8")
    else:
        raise TypeError(f"Wanted int32 (n,), int64 (n,) or uint8 (n, 8|16|24). Found: {column.dtype} {column.shape}")
    hashes = seeds + _P5 + np.uint64(8 * words.shape[1])
    for word in words.T:
        hashes = _rotate(hashes ^ (_rotate(word * _P2, 31) * _P1), 27) * _P1 + _P4
    return _mix(hashes)


def _rotate(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _mix(values: Hashes) -> Hashes:
    values = (values ^ (values >> np.uint64(33))) * _P2
    values = (values ^ (values >> np.uint64(29))) * _P3
    return values ^ (values >> np.uint64(32))
