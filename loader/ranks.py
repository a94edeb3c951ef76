"""The rank of this process, and the number of ranks."""

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from loader.errors import OptionError
from loader.options import check_int

_log = logging.getLogger(__name__)
_logged: set[str] = set()


def ranks(rank: int | None = None, world_size: int | None = None, /) -> tuple[int, int]:
    """The rank, from 0, and the number of ranks: as given, else detected. Raises `OptionError` for one without the
    other, a rank that is not below the number of ranks, and an environment with only one variable of a pair, or
    something that is not a number.
    """
    if (rank is None) != (world_size is None):
        missing = "rank" if rank is None else "world_size"
        raise OptionError(
            f"Wanted rank and world_size, or neither to detect them. Found: rank={rank}, world_size={world_size}. "
            f"Give {missing} as well. For a process that reads everything alone, give rank=0, world_size=1."
        )
    if rank is not None and world_size is not None:
        world_size = check_int("world_size", world_size, 1)
        return check_int("rank", rank, 0, world_size - 1), world_size
    rank, world_size, place = _detected(os.environ)
    if (rank, world_size) != (0, 1):
        message = f"rank {rank} of {world_size} ranks, from {place}"
        if message not in _logged:
            _logged.add(message)
            _log.info("detected %s", message)
    return rank, world_size


def check_detected(rank: int, world_size: int, /) -> None:
    """Compare detected ranks with torch.distributed, which may have been initialised since. Raises `OptionError`."""
    found = _of_torch()
    if found is not None and found != (rank, world_size):
        raise OptionError(
            f"Wanted the ranks of torch.distributed: rank={found[0]}, world_size={found[1]}. Found: rank={rank}, "
            f"world_size={world_size}, detected before it was initialised. Make the source after "
            "init_process_group, or give rank and world_size."
        )


def _detected(environment: Mapping[str, str]) -> tuple[int, int, str]:
    """Rank, number of ranks, and where they come from."""
    if (found := _of_torch()) is not None:
        return *found, "torch.distributed"
    names = ("RANK", "WORLD_SIZE")
    if any(environment.get(name) for name in names):
        return *_of_variables(environment, *names), "RANK and WORLD_SIZE"
    # Inside a batch script or `srun --pty` Slurm describes the allocation: there is one process, whatever SLURM_NTASKS.
    if environment.get("SLURM_STEP_NUM_TASKS", "1") not in ("", "0", "1"):
        return *_of_variables(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), "Slurm's step"
    return 0, 1, "no job"


def _of_torch() -> tuple[int, int] | None:
    distributed: Any = sys.modules.get("torch.distributed")  # imported already, if it is initialised
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _of_variables(environment: Mapping[str, str], rank_name: str, size_name: str) -> tuple[int, int]:
    rank, size = environment.get(rank_name, ""), environment.get(size_name, "")
    is_good = rank.isascii() and rank.isdecimal() and size.isascii() and size.isdecimal() and int(rank) < int(size)
    if not is_good:
        raise OptionError(
            f"Wanted {rank_name} and {size_name} in the environment as numbers, the first one smaller, or neither. "
            f"Found: {rank_name}={rank or 'not set'}, {size_name}={size or 'not set'}. "
            "Set both, unset both, or give rank= and world_size=. For a process that reads everything alone, give "
            "rank=0, world_size=1."
        )
    return int(rank), int(size)
