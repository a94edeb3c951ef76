"""A keyed permutation of 0..n-1 that is computed, not stored.

It is a balanced Feistel network over the smallest even number of bits that can represent n, with cycle walking: a value
outside 0..n-1 is permuted again until it is inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains"). The
domain is smaller than 4 n, so a walk takes at most four rounds on average. This is not a cipher: the round function is
a fast mixer for shuffling data and does not protect secrets.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from formats.hashing import mix64

_ROUNDS = 8


class Permutation:
    """A pseudorandom order of 0..n-1 in constant memory. The same key gives the same order on every machine."""

    def __init__(self, n: int, key: bytes, /) -> None:
        if n < 0 or n >= 1 << 62:
            raise ValueError(f"Wanted a length from 0 to 2**62 - 1. Found: {n}")
        self._n = n
        self._half = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))
        self._mask = np.uint64((1 << int(self._half)) - 1)
        digest = hashlib.blake2b(key, digest_size=8 * _ROUNDS, person=b"imagestrata").digest()
        self._keys = np.frombuffer(digest, dtype="<u8")

    def __len__(self) -> int:
        return self._n

    def __call__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the values at positions of the order, int64 of the same shape as ``places``. Raises IndexError for a
        position outside 0..n-1.
        """
        places = np.asarray(places, dtype=np.int64)
        if places.size and (places.min() < 0 or places.max() >= self._n):
            raise IndexError(f"Wanted positions from 0 to {self._n - 1}. Found: {places.min()} to {places.max()}")
        values = self._shuffle(places.ravel().astype(np.uint64))
        outside = np.flatnonzero(values >= self._n)
        while outside.size:
            values[outside] = self._shuffle(values[outside])
            outside = outside[values[outside] >= self._n]
        return values.astype(np.int64).reshape(places.shape)

    def _shuffle(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = values >> self._half, values & self._mask
        with np.errstate(over="ignore"):
            for key in self._keys:
                left, right = right, left ^ (mix64(right + key) & self._mask)
        return (left << self._half) | right
