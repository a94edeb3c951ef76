"""Shards as an iterable dataset, whose samples are decoded and put into tuples by webdataset's own functions."""

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import webdataset.filters as filters

from loader._assembly import Filled
from loader._batch import Batch
from loader._errors import OptionError, StateError
from loader._options import check_int
from loader._order import LastBatchPolicy
from loader._ranks import ranks
from loader._s3_client import Client
from loader._shard_schedule import ShardState
from loader._shard_set import TIMEOUT_SECONDS, shards_in
from loader._shard_source import ShardSource
from loader._shard_stream import FilledFromShards, ShardSample

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

    from loader._torch import TorchDataset

    Base = IterableDataset[Any]
else:
    try:
        from torch.utils.data import IterableDataset as Base
    except ImportError:
        Base = object

Stage = Callable[[Iterator[Any]], Iterator[Any]]


class RemoteDataset(Base):
    """The samples of a folder of shards in a bucket: dictionaries of bytes by extension, a new order each pass.

    A sample also has ``__key__`` and ``__url__``, its shard. `decode`, `to_tuple`, `map`, `map_tuple`, `map_dict` and
    `rename` are webdataset's, and give a new dataset; `batched` makes batches of them, behind which `map` and the
    others see batches. It runs under torch's ``DataLoader(dataset, num_workers=k, batch_size=None)``, in a plain loop,
    and where torch is not installed.

    Each pass is the next epoch; `set_epoch` names another. Shards are read in pieces of some megabytes, many at once,
    ahead of their use: an epoch's order of pieces, and of the samples of several pieces mixed, is that of
    `loader.ShardSource`, which also explains ``mix``, ``streams``, ``memory_budget``, ``timeout``, ``max_in_flight``,
    ``cache`` and ``cache_bytes``. Ranks read different parts of the shards, and so do workers, whose batches come in
    one order, however many they are. ``rank`` and ``world_size`` are those of torch.distributed, where it is
    initialised, else of the environment (``RANK``, ``WORLD_SIZE``). All ranks have as many batches: with several,
    ``last_batch_policy`` is "FILL", which repeats a few samples, unless it is given; alone it is "PARTIAL", each sample
    once.

    `state_dict` and `load_state_dict` go on exactly: under a StatefulDataLoader, which saves and restores them, and in
    a plain loop. Raises `OptionError` for an option out of its range, `SplitError` for a place without shards,
    `AccessError`, `UnreachableError`, and in a pass `ShardError` for shards that are damaged.
    """

    def __init__(
        self,
        client: Client,
        bucket: str,
        folder: str = "",
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        last_batch_policy: LastBatchPolicy | None = None,
        mix: int | None = None,
        streams: int = 12,
        memory_budget: int = 400_000_000,
        timeout: float = TIMEOUT_SECONDS,
        max_in_flight: int = 64,
        cache: str | os.PathLike[str] | None = None,
        cache_bytes: int = 100_000_000_000,
    ) -> None:
        if not isinstance(client, Client):
            raise OptionError(f"Wanted a client, as loader.shards.make_client gives it. Found: {client!r}")
        rank, world_size = ranks(rank, world_size)
        self._source = _SampleSource(
            shards_in(client, bucket, folder),
            batch_size=1,
            rank=rank,
            world_size=world_size,
            seed=seed,
            shuffle=shuffle,
            last_batch_policy=last_batch_policy or ("PARTIAL" if world_size == 1 else "FILL"),
            mix=mix,
            streams=streams,
            memory_budget=memory_budget,
            timeout=timeout,
            max_in_flight=max_in_flight,
            cache=cache,
            cache_bytes=cache_bytes,
        )
        self._passes = _passes(self._source)
        self._stages: tuple[Stage, ...] = ()
        self._collate: Callable[[list[Any]], Any] | None = None
        self._batch_stages: tuple[Stage, ...] = ()

    def __repr__(self) -> str:
        source = self._source
        batched = f".batched({source.batch_size})" if self._collate is not None else ""
        return f"RemoteDataset({source.split!r}, rank={source.rank}, world_size={source.world_size}){batched}"

    def __len__(self) -> int:
        """The batches of a whole epoch on this rank, over all workers; samples, unless they are batched."""
        return len(self._source)

    @property
    def classes(self) -> list[str]:
        """The names of the classes by their numbers; numbers where names are not known."""
        split = self._source.split
        return [split.class_names.get(label, str(label)) for label in range(split.num_classes)]

    def decode(self, *handlers: Any, **options: Any) -> Self:
        """Decode files by their extensions, pictures as ``"pil"``, ``"rgb8"``, ``"torchrgb"``, ...; see webdataset."""
        return self._with(filters.decode(*handlers, **options))

    def to_tuple(self, *names: str, **options: Any) -> Self:
        """Make tuples of samples' files: ``"jpg;png"`` is the first of these that a sample has."""
        return self._with(filters.to_tuple(*names, **options))

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Put each sample through a function; each batch, behind `batched`."""
        return self._with(filters.map(function))

    def map_tuple(self, *functions: Callable[[Any], Any]) -> Self:
        """Put the elements of each tuple through functions."""
        return self._with(filters.map_tuple(*functions))

    def map_dict(self, **functions: Callable[[Any], Any]) -> Self:
        """Put some of each sample's values through functions, by their names."""
        return self._with(filters.map_dict(**functions))

    def rename(self, **names: str) -> Self:
        """Give values other names: ``image="jpg;png"``."""
        return self._with(filters.rename(**names))

    def batched(self, batch_size: int, *, collation_fn: Callable[[list[Any]], Any] | None = None) -> Self:
        """Make batches, by default as webdataset does: tensors and arrays stacked, numbers as an array.

        The last of an epoch is smaller if ``last_batch_policy`` is PARTIAL. Begins at the first epoch.
        """
        if self._collate is not None:
            raise OptionError("Wanted samples to be batched. Found: batches")
        made = copy.copy(self)
        made._source = self._source.again(batch_size=check_int("batch_size", batch_size, 1))
        made._passes = _passes(made._source)
        made._collate = collation_fn or filters.default_collation_fn
        return made

    def set_epoch(self, epoch: int, /) -> None:
        """Let the next pass be this epoch; those that follow count on from it."""
        self._passes.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where this process stands: in a loop behind the batch that was taken last; what a StatefulDataLoader asks."""
        return self._passes.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Let the next pass go on from a state: a loop's also with another batch size or number of ranks.

        Raises `StateError` for one of other shards or another order.
        """
        if not isinstance(state, Mapping):
            raise StateError(f"Wanted a state, as state_dict() gives it. Found: {state!r}")
        try:
            self._passes.load_state_dict(state)
        except StateError:
            if state.get("workers") != 1:
                raise
            self._passes.load_state_dict(_of_the_source(state))

    def __iter__(self) -> Iterator[Any]:
        batches: Iterator[Any] = map(self._made, self._passes)
        for stage in self._batch_stages:
            batches = stage(batches)
        return batches

    def _with(self, stage: Stage) -> Self:
        made = copy.copy(self)
        made._source = self._source.again()  # or both would count on each other's passes
        made._passes = _passes(made._source)
        if self._collate is None:
            made._stages = (*self._stages, stage)
        else:
            made._batch_stages = (*self._batch_stages, stage)
        return made

    def _made(self, batch: Batch) -> Any:
        assert isinstance(batch, SampleBatch)
        samples: Iterator[Any] = iter(batch.samples)
        for stage in self._stages:
            samples = stage(samples)
        found = list(samples)
        if len(found) != len(batch.samples):
            raise OptionError(
                f"Wanted functions that give a sample for each. Found: {len(found)} of {len(batch.samples)}; a handler "
                "that leaves samples out would give ranks different numbers of batches"
            )
        return found[0] if self._collate is None else self._collate(found)


