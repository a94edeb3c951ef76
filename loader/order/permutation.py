"""Which sample comes when: the order of an epoch and each rank's share of it. Pure arithmetic, no I/O.

Ranks take interleaved batches; step ``g`` of all ranks together is one global batch of ``batch_size * world_size``
places. With ``rows=22, batch_size=3, world_size=2``::

    step            0            1            2            3
    places   0 1 2  3 4 5 | 6 7 8 9 10 11 | 12 13 14 15 16 17 | 18 19 20 21
    rank 0   0 1 2        | 6 7 8         | 12 13 14          | 18 19          PARTIAL; FILL: 18 19 0
    rank 1          3 4 5 |       9 10 11 |          15 16 17 |       20 21    PARTIAL; FILL: 20 21 1

The last, partial global batch of ``m`` places is divided evenly, ``m * (r + 1) // W - m * r // W`` places to rank
``r``: over the epoch each rank gets as many samples as DALI's readers give to a shard. With PARTIAL and ``m`` below
``W`` some ranks get none, and have one step less. FILL repeats as many places as the last batches lack, as DALI's
readers do with ``pad_last_batch``, but different ones: those with which the epoch began. So no place comes three times,
unless there are fewer places than one global batch. DROP leaves the partial global batch out. With both, all ranks have
the same number of steps, and only full batches.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from formats.permutation import Permutation
from loader.errors import OptionError

LastBatchPolicy: TypeAlias = Literal["FILL", "PARTIAL", "DROP"]


@dataclass(frozen=True, slots=True)
class Sharding:
    """How the places 0..rows-1 of an epoch's global order are distributed to ranks, batch by batch."""

    rows: int
    batch_size: int
    rank: int
    world_size: int
    last_batch_policy: LastBatchPolicy

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise OptionError(f"Wanted a split with at least one row. Found: {self.rows} rows")
        if self.batch_size < 1:
            raise OptionError(f"Wanted batch_size of at least 1. Found: {self.batch_size}")
        if self.world_size < 1:
            raise OptionError(f"Wanted world_size of at least 1. Found: {self.world_size}")
        if not 0 <= self.rank < self.world_size:
            raise OptionError(f"Wanted rank from 0 to {self.world_size - 1} (world_size - 1). Found: {self.rank}")
        policies = get_args(LastBatchPolicy)
        if self.last_batch_policy not in policies:
            raise OptionError(f"Wanted last_batch_policy as one of {policies}. Found: {self.last_batch_policy!r}")

    @property
    def global_batch_size(self) -> int:
        """The places that all ranks take in one full step."""
        return self.batch_size * self.world_size

    @property
    def samples(self) -> int:
        """The samples of one epoch on this rank, including those that FILL repeats."""
        if self.last_batch_policy == "PARTIAL":
            return self._dealt
        whole, rest = divmod(self.rows, self.global_batch_size)
        return (whole + (rest > 0 and self.last_batch_policy == "FILL")) * self.batch_size

    @property
    def steps(self) -> int:
        """The batches of one epoch on this rank."""
        return -(-self.samples // self.batch_size)

    def samples_of(self, steps: range, /) -> int:
        """The samples of some of these batches, of which only the last may be smaller."""
        lacking = self.steps * self.batch_size - self.samples
        return len(steps) * self.batch_size - (lacking if self.steps - 1 in steps else 0)

    @property
    def most_steps(self) -> int:
        """The most batches that a rank has in one epoch; the states of all ranks count them."""
        whole, rest = divmod(self.rows, self.global_batch_size)
        return whole + (rest > 0 and self.last_batch_policy != "DROP")

    def places(self, step: int, /) -> NDArray[np.int64]:
        """The places of this rank's batch at one step: int64 ``(b,)``, ascending, then those that FILL repeats. Raises
        IndexError past the end.
        """
        if not 0 <= step < self.steps:
            raise IndexError(f"Wanted a step from 0 to {self.steps - 1}. Found: {step}")
        begin = step * self.batch_size
        end = min(begin + self.batch_size, self.samples) - self.repeats(step)
        return np.concatenate([self.own(np.arange(begin, end, dtype=np.int64)), self.repeated(step, self.rows)])

    def repeated(self, step: int, rows: int, /) -> NDArray[np.int64]:
        """The places that FILL repeats at the end of this step's batch, int64 ``(repeats,)``, of an epoch of ``rows``
        places.
        """
        # Of all that the ranks repeat, this rank's follow those of the ranks before it. They are taken from the whole
        # epoch, so that they are the same if a rest of the epoch is distributed.
        before = int(self._repeated_before(self.rank))
        return np.arange(before, before + self.repeats(step), dtype=np.int64) % rows

    def own(self, numbers: NDArray[np.int64], /) -> NDArray[np.int64]:
        """The places of this rank's samples by their numbers, which must be below the number of samples with PARTIAL: 0
        for its first of the epoch, without those that FILL repeats. int64 in, int64 of the same shape out.
        """
        steps, inside = np.divmod(numbers, self.batch_size)
        firsts: NDArray[np.int64] = steps * self.global_batch_size
        shares: NDArray[np.int64] = (
            np.minimum(self.rows - firsts, self.global_batch_size) * self.rank // self.world_size
        )
        return firsts + shares + inside

    def where(self, indices: NDArray[np.int64], /) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The steps and the ranks at which places come, of those that are distributed. DROP leaves out those whose step
        would be number `most_steps`.
        """
        steps, inside = np.divmod(indices, self.global_batch_size)
        sizes = np.minimum(self.rows - steps * self.global_batch_size, self.global_batch_size)
        # The last rank whose share begins at this place or before it: size * rank // world_size <= inside.
        return steps, ((inside + 1) * self.world_size - 1) // sizes

    def where_repeated(self, places: NDArray[np.int64], rows: int, /) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which of these places of an epoch of ``rows`` places FILL repeats in the last step, and the ranks that have
        them.
        """
        lacking = -self.rows % self.global_batch_size if self.last_batch_policy == "FILL" else 0
        numbers = places[:, None] + np.arange(0, lacking, rows)  # among all that the ranks repeat
        which, again = np.nonzero(numbers < lacking)
        befores = self._repeated_before(np.arange(self.world_size))
        return which, np.searchsorted(befores, numbers[which, again], side="right") - 1

    def _repeated_before(self, ranks: Any) -> Any:
        """How many places the ranks before these repeat."""
        return ranks * self.batch_size - self.rows % self.global_batch_size * ranks // self.world_size

    def repeats(self, step: int, /) -> int:
        """How many places at the end of this step's batch FILL repeats; 0 with other policies."""
        return max(0, min((step + 1) * self.batch_size, self.samples) - self._dealt)

    @property
    def _dealt(self) -> int:
        """The places of this rank's share, including those that DROP leaves out, without those that FILL repeats."""
        whole, rest = divmod(self.rows, self.global_batch_size)
        share = rest * (self.rank + 1) // self.world_size - rest * self.rank // self.world_size
        return whole * self.batch_size + share


def epoch_order(rows: int, /, *, fingerprint: str, seed: int, epoch: int, shuffle: bool) -> Permutation | None:
    """The global order of an epoch, a function of these arguments alone; None means the split's own order."""
    # It does not depend on the number of ranks, the batch size or anything that happens at run time.
    return epoch_orders(rows, (epoch,), fingerprint=fingerprint, seed=seed) if shuffle else None


def epoch_orders(rows: int, epochs: Iterable[int], /, *, fingerprint: str, seed: int) -> Permutation:
    """The shuffled orders of several epochs, one for each position that is asked for."""
    return Permutation(rows, *(f"epoch order 1\0{fingerprint}\0{seed}\0{epoch}".encode() for epoch in epochs))
