"""The processes that train together, as torchrun starts them; one process without it."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from training import TrainingError


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among all: ``rank`` of ``world_size``, and the device of its model."""

    rank: int
    world_size: int
    device: torch.device
    _signals: Any = field(default=None, repr=False)

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that prints and saves."""
        return self.rank == 0

    @property
    def device_id(self) -> int | None:
        """The GPU's number; None on a CPU."""
        return self.device.index if self.device.type == "cuda" else None

    def each(self, numbers: Sequence[float]) -> list[list[float]]:
        """The numbers of each rank, on all ranks."""
        if self.world_size == 1:
            return [list(numbers)]
        found = [torch.empty(len(numbers), dtype=torch.float64) for _ in range(self.world_size)]
        dist.all_gather(found, torch.tensor(list(numbers), dtype=torch.float64), group=self._signals)
        return [one.tolist() for one in found]

    def all_of(self, value: Any) -> list[Any]:
        """The value of each rank, on all ranks."""
        if self.world_size == 1:
            return [value]
        found: list[Any] = [None] * self.world_size
        dist.all_gather_object(found, value, group=self._signals)
        return found

    def share(self, tensors: Iterable[torch.Tensor]) -> None:
        """Copy the first rank's values to all."""
        if self.world_size > 1:
            for one in tensors:
                dist.broadcast(one, 0)

    def any(self, is_true: bool) -> bool:
        """Whether it is true on any rank."""
        found = torch.tensor(float(is_true))
        if self.world_size > 1:
            dist.all_reduce(found, dist.ReduceOp.MAX, group=self._signals)
        return bool(found)


@contextmanager
def ranks(device: str) -> Iterator[Ranks]:
    """Join the other processes, with NCCL on GPUs and gloo on CPUs. Raises `TrainingError` without such a device."""
    world_size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    where = _device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if where.type == "cuda":
        torch.cuda.set_device(where)
    if world_size == 1:
        yield Ranks(rank, world_size, where)
        return
    dist.init_process_group("nccl" if where.type == "cuda" else "gloo")
    try:
        yield Ranks(rank, world_size, where, dist.new_group(backend="gloo"))
    finally:
        dist.destroy_process_group()


def _device(wanted: str, local_rank: int) -> torch.device:
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cpu" or (wanted == "auto" and not found):
        return torch.device("cpu")
    if local_rank >= found:
        raise TrainingError(
            f"Wanted a CUDA device for local rank {local_rank}. Found: {found or 'none'}. "
            "Start fewer processes with --nproc_per_node, or use --device cpu."
        )
    return torch.device("cuda", local_rank)
