"""Spark's hash functions in NumPy: they compute Spark's hashes and the partition of a row without Spark.

``xxhash64`` is XXH64 (Yann Collet's published specification). Spark chains it over the columns of a row: the hash of
one column is the seed of the next.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

SPARK_SEED = 42  # the seed that Spark always uses for the first column

# Arrays without axes: NumPy takes them as operands in half the time of its scalars.
_P1, _P2, _P3, _P4, _P5 = (
    np.array(prime, dtype=np.uint64)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_29, _32, _33 = (np.array(bits, dtype=np.uint64) for bits in (29, 32, 33))

# The number of rows that are hashed at a time, so that intermediate results fit in the cache of a core.
_PIECE_ROWS = 8192

Column: TypeAlias = NDArray[np.int32] | NDArray[np.int64] | NDArray[np.uint8]
Hashes: TypeAlias = NDArray[np.uint64]


def xxhash64(columns: Sequence[Column], *, seed: int = SPARK_SEED) -> NDArray[np.int64]:
    """Hash each row as ``F.xxhash64(*columns)`` does, to int64 ``(n,)``. Columns are int32 ``(n,)``, int64 ``(n,)``, or
    bytes as uint8 ``(n, w)`` with ``w`` a multiple of 4. Raises TypeError for another dtype or shape.
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
    """Hash each row as ``F.hash(column)`` does, which decides the partition of a row; returns int32 ``(n,)``. This is
    32-bit MurmurHash3 (Austin Appleby, public domain) of one block.
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
    """The final mixing step of XXH64 on an array: a bijection on uint64 in which each input bit affects each output
    bit.
    """
    values = values ^ (values >> _33)
    values *= _P2
    values ^= values >> _29
    values *= _P3
    values ^= values >> _32
    return values


def _hash_column(column: Column, seeds: Hashes) -> Hashes:
    if column.dtype == np.int32 and column.ndim == 1:
        word = column.view(np.uint32).astype(np.uint64)
        return mix64(_rotate((seeds + _P5 + np.uint64(4)) ^ (word * _P1), 23) * _P2 + _P3)
    if column.dtype == np.int64 and column.ndim == 1:
        column = np.ascontiguousarray(column).view(np.uint8).reshape(-1, 8)
    elif column.dtype != np.uint8 or column.ndim != 2 or column.shape[1] % 4:
        raise TypeError(f"Wanted int32 (n,), int64 (n,) or uint8 (n, 4k). Found: {column.dtype} {column.shape}")
    return _hash_bytes(np.ascontiguousarray(column), seeds)


def _hash_bytes(data: NDArray[np.uint8], seeds: Hashes) -> Hashes:
    width = data.shape[1]
    halves = data.view("<u4")
    words: Hashes = np.ascontiguousarray(data[:, : width // 8 * 8]).view("<u8")
    stripes = width // 32
    hashes = seeds + _P5
    if stripes:
        lanes: list[Hashes] = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
        for place in range(4 * stripes):
            lanes[place % 4] = _rotate(lanes[place % 4] + words[:, place] * _P2, 31) * _P1
        hashes = _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
        for lane in lanes:
            hashes = (hashes ^ (_rotate(lane * _P2, 31) * _P1)) * _P1 + _P4
    hashes = hashes + np.uint64(width)
    for place in range(4 * stripes, width // 8):
        hashes = _rotate(hashes ^ (_rotate(words[:, place] * _P2, 31) * _P1), 27) * _P1 + _P4
    if width % 8:
        hashes = _rotate(hashes ^ (halves[:, -1].astype(np.uint64) * _P1), 23) * _P2 + _P3
    return mix64(hashes)


def _rotate(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