@dataclass(frozen=True, slots=True, eq=False)
class SampleBatch(Batch):
    """A batch of samples as they are in the shards: dictionaries of bytes, with ``__key__`` and ``__url__``."""

    samples: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.samples)


_NO_LABELS = np.empty(0, dtype=np.int32)
_NO_IDS = np.empty((0, 16), dtype=np.uint8)
_NO_POSITIONS = np.empty(0, dtype=np.int64)


class _SampleSource(ShardSource):
    """A source whose batches have the samples' files and nothing else."""

    def _batch(self, filled: Filled | FilledFromShards, epoch: int) -> Batch:
        assert isinstance(filled, FilledFromShards)
        return SampleBatch(
            images=[],
            labels=_NO_LABELS,
            ids=_NO_IDS,
            positions=_NO_POSITIONS,
            epoch=epoch,
            step=filled.number,
            repeats=filled.repeats,
            samples=[_plain(one, self.split.address) for one in filled.samples],
        )


class _LoopPasses:
    """The passes of a source where there is no torch: one process, one epoch after another."""

    def __init__(self, source: ShardSource) -> None:
        self._source, self._next = source, source.first_epoch

    def __iter__(self) -> Iterator[Batch]:
        epoch, self._next = self._next, self._next + 1
        return self._source.epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        self._next = check_int("epoch", epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        return self._source.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._source.load_state_dict(state)
        self._next = self._source.first_epoch


def _passes(source: ShardSource) -> "TorchDataset | _LoopPasses":
    if Base is object:
        return _LoopPasses(source)
    from loader._torch import TorchDataset

    return TorchDataset(source)


def _of_the_source(state: Mapping[str, Any]) -> dict[str, Any]:
    """What the state of a loop says of its source, which any number of ranks goes on from. Raises `StateError`."""
    try:
        begin = ShardState.from_dict(state["begin"])
        first = (begin.rows - begin.deal().rows) // (begin.batch_size * begin.world_size)
        return replace(begin, steps=int(state["steps"]) - first).to_dict()
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"Wanted a state, as state_dict() gives it. Found: {error!r}") from None


def _plain(sample: ShardSample, address: str) -> dict[str, Any]:
    return {"__key__": sample.key, "__url__": f"{address}/{sample.shard}", **sample.members}
