"""The order of a split without positions: by (xxhash64 of the id, seeded with the split's seed; id)."""

from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats.hashing import Hashes, xxhash64

_BUCKET_ROWS = 1 << 18
_MOST_BITS = 16  # A bucket's number fits into 16 bits, which NumPy sorts by radix


class SeededOrder:
    """Sorts rows with memory for one bucket of them, for any number of rows. The first bits of a row's hash choose its
    bucket. First `count` counts all rows. Then `places` gives each row a place in its bucket's part of the whole, in
    any order. Then `sort` sorts each of the `pieces`. All may be called from several threads.
    """

    def __init__(self, rows: int, *, seed: int, bucket_rows: int = _BUCKET_ROWS) -> None:
        self._seed = int(xxhash64([np.array([seed], dtype=np.int64)])[0])
        self._bits = min(max(1, (rows // bucket_rows).bit_length()), _MOST_BITS)
        self._sizes = np.zeros(1 << self._bits, dtype=np.int64)
        self._placed = np.zeros_like(self._sizes)
        self._lock = Lock()

    def __len__(self) -> int:
        """The rows that were counted."""
        return int(self._sizes.sum())

    def count(self, ids: NDArray[np.uint8], /) -> None:
        """Count some rows, uint8 ``(n, 16)``."""
        counts = np.bincount(self._buckets(ids), minlength=len(self._sizes))
        with self._lock:
            self._sizes += counts

    def places(self, ids: NDArray[np.uint8], /) -> NDArray[np.int64]:
        """Places for some of the counted rows, int64 ``(n,)``; each place is given once."""
        buckets = self._buckets(ids)
        by_bucket = np.argsort(buckets, kind="stable")
        counts = np.bincount(buckets, minlength=len(self._sizes))
        with self._lock:
            free = np.cumsum(self._sizes) - self._sizes + self._placed
            self._placed += counts
        found = np.empty(len(ids), dtype=np.int64)
        found[by_bucket] = np.arange(len(ids)) + np.repeat(free - (np.cumsum(counts) - counts), counts)
        return found

    def pieces(self) -> list[slice]:
        """The part of each bucket in the whole."""
        edges = np.cumsum(np.append(0, self._sizes)).tolist()
        return [slice(start, end) for start, end in pairwise(edges)]

    def sort(self, ids: NDArray[np.uint8], values: NDArray[Any], /) -> None:
        """Sort one piece in place: ids, and values of the same rows."""
        hashes = self._hashes(ids)
        order = np.argsort(hashes)
        if (hashes[order[1:]] == hashes[order[:-1]]).any():
            halves = np.ascontiguousarray(ids).view(">u8")
            order = np.lexsort((values, halves[:, 1], halves[:, 0], hashes))
        ids[:], values[:] = ids[order], values[order]

    def _hashes(self, ids: NDArray[np.uint8]) -> NDArray[np.int64]:
        return xxhash64([ids], seed=self._seed)

    def _buckets(self, ids: NDArray[np.uint8]) -> NDArray[np.uint16]:
        from_zero: Hashes = self._hashes(ids).view(np.uint64) ^ np.uint64(1 << 63)
        return (from_zero >> np.uint64(64 - self._bits)).astype(np.uint16)
