"""Which process of a job this is, and of how many."""

import os
import sys
from typing import Any

from loader._errors import OptionError
from loader._options import check_int


def ranks(rank: int | None = None, world_size: int | None = None, /) -> tuple[int, int]:
    """The rank, from 0, and the number of ranks: those that are given, else those of the process.

    These are torch.distributed's, where it is initialised, else what torchrun says in RANK and WORLD_SIZE, else one
    alone. Raises `OptionError` for one without the other, and for a rank that is not below the number of ranks.
    """
    if (rank is None) != (world_size is None):
        raise OptionError(f"Wanted rank and world_size, or neither. Found: {rank} and {world_size}")
    if rank is None or world_size is None:
        rank, world_size = _of_the_process()
    world_size = check_int("world_size", world_size, 1)
    return check_int("rank", rank, 0, world_size - 1), world_size


def _of_the_process() -> tuple[int, int]:
    distributed: Any = sys.modules.get("torch.distributed")  # who has initialised it has imported it
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world_size is None:
        return 0, 1
    try:
        return int(rank or ""), int(world_size or "")
    except ValueError:
        raise OptionError(
            f"Wanted rank and world_size, or RANK and WORLD_SIZE as numbers. Found: {rank!r}, {world_size!r}"
        ) from None
