"""The epochs of a split as they are read: from the schedule to samples, one epoch after another."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from loader.order.schedule import Schedule
from loader.prefetch.batcher import Assembly, InOrder, OutOfOrder
from loader.splits import Split

_REORDER = 4096
"""How far, in samples of a rank, one may overtake another out of order."""


def assemblies(
    schedule: Schedule, split: Split, epoch: int, in_order: bool, is_followed: bool, offset: int, every: int
) -> Iterator[Assembly]:
    """The epochs to be read, one after another. It must not hold the source, which ends its reads when forgotten."""
    size, is_padded = schedule.batch_size, schedule.last_batch_policy != "PARTIAL"

    def ids(positions: NDArray[np.int64]) -> NDArray[np.uint8]:
        return np.asarray(split.ids[positions])

    while True:
        steps = schedule.steps(epoch, offset=offset, every=every)
        if in_order:
            yield InOrder(steps, ids, batch_size=size, is_padded=is_padded)
        else:
            yield OutOfOrder(steps, ids, batch_size=size, is_padded=is_padded, reorder=_REORDER)
        if not is_followed or not schedule.whole.samples:
            return
        epoch += 1
