"""Random numbers of samples that follow from seed, epoch and place alone, for crops and other augmentations.

A number is a hash of its key, as of a counter-based generator (Salmon et al., "Parallel Random Numbers: As Easy as
1, 2, 3"): the key of a sample is the hash of the epoch's key and the sample's place, and number j is the hash of this
key and j. So a sample has the same numbers in any batch, on any rank, and after any resume.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from formats.hashing import mix64
from loader.errors import OptionError
from loader.options import check_int, check_numbers

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: its multiples are far apart


class Draws:
    """The random numbers of a batch. Each call gives further ones, in the order of the calls.

    Args:
        seed: The seed of the source.
        epoch: The number of the epoch.
        places: The places of the samples in the order of the epoch, int64 ``(b,)``.
        positions: Their positions in the split; by default the places.
        sizes: The heights and widths of their pictures, int64 ``(b, 2)``, if they are known.

    Raises:
        OptionError: An argument has another type, or is out of its range.
    """

    def __init__(
        self,
        *,
        seed: int,
        epoch: int,
        places: NDArray[np.int64],
        positions: NDArray[np.int64] | None = None,
        sizes: NDArray[np.int64] | None = None,
    ) -> None:
        if np.ndim(places) != 1 or not np.issubdtype(np.asarray(places).dtype, np.integer):
            raise OptionError(f"Wanted places as whole numbers (b,). Found: {places!r}")
        self.positions = np.asarray(places) if positions is None else positions
        """The positions of the samples in the split, int64 ``(b,)``, for values that depend on the image."""
        self.sizes = sizes
        """Heights and widths of the pictures, upright, int64 ``(b, 2)``; None where DALI does not decode them."""
        key = f"augmentation 2\0{check_int('seed', seed)}\0{check_int('epoch', epoch, 0)}"
        digest = hashlib.blake2b(key.encode(), digest_size=16, person=b"imagestrata").digest()
        first, second = np.frombuffer(digest, dtype="<u8")
        with np.errstate(over="ignore"):
            mixed = mix64(np.asarray(places).astype(np.uint64) * _GOLDEN + first)
        self._keys = mix64(mixed ^ second)
        self._drawn = 0

    def __len__(self) -> int:
        """The samples of the batch."""
        return len(self._keys)

    def bits(self, count: int = 1) -> NDArray[np.uint64]:
        """Draw ``count`` numbers for each sample: uint64 ``(b, count)``, each of its 2**64 values equally likely."""
        numbers = np.arange(self._drawn + 1, self._drawn + 1 + check_int("count", count, 1), dtype=np.uint64)
        self._drawn += count
        with np.errstate(over="ignore"):
            return mix64(self._keys[:, None] + numbers * _GOLDEN)

    def uniform(self, count: int = 1, *, low: float = 0.0, high: float = 1.0) -> NDArray[np.float32]:
        """Draw ``count`` numbers from ``low`` to ``high`` for each sample: float32 ``(b, count)``.

        Args:
            count: How many for each sample.
            low: The smallest number.
            high: The largest number, which may come by rounding only.

        Returns:
            The numbers, each a multiple of ``(high - low) / 2**24`` above ``low``, but for rounding.

        Raises:
            OptionError: An argument is not a number, or ``count`` is below 1.
        """
        if max(map(abs, check_numbers("low and high", (low, high), 2))) > float(np.finfo(np.float32).max):
            raise OptionError(f"Wanted low and high as numbers of 32 bits. Found: {low!r} and {high!r}")
        # As many bits as a float32 has: more would round up to 1.
        share = (self.bits(count) >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)
        return np.asarray(np.float32(low) + np.float32(high - low) * share, dtype=np.float32)

    def flips(self) -> NDArray[np.int32]:
        """Draw 0 or 1 for each sample, each half the time: int32 ``(b,)``, as DALI's ``mirror`` takes them."""
        return (self.bits()[:, 0] >> np.uint64(63)).astype(np.int32)
