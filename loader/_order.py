"""Which sample when: the order of an epoch and each rank's share of it. Pure arithmetic, nothing is read or stored."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from loader._errors import OptionError

if TYPE_CHECKING:
    from formats import Permutation

LastBatchPolicy: TypeAlias = Literal["PARTIAL", "DROP"]


@dataclass(frozen=True, slots=True)
class Sharding:
    """How the places 0..rows-1 of an epoch's global order are dealt to ranks, batch by batch.

    Ranks take interleaved batches; step ``g`` of all ranks together is one global batch of ``batch_size * world_size``
    places. With ``rows=22, batch_size=3, world_size=2``::

        step            0            1            2            3
        places   0 1 2  3 4 5 | 6 7 8 9 10 11 | 12 13 14 15 16 17 | 18 19 20 21
        rank 0   0 1 2        | 6 7 8         | 12 13 14          | 18 19          PARTIAL; nothing if DROP
        rank 1          3 4 5 |       9 10 11 |          15 16 17 |       20 21    PARTIAL; nothing if DROP

    The last, partial global batch of ``m`` places is divided evenly, ``m * (r + 1) // W - m * r // W`` places to rank
    ``r``: over the epoch each rank gets as many samples as DALI's readers give to a shard. With ``m`` below ``W`` some
    ranks get none, and have a step fewer. With DROP all ranks have the same number of steps.
    """

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
        """The places that all ranks take in one whole step."""
        return self.batch_size * self.world_size

    @property
    def samples(self) -> int:
        """The samples of one epoch on this rank."""
        whole, rest = divmod(self.rows, self.global_batch_size)
        if self.last_batch_policy == "DROP":
            return whole * self.batch_size
        start, stop = self._share(rest)
        return whole * self.batch_size + stop - start

    @property
    def steps(self) -> int:
        """The batches of one epoch on this rank."""
        return -(-self.samples // self.batch_size)

    def places(self, step: int, /) -> NDArray[np.int64]:
        """The places of this rank's batch at one step: int64 ``(b,)``, ascending. Raises IndexError past the end."""
        if not 0 <= step < self.steps:
            raise IndexError(f"Wanted a step from 0 to {self.steps - 1}. Found: {step}")
        first = step * self.global_batch_size
        start, stop = self._share(min(self.rows - first, self.global_batch_size))
        return np.arange(first + start, first + stop, dtype=np.int64)

    def _share(self, places: int) -> tuple[int, int]:
        """This rank's slice of a global batch; for a whole one it is batch ``rank`` of ``world_size``."""
        return places * self.rank // self.world_size, places * (self.rank + 1) // self.world_size


def epoch_order(rows: int, /, *, fingerprint: str, seed: int, epoch: int, shuffle: bool) -> "Permutation | None":
    """The global order of an epoch, a function of these arguments alone; None stands for the split's own order.

    The number of ranks, the batch size and whatever happens at run time have no part in it.
    """
    from formats import Permutation  # not at the top: it brings Arrow and storage, which take a third of a second

    if not shuffle:
        return None
    return Permutation(rows, f"epoch order 1\0{fingerprint}\0{seed}\0{epoch}".encode())
