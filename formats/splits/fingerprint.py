"""The fingerprint of a split: one cheap number for "the same images, with the same labels, in the same order".

It merges over partitions and does not depend on how files are cut: sums of row hashes, wrapped to 64 bits.
"""

import hashlib
import json

import numpy as np
from numpy.typing import NDArray

from formats.hashing import xxhash64

FORMAT = 1
SUM_SEEDS = (0x1C0FFEE, 0x2C0FFEE)
"""Prepended to (id, label, position) as an int64 column, to make two independent row hashes of Spark's one function."""

_AFTER_SEEDS = tuple(int(xxhash64([np.array([seed], dtype=np.int64)])[0]) for seed in SUM_SEEDS)
"""The hash of that column, which is the same in each row: the seed of the next."""


def row_sums(ids: NDArray[np.uint8], labels: NDArray[np.int32], positions: NDArray[np.int64]) -> tuple[int, int]:
    """The two wrapped sums over rows: ids uint8 ``(n, 16)``, labels int32 ``(n,)``, positions int64 ``(n,)``."""
    first, second = (xxhash64([ids, labels, positions], seed=seed).view(np.uint64) for seed in _AFTER_SEEDS)
    return int(first.sum(dtype=np.uint64)), int(second.sum(dtype=np.uint64))


def split_fingerprint(*, seed: int, index: int, rows: int, sums: tuple[int, int]) -> str:
    """The fingerprint as 64 hexadecimal digits; sums are taken modulo 2**64, so signed or unsigned will do."""
    wrapped = [value % (1 << 64) for value in sums]
    text = json.dumps(["split", FORMAT, seed, index, rows, *wrapped])
    return hashlib.sha256(text.encode()).hexdigest()


def rows_fingerprint(*, rows: int, sums: tuple[int, int]) -> str:
    """The fingerprint of a metadata cache: of its rows' ids and labels, in any order."""
    text = json.dumps(["rows", FORMAT, rows, *(value % (1 << 64) for value in sums)])
    return hashlib.sha256(text.encode()).hexdigest()
