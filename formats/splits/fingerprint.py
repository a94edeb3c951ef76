"""The fingerprint of a split: a cheap number for "the same images, with the same labels, in the same order".

It consists of sums of row hashes, wrapped to 64 bits. So it can be merged over partitions, and does not depend on how
files are cut.
"""

import hashlib
import json

import numpy as np
from numpy.typing import NDArray

from formats.hashing import xxhash64

FORMAT = 1
# Prepended to (id, label, position) as an int64 column, for two independent row hashes with Spark's one function.
SUM_SEEDS = (0x1C0FFEE, 0x2C0FFEE)

# The hash of that column, which is the same in each row: the seed of the next.
AFTER_SEEDS = tuple(int(xxhash64([np.array([seed], dtype=np.int64)])[0]) for seed in SUM_SEEDS)


def row_sums(ids: NDArray[np.uint8], labels: NDArray[np.int32], positions: NDArray[np.int64]) -> tuple[int, int]:
    """The two sums over rows, modulo 2**64. Ids are uint8 ``(n, 16)``, labels int32, positions int64."""
    first, second = (xxhash64([ids, labels, positions], seed=seed).view(np.uint64) for seed in AFTER_SEEDS)
    return int(first.sum(dtype=np.uint64)), int(second.sum(dtype=np.uint64))


def split_fingerprint(*, seed: int, index: int, rows: int, sums: tuple[int, int]) -> str:
    """The fingerprint of a split, 64 hexadecimal digits, from the sums of `row_sums`, signed or unsigned."""
    wrapped = [value % (1 << 64) for value in sums]
    text = json.dumps(["split", FORMAT, seed, index, rows, *wrapped])
    return hashlib.sha256(text.encode()).hexdigest()


def rows_fingerprint(*, rows: int, sums: tuple[int, int]) -> str:
    """The fingerprint of a metadata cache: of its rows' ids and labels, in any order."""
    text = json.dumps(["rows", FORMAT, rows, *(value % (1 << 64) for value in sums)])
    return hashlib.sha256(text.encode()).hexdigest()
