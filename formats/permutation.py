"""Keyed permutations of 0..n-1, and their inverses, that are computed, not stored.

A permutation is a balanced Feistel network over the smallest even number of bits that can represent n, with cycle
walking: a value outside 0..n-1 is permuted again until it is inside (Black and Rogaway, "Ciphers with Arbitrary Finite
Domains"). The domain is smaller than 4 n, so a walk takes at most four rounds on average. This is not a cipher: the
round function is a fast mixer for shuffling data and does not protect secrets.
"""

import hashlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from formats.hashing import mix64

_ROUNDS = 8
_ONE = np.array(1, dtype=np.uint64)

Integers: TypeAlias = NDArray[np.int64]
Lengths: TypeAlias = NDArray[np.int64] | int
_Words: TypeAlias = NDArray[np.uint64]


class Permutations:
    """Pseudorandom orders of 0..n-1 of any lengths, any number of each, in constant memory. The same key gives the same
    orders on every machine. With several keys, the orders at each position are those of the key at that position.
    """

    def __init__(self, *keys: bytes) -> None:
        digests = (hashlib.blake2b(key, digest_size=8 * _ROUNDS, person=b"imagestrata").digest() for key in keys)
        self._keys = np.frombuffer(b"".join(digests), dtype="<u8").reshape(len(keys), _ROUNDS).T

    def __call__(self, places: Integers, sizes: Lengths, which: Lengths = 0) -> NDArray[np.int64]:
        """Return the values at positions of orders, int64 of the same shape as ``places``. ``sizes`` are the lengths of
        the orders, below 2**62, and ``which`` their numbers, each one for all or one for each position. Raises
        IndexError for a position outside its order.
        """
        return self._walked(places, sizes, which)

    def inverse(self, values: Integers, sizes: Lengths, which: Lengths = 0) -> NDArray[np.int64]:
        """Return the positions of values in orders: it undoes `__call__`, with the same arguments and errors."""
        return self._walked(values, sizes, which, is_back=True)

    def _walked(self, found: Integers, sizes: Lengths, which: Lengths, *, is_back: bool = False) -> NDArray[np.int64]:
        found = np.asarray(found, dtype=np.int64)
        lengths = _flat(sizes, found.shape)
        if found.size and (found.min() < 0 or (found.ravel() >= lengths).any()):
            most = int(lengths.max()) - 1
            raise IndexError(f"Wanted positions from 0 to {most}. Found: {found.min()} to {found.max()}")
        halves = np.asarray(np.maximum((_bits(lengths) + 1) // 2, 1).astype(np.uint64))
        words = (self._keys[::-1] if is_back else self._keys) ^ mix64(np.atleast_1d(_flat(which, found.shape)))
        words = words[:, 0] if words.shape[1] == 1 else words  # one number for all is fastest without axes
        values = _rounds(found.ravel().astype(np.uint64), halves, words, is_back=is_back)
        outside = np.flatnonzero(values >= lengths)
        while outside.size:
            own = _at(halves, outside), words if words.ndim == 1 else words[:, outside]
            values[outside] = walked = _rounds(values[outside], *own, is_back=is_back)
            outside = outside[walked >= _at(lengths, outside)]
        return values.astype(np.int64).reshape(found.shape)


class Permutation:
    """One of these orders: a pseudorandom order of 0..n-1. With several keys, one order for each position."""

    def __init__(self, n: int, /, *keys: bytes) -> None:
        if n < 0 or n >= 1 << 62:
            raise ValueError(f"Wanted a length from 0 to 2**62 - 1. Found: {n}")
        self._n, self._orders = n, Permutations(*keys)

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


def _rounds(values: _Words, halves: _Words, words: _Words, *, is_back: bool) -> _Words:
    """One pass of the network; back, it is the same one with the halves exchanged, and the words in reverse."""
    masks = np.asarray((_ONE << halves) - _ONE)
    left, right = values >> halves, values & masks
    if is_back:
        left, right = right, left
    for number in range(_ROUNDS):
        mixed = mix64(right + words[number, ...])
        mixed &= masks
        mixed ^= left
        left, right = right, mixed
    if is_back:
        left, right = right, left
    left <<= halves
    left |= right
    return left


def _bits(lengths: _Words) -> NDArray[np.int32]:
    """The number of bits of the largest value of each order."""
    most: _Words = np.maximum(lengths, _ONE) - _ONE
    # Without the bit below its highest one, a number that is rounded to a float keeps its length.
    return np.asarray(np.frexp((most & ~(most >> _ONE)).astype(np.float64))[1])


def _flat(numbers: Lengths, shape: tuple[int, ...]) -> _Words:
    """One number for all as an array without axes, or one for each element."""
    found = np.asarray(numbers, dtype=np.int64).astype(np.uint64)
    return found if not found.ndim else np.broadcast_to(found, shape).ravel()


def _at(numbers: _Words, places: NDArray[np.intp]) -> _Words:
    return numbers if not numbers.ndim else numbers[places]
