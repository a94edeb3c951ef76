"""Spark's ``xxhash64`` in numpy, so that what Spark wrote can be checked and ordered without Spark.

The method is XXH64 (Yann Collet's published specification), which Spark chains over a row's columns: the hash of one
column is the seed of the next. Fixed-width columns need only the branch for inputs below 32 bytes.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

SPARK_SEED = 42
"""The seed that Spark's ``xxhash64`` always starts from."""

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)

Column: TypeAlias = NDArray[np.int32] | NDArray[np.int64] | NDArray[np.uint8]
Hashes: TypeAlias = NDArray[np.uint64]


def xxhash64(columns: Sequence[Column], *, seed: int = SPARK_SEED) -> NDArray[np.int64]:
    """The hash of each row, as ``F.xxhash64(*columns)`` gives it.

    Columns are int32 ``(n,)``, int64 ``(n,)``, or bytes as uint8 ``(n, w)`` with ``w`` a multiple of 8 below 32.
    Returns int64 ``(n,)``. Raises TypeError for other columns.
    """
    hashes: Hashes = np.full(len(columns[0]), seed, dtype=np.int64).view(np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            hashes = _hash_column(column, hashes)
    return hashes.view(np.int64)


def mix64(values: Hashes) -> Hashes:
    """The final mixing of XXH64: a bijection on uint64 in which every input bit moves every output bit."""
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
