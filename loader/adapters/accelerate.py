"""accelerate: a DataLoader that it has prepared would divide a rank's share again."""

import sys
from typing import Any

from loader.errors import OptionError


def check_sharded(rank: int, world_size: int, *, is_said: bool) -> None:
    """Refuse a rank's share in a job of accelerate, unless the caller has confirmed it. Raises `OptionError`."""
    if world_size > 1 and not is_said and (processes := _processes()) > 1:
        raise OptionError(
            f"Wanted data that are divided once for accelerate's {processes} processes. Found: a source that is rank "
            f"{rank} of {world_size} already; accelerator.prepare() would divide its share again and lose the rest. "
            "Use TorchDataset(source, sharded=True) and do not prepare() its DataLoader, or prepare() a DataLoader of "
            "loader.ImageDataset(split, ...)."
        )


def check_not_prepared(rank: int, world_size: int, /) -> None:
    """Refuse a call of `set_epoch` by a DataLoader of ``accelerator.prepare()``, which makes one for each pass. Raises
    `OptionError` if the dataset already is a rank's share of the samples.
    """
    caller = sys._getframe(2).f_globals.get("__name__", "")
    if world_size > 1 and caller.startswith("accelerate.") and _processes() > 1:
        raise OptionError(
            f"Wanted all data in accelerator.prepare(). Found: the share of rank {rank} of {world_size}; prepare() "
            "would lose the other ranks' shares. Use the DataLoader without prepare(), or make the source with rank=0, "
            "world_size=1, or prepare() a DataLoader of loader.ImageDataset(split, ...)."
        )


def _processes() -> int:
    """The number of accelerate's processes; 1 if it is not in use."""
    state: Any = sys.modules.get("accelerate.state")  # imported already, if it is in use
    return int(state.PartialState().num_processes) if state is not None and state.is_initialized() else 1
