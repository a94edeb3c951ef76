"""Keyed permutations of 0..n-1, and their inverses, that are computed, not stored.

A permutation is a balanced Feistel network over the smallest even number of bits that can represent n, with cycle
walking: a value outside 0..n-1 is permuted again until it is inside (Black and Rogaway, "Ciphers with Arbitrary Finite
Domains"). The domain is smaller than 4 n, so a walk takes at most four rounds on average. This is not a cipher: the
round function is a fast mixer for shuffling data and does not protect secrets.
"""

import hashlib
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from formats.hashing import mix64

_ROUNDS = 8

Integers: TypeAlias = NDArray[np.int64]
Lengths: TypeAlias = NDArray[np.int64] | int
_Words: TypeAlias = NDArray[np.uint64]


class Permutations:
    """Pseudorandom orders of 0..n-1 of any lengths, any number of each, in constant memory. The same key gives the same
    orders on every machine.
    """

    def __init__(self, key: bytes, /) -> None:
        digest = hashlib.blake2b(key, digest_size=8 * _ROUNDS, person=b"imagestrata").digest()
        self._keys = np.frombuffer(digest, dtype="<u8")

    def __call__(self, places: Integers, sizes: Lengths, which: Lengths = 0) -> NDArray[np.int64]:
        """Return the values at positions of orders, int64 of the same shape as ``places``. ``sizes`` are the lengths of
        the orders, below 2**62, and ``which`` their numbers, each one for all or one for each position. Raises
        IndexError for a position outside its order.
        """
        return self._walked(places, sizes, which, self._keys, _rounds)

    def inverse(self, values: Integers, sizes: Lengths, which: Lengths = 0) -> NDArray[np.int64]:
        """Return the positions of values in orders: it undoes `__call__`, with the same arguments and errors."""
        return self._walked(values, sizes, which, self._keys[::-1], _rounds_back)

    def _walked(
        self, found: Integers, sizes: Lengths, which: Lengths, keys: _Words, rounds: Callable[..., _Words]
    ) -> NDArray[np.int64]:
        found = np.asarray(found, dtype=np.int64)
        lengths, numbers = _flat(sizes, found.shape), _flat(which, found.shape)
        if found.size and (found.min() < 0 or (found.ravel() >= lengths).any()):
            most = int(lengths.max()) - 1
            raise IndexError(f"Wanted positions from 0 to {most}. Found: {found.min()} to {found.max()}")
        halves, salts = (_bits(lengths) + np.uint64(1)) >> np.uint64(1), mix64(numbers)  # 0 has no salt
        halves = np.maximum(halves, np.uint64(1))
        values = rounds(found.ravel().astype(np.uint64), halves, salts, keys)
        outside = np.flatnonzero(values >= lengths)
        while outside.size:
            walked = rounds(values[outside], _at(halves, outside), _at(salts, outside), keys)
            values[outside] = walked
            outside = outside[walked >= _at(lengths, outside)]
        return values.astype(np.int64).reshape(found.shape)


class Permutation:
    """One of these orders: a pseudorandom order of 0..n-1."""

    def __init__(self, n: int, key: bytes, /) -> None:
        if n < 0 or n >= 1 << 62:
            raise ValueError(f"Wanted a length from 0 to 2**62 - 1. Found: {n}")
        self._n, self._orders = n, Permutations(key)

    def __len__(self) -> int:
        return self._n

    def __call__(self, places: Integers) -> NDArray[np.int64]:
        """Return the values at positions of the order, int64 of the same shape as ``places``. Raises IndexError for a
        position outside 0..n-1.
        """
        return self._orders(places, self._n)

    def inverse(self, values: Integers) -> NDArray[np.int64]:
        """Return the positions of values in the order. Raises IndexError for a value outside 0..n-1."""
        return self._orders.inverse(values, self._n)


def _rounds(values: _Words, half: _Words, salt: _Words, keys: _Words) -> _Words:
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = values >> half, values & mask
    with np.errstate(over="ignore"):
        for key in keys:
            left, right = right, left ^ (mix64(right + (key ^ salt)) & mask)
    return (left << half) | right


def _rounds_back(values: _Words, half: _Words, salt: _Words, keys: _Words) -> _Words:
    mask: _Words = (np.uint64(1) << half) - np.uint64(1)
    left: _Words = values >> half
    right: _Words = values & mask
    with np.errstate(over="ignore"):
        for key in keys:
            left, right = right ^ (mix64(left + (key ^ salt)) & mask), left
    return (left << half) | right


def _bits(lengths: _Words) -> _Words:
    """The number of bits of the largest value of each order."""
    values: _Words = np.maximum(lengths, np.uint64(1)) - np.uint64(1)
    bits: _Words = np.zeros_like(values)
    for shift in map(np.uint64, (32, 16, 8, 4, 2, 1)):
        is_long = (values >> shift) > 0
        bits, values = bits + np.where(is_long, shift, 0).astype(np.uint64), np.where(is_long, values >> shift, values)
    return bits + values  # the value is the highest bit


def _flat(numbers: Lengths, shape: tuple[int, ...]) -> _Words:
    """One number for all as an array without axes, or one for each element."""
    found = np.asarray(numbers, dtype=np.int64).astype(np.uint64)
    return found if not found.ndim else np.broadcast_to(found, shape).ravel()


def _at(numbers: _Words, places: NDArray[np.intp]) -> _Words:
    return numbers if not numbers.ndim else numbers[places]
