"""Which epoch a pass of torch's workers is, agreed on by themselves."""

import os

import torch
from torch.utils.data import get_worker_info

from loader._errors import OptionError

_MOST_WORKERS = 1024
_COUNT_BITS = 11  # for as many workers, and none
_BIRTHS = 1 << 20  # births are told apart so far


class Births:
    """How many processes this one has begun, for all that it can tell: forks, and copies made for others to unpickle.

    A forked child has the number that it was itself.
    """

    count = 0

    @classmethod
    def add(cls) -> None:
        cls.count += 1


os.register_at_fork(before=Births.add)


class Passes:
    """Which epoch each worker has begun last, in memory that the main process and all workers share.

    Nobody tells workers which pass it is. torch begins the workers of a pass one after another, so that a worker's
    birth less its number is the same for all of a pass, or nearly, where something else was born in between; that
    of the next pass differs by the number of workers at least. So the first worker that begins takes the next
    epoch, and the others of its pass join it. A worker that has begun it already, and lives on, takes the next one.
    Two that begin at once write the same epoch, so that nothing is locked: what a worker writes is one number, of
    epoch and pass.
    """

    def __init__(self) -> None:
        self._shared = torch.zeros(2 + _MOST_WORKERS, dtype=torch.int64)
        self._shared.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def loads(self) -> int:
        """How often states were loaded in the main process."""
        return int(self._shared[0])

    @loads.setter
    def loads(self, count: int) -> None:
        self._shared[0] = count

    def restart(self, epoch: int | None) -> None:
        """Let the next pass be this epoch; None: the source's first."""
        self._shared[2:] = 0
        self._shared[1] = 0 if epoch is None else epoch + 1

    def begin(self, number: int, count: int, birth: int, *, first_epoch: int, epoch: int | None) -> int:
        """The epoch that a worker's next pass delivers: the one that is given, or the one that is its turn.

        ``count`` workers are there, 0 for the main process alone.
        """
        begun = self._shared[2:]
        mine = (birth - number) % _BIRTHS
        if epoch is None:
            newest = int(begun.max())
            theirs, their_count = newest >> _COUNT_BITS & _BIRTHS - 1, newest & _MOST_WORKERS * 2 - 1
            apart = min((mine - theirs) % _BIRTHS, (theirs - mine) % _BIRTHS)
            if not newest:
                epoch = int(self._shared[1]) - 1 if self._shared[1] else first_epoch
            elif their_count == count and apart < count and int(begun[number]) >> 32 < newest >> 32:
                epoch = (newest >> 32) - 1
            else:
                epoch = newest >> 32
        else:
            begun[begun >> 32 > epoch + 1] = 0  # of passes before the state was loaded
        begun[number] = (epoch + 1) << 32 | mine << _COUNT_BITS | count
        return epoch


def this_worker() -> tuple[int, int]:
    """This worker's number, and how many there are."""
    info = get_worker_info()
    if info is None:
        return 0, 1
    if info.num_workers > _MOST_WORKERS:
        raise OptionError(f"Wanted num_workers of at most {_MOST_WORKERS}. Found: {info.num_workers}")
    return info.id, info.num_workers
