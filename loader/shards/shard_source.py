"""The source that reads shards, with all that the other sources promise."""

import logging
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from loader.batch import Batch
from loader.errors import OptionError, ShardError
from loader.options import check_bools, check_int, check_seconds
from loader.order.permutation import LastBatchPolicy
from loader.prefetch.ahead import AnySchedule, AnyStream
from loader.prefetch.batcher import Filled
from loader.ranks import ranks
from loader.shards.pieces import places_of
from loader.shards.shard_schedule import ShardSchedule
from loader.shards.shard_set import TIMEOUT_SECONDS, Shards
from loader.shards.shard_stream import FilledFromShards, ShardEngine, ShardSample, epochs_of
from loader.source import Source

log = logging.getLogger(__name__)

_LABELS = ("cls", "json")
_MIXED_BYTES = 200_000_000
_LEAST_MIX, _MOST_MIX = 8, 1024


class ShardSource(Source):
    """Batches of shards on one rank, read ahead of their use in large pieces, from an object store or a disk.

    Ranks, policies, states and all that is done with sources is as in `Source`; the order is one for shards. An epoch
    puts all pieces of all shards (some 5 MB each) into a new order, which follows from (fingerprint, ``seed``, epoch)
    alone, and gives each rank a stretch of it, so that ranks read different parts of the shards. A rank's stretch is
    read as ``streams`` side by side, which give a batch in turn; in each, ``mix`` samples of several pieces are mixed
    anew. With as many workers as divide ``streams`` (1, 2, 3, 4, 6 or 12 of 12), each reads pieces of its own; with any
    number the order is the same. A state goes on exactly, at the very next batch; with another ``batch_size``,
    ``world_size``, ``streams`` or ``mix``, what is left of the epoch is dealt anew, each sample once.

    ``memory_budget`` bounds, in bytes a rank, what is in memory or on its way, besides the batch that is put together;
    each of torch's k workers has a k-th of it, which must hold the largest piece. ``mix`` is by default as many samples
    as 200 MB hold for all streams, from 8 to 1,024 (150 of 110 kB), which follows from their mean size. A budget that
    does not hold them changes no order: pieces are read again then, which is slow, logged once, and counted in
    ``stats().rereads``. ``max_in_flight`` requests are under way, each on a connection of its own. A request that
    fails, also one that begins a pass, is tried again until ``timeout`` seconds have passed. Every piece is checked
    against its XXH3; `Shards.verify` compares whole shards with their SHA-256. ``cache`` is a folder on a local disk in
    which up to ``cache_bytes`` of pieces are kept.

    A batch has a sample's first file, which is its picture, its class number or its mask or array, and its id. Other
    files of samples are counted in ``not_taken``, by extension, in the process that reads; `RemoteDataset` gives all.

    Raises `OptionError` for an option out of its range. Reading raises `ShardError` for a shard that is missing, cut
    off or another than its manifest says, `AccessError`, `UnreachableError`.
    """

    def __init__(
        self,
        shards: Shards,
        *,
        batch_size: int,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        last_batch_policy: LastBatchPolicy = "PARTIAL",
        mix: int | None = None,
        streams: int = 12,
        memory_budget: int = 400_000_000,
        timeout: float = TIMEOUT_SECONDS,
        max_in_flight: int = 64,
        cache: str | os.PathLike[str] | None = None,
        cache_bytes: int = 100_000_000_000,
    ) -> None:
        if not isinstance(shards, Shards):
            raise OptionError(f"Wanted shards, as loader.open_shards gives them. Found: {shards!r}")
        check_bools(shuffle=shuffle)
        is_detected = rank is None
        rank, world_size = ranks(rank, world_size)
        schedule = ShardSchedule(
            fingerprint=shards.fingerprint,
            pieces=np.array([place.samples for place in places_of(shards)], dtype=np.int64),
            seed=check_int("seed", seed),
            shuffle=shuffle,
            batch_size=check_int("batch_size", batch_size),
            rank=rank,
            world_size=world_size,
            last_batch_policy=last_batch_policy,
            streams=check_int("streams", streams, 1, 4096),
            mix=usual_mix(shards, streams) if mix is None else check_int("mix", mix, 1),
        )
        engine = ShardEngine(
            shards,
            budget=_checked_budget(check_int("memory_budget", memory_budget, 1), shards),
            threads=check_int("max_in_flight", max_in_flight, 1),
            cache=None if cache is None else Path(cache).absolute(),
            cache_bytes=check_int("cache_bytes", cache_bytes, 0),
            timeout=check_seconds("timeout", timeout),
        )
        options = {
            "batch_size": batch_size,
            "rank": rank,
            "world_size": world_size,
            "seed": seed,
            "shuffle": shuffle,
            "last_batch_policy": last_batch_policy,
            "mix": mix,
            "streams": streams,
            "memory_budget": memory_budget,
            "timeout": timeout,
            "max_in_flight": max_in_flight,
            "cache": engine.cache,
            "cache_bytes": cache_bytes,
        }
        self._set_up(shards, schedule, engine, options, is_detected=is_detected)
        self.not_taken: Counter[str] = Counter()

    def _begin(
        self, schedule: AnySchedule, epoch: int, is_followed: bool, offset: int = 0, every: int = 1
    ) -> AnyStream:
        assert isinstance(schedule, ShardSchedule)
        assert isinstance(self._engine, ShardEngine)
        return self._engine.stream(epochs_of(schedule, epoch, is_followed, offset, every))

    def _batch(self, filled: Filled | FilledFromShards, epoch: int) -> Batch:
        assert isinstance(filled, FilledFromShards)
        samples = filled.samples
        self._count_others(samples[: len(samples) - filled.repeats])
        labels = np.empty(0, dtype=np.int32)
        blobs: list[bytes] = []
        if self.label_type == "int":
            labels = np.array([_label(one) for one in samples], dtype=np.int32)
        elif self.label_type in ("blob", "multi"):
            blobs = [_companion(one) for one in samples]
        return Batch(
            images=[image_of(one) for one in samples],
            labels=labels,
            ids=np.frombuffer(b"".join(map(_id, samples)), dtype=np.uint8).reshape(-1, 16),
            positions=np.array([one.number for one in samples], dtype=np.int64),
            epoch=epoch,
            step=filled.number,
            repeats=filled.repeats,
            label_blobs=blobs,
        )

    def _count_others(self, samples: Iterable[ShardSample]) -> None:
        """Count the files of samples that have no place in a batch; the first of a kind is a warning of the log."""
        own = 2 if self.label_type in ("blob", "multi") else 1
        for one in samples:
            if len(one.members) <= own:
                continue
            for name in [name for name in one.members if name not in _LABELS][own:]:
                if not self.not_taken[name]:
                    log.warning(
                        "%s of %s has a file .%s, which batches have no place for. RemoteDataset gives all files; "
                        "not_taken counts them here.",
                        one.key,
                        one.shard,
                        name,
                    )
                self.not_taken[name] += 1


