"""Samples of shards as dictionaries of bytes, and passes over them, with and without torch."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from loader.batch import Batch
from loader.errors import StateError
from loader.options import check_int
from loader.prefetch.batcher import Filled
from loader.shards.shard_schedule import ShardState
from loader.shards.shard_set import Shards
from loader.source import Source
from loader.sources import ShardSource

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

    from loader.adapters.torch_dataset import TorchDataset

    Base = IterableDataset[Any]
else:
    try:
        from torch.utils.data import IterableDataset as Base
    except ImportError:
        Base = object


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SampleBatch(Batch):
    """A batch of samples as they are in the shards: ``b`` dictionaries of bytes, with ``__key__`` and ``__url__``."""

    samples: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.samples)


_NO_LABELS = np.empty(0, dtype=np.int32)
_NO_IDS = np.empty((0, 16), dtype=np.uint8)
_NO_POSITIONS = np.empty(0, dtype=np.int64)


class SampleSource(ShardSource):
    """A source whose batches have only the samples' files, with the options of `ShardSource`."""

    def _batches_of(self, shards: Shards) -> Callable[..., Batch]:
        return partial(_sample_batch, address=shards.address)


def _sample_batch(filled: Filled, epoch: int, /, *, address: str) -> SampleBatch:
    return SampleBatch(
        images=[],
        labels=_NO_LABELS,
        ids=_NO_IDS,
        positions=_NO_POSITIONS,
        epoch=epoch,
        step=filled.number,
        repeats=filled.repeats,
        samples=[{"__key__": one.key, "__url__": f"{address}/{one.shard}", **one.members} for one in filled.samples],
    )


class LoopPasses:
    """The passes over a source without torch: one process, one epoch after another."""

    def __init__(self, source: Source) -> None:
        self._source, self._next = source, source.first_epoch

    def __iter__(self) -> Iterator[Any]:
        epoch, self._next = self._next, self._next + 1
        return self._source.epoch(epoch)

    def end_pass(self) -> None:
        """Does nothing: there are no other workers."""

    def set_epoch(self, epoch: int) -> None:
        self._next = check_int("epoch", epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        return self._source.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._source.load_state_dict(state)
        self._next = self._source.first_epoch


def passes_of(source: Source) -> "TorchDataset | LoopPasses":
    """The passes over a source: those of `TorchDataset`, which workers share, if torch is installed."""
    if Base is object:
        return LoopPasses(source)
    from loader.adapters.torch_dataset import TorchDataset

    return TorchDataset(source, sharded=True)


def state_of_the_source(state: Mapping[str, Any]) -> dict[str, Any]:
    """The source's part of a loop's state, from which any number of ranks can continue. Raises `StateError`."""
    try:
        begin = ShardState.from_dict(state["begin"])
        first = (begin.rows - begin.dealt) // (begin.batch_size * begin.world_size)
        return replace(begin, steps=int(state["steps"]) - first).to_dict()
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"Wanted a state from state_dict(). Found: {error!r}") from None
