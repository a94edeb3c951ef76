"""The fingerprint of a split: a cheap number for "the same images, with the same labels, in the same order".

It consists of sums of row hashes, wrapped to 64 bits. So it can be merged over partitions, and does not depend on how
files are cut.
"""

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from formats.hashing import Column, xxhash64

FORMAT = 1
# Prepended to (id, label, position) as an int64 column, for two independent row hashes with Spark's one function.
SUM_SEEDS = (0x1C0FFEE, 0x2C0FFEE)

# The hash of that column, which is the same in each row: the seed of the next.
AFTER_SEEDS = tuple(int(xxhash64([np.array([seed], dtype=np.int64)])[0]) for seed in SUM_SEEDS)


def row_sums(*columns: Column) -> tuple[int, int]:
    """The two sums over rows, modulo 2**64: of a split, ids (uint8 ``(n, 16)``), labels (int32), positions (int64)."""
    first, second = (xxhash64(columns, seed=seed).view(np.uint64) for seed in AFTER_SEEDS)
    return int(first.sum(dtype=np.uint64)), int(second.sum(dtype=np.uint64))


def digest_of(*parts: object, sums: Sequence[int]) -> str:
    """A fingerprint, 64 hexadecimal digits, of parts and of sums, signed or unsigned."""
    text = json.dumps([*parts, *(value % (1 << 64) for value in sums)])
    return hashlib.sha256(text.encode()).hexdigest()


def split_fingerprint(*, seed: int, index: int, rows: int, sums: Sequence[int]) -> str:
    """The fingerprint of a split, from the sums of `row_sums`."""
    return digest_of("split", FORMAT, seed, index, rows, sums=sums)


def checksums_fingerprint(*, split: str, rows: int, sums: Sequence[int]) -> str:
    """The fingerprint of the checksums of a split with this fingerprint, from `row_sums` of ids and checksums."""
    return digest_of("checksums", FORMAT, split, rows, sums=sums)


def rows_fingerprint(*, rows: int, sums: Sequence[int]) -> str:
    """The fingerprint of a metadata cache: of its rows' ids and labels, in any order."""
    return digest_of("rows", FORMAT, rows, sums=sums)