def _checked_budget(budget: int, shards: Shards) -> int:
    least = max((place.bytes for place in places_of(shards)), default=1)
    if budget < least:
        raise OptionError(
            f"Wanted memory_budget of at least {least:,} bytes, for the largest piece of {shards.address}; each of "
            f"torch's workers has an equal share of it and needs as much. Found: {budget:,}"
        )
    return budget


def usual_mix(shards: Shards, streams: int) -> int:
    """How many samples each stream mixes unless that is said: as many as some memory holds, by their mean size."""
    mean = max(1, shards.contents.bytes // max(1, len(shards)))
    return max(_LEAST_MIX, min(_MOST_MIX, _MIXED_BYTES // (streams * mean)))


def image_of(sample: ShardSample) -> bytes:
    """A sample's picture, which is its first file."""
    return next(iter(sample.members.values()))


def _label(sample: ShardSample) -> int:
    from formats.shards.sample_metadata import integer_in

    try:
        return integer_in(sample.members["cls"])
    except (KeyError, ValueError):
        raise ShardError(
            f"Wanted a class number in {sample.key}.cls of {sample.shard}. Found: {sample.members.get('cls')!r}"
        ) from None


def _companion(sample: ShardSample) -> bytes:
    for name, data in list(sample.members.items())[1:]:
        if name not in _LABELS:
            return data
    raise ShardError(f"Wanted a mask or an array beside {sample.key} of {sample.shard}. Found: none")


def _id(sample: ShardSample) -> bytes:
    from formats.shards.sample_metadata import id_in

    told = sample.members.get("json", b"")
    try:
        return id_in(told)
    except (ValueError, KeyError, TypeError):
        raise ShardError(f"Wanted an id in {sample.key}.json of {sample.shard}. Found: {told[:60]!r}") from None
