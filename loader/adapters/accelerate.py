"""Hugging Face accelerate, which shares out the samples of datasets: never of one that is a rank's share already."""

import sys
from typing import Any

from loader.errors import OptionError


def check_sharded(rank: int, world_size: int, *, is_said: bool) -> None:
    """Refuse a rank's share in a job of accelerate's, unless the caller has said that it is one.

    Raises:
        OptionError: accelerate runs with several processes, and the data are shared out to ranks already.
    """
    if world_size > 1 and not is_said and (processes := _processes()) > 1:
        raise OptionError(
            f"Wanted to know who shares out the samples to accelerate's {processes} processes. Found: a source that is "
            f"rank {rank} of {world_size} already, of which accelerator.prepare() would lose all but one rank's share. "
            "Either say TorchDataset(source, sharded=True), and keep its DataLoader out of prepare(); or prepare() a "
            "DataLoader of loader.ImageDataset(split, ...)."
        )


def check_not_prepared(rank: int, world_size: int, /) -> None:
    """Refuse a call of a dataset's `set_epoch` that comes from a DataLoader of ``accelerator.prepare()``.

    Such a DataLoader makes the call at the beginning of each pass.

    Raises:
        OptionError: The dataset is a rank's share of the samples already.
    """
    caller = sys._getframe(2).f_globals.get("__name__", "")
    if world_size > 1 and caller.startswith("accelerate.") and _processes() > 1:
        raise OptionError(
            f"Wanted whole data in accelerator.prepare(). Found: the share of rank {rank} of {world_size}; prepare() "
            "would lose the other ranks' shares. Use the DataLoader without prepare(), or make the source with rank=0, "
            "world_size=1, or prepare() a DataLoader of loader.ImageDataset(split, ...)."
        )


def _processes() -> int:
    """How many processes accelerate runs; 1 where it is not in use."""
    state: Any = sys.modules.get("accelerate.state")  # who uses it has imported it
    return int(state.PartialState().num_processes) if state is not None and state.is_initialized() else 1
