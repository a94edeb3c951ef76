"""The public sources, each put together from a plan, an engine and what makes batches of what the engine reads."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from loader.batch import Batch
from loader.cassandra.access import Access
from loader.cassandra.clients import ClientName
from loader.cassandra.cluster import Cluster
from loader.cassandra.target import Consistency
from loader.errors import OptionError
from loader.folder.files import FileFetcher
from loader.folder.folders import Folder
from loader.options import check_bools, check_choice, check_int, check_share
from loader.order.permutation import LastBatchPolicy
from loader.order.schedule import Schedule
from loader.prefetch.engine import FetchEngine
from loader.prefetch.fetcher import Fetcher
from loader.prefetch.split_batches import batch_of, batcher_of
from loader.prefetch.stream import OnMissing
from loader.shards.pieces import locations_of
from loader.shards.shard_batches import ShardBatches
from loader.shards.shard_schedule import ShardSchedule
from loader.shards.shard_set import TIMEOUT_SECONDS, Shards
from loader.shards.shard_stream import ShardEngine
from loader.source import Options, Source
from loader.splits import Split

_MIXED_BYTES = 200_000_000
_LEAST_MIX, _MOST_MIX = 8, 1024


class CassandraSource(Source):
    """Batches of a split on one rank, read from Cassandra ahead of their use.

    Order, ranks, policies, faults and the options that all sources have are as in `Source`.

    Connections, too, follow the round trip and the rate that are measured; ``connections`` (to each node) is for those
    who insist. ``metadata`` names columns of the split's metadata table, which are read beside the images: a second
    read for each. Labels that the split does not know are read with the images.

    ``hosts`` are contact points, one name or address as a string or several in a list. Without hosts, this
    is the Cassandra that `imagestrata up` started in this checkout. ``datacenter`` is the one to read from, by default
    the one of the first contact point that answers. ``username`` and ``password`` log in;
    ``access`` says all that `Access` can, with a bundle also where to go, without hosts. Without ``access``, what is
    not given comes from the environment: `Access.from_environment`.

    ``consistency`` says how many replicas answer a read, in CQL's words. LOCAL_QUORUM finds what an ingest, also one
    with ``--overwrite``, or a repair wrote last; LOCAL_ONE saves the servers work, but a replica that missed a write
    gives old bytes. With one copy of each row both are the same. Where the writer is in another datacenter, say QUORUM.

    ``client`` is the library that reads. By default it is ``"acsylla"`` without TLS and ``"cassandra-driver"`` over
    TLS; if one is not installed, the other. acsylla reads more than twice as many images a second, but its wheel
    bundles OpenSSL 1.1.1k, which your system's security updates do not reach; the driver uses the OpenSSL of Python.

    Raises `OptionError` for an option out of its range. Reading raises `UnreachableError`, `AccessError`,
    `TableError`, `MissingImageError` and, after `close`, `ClosedError`.
    """

    def __init__(
        self,
        split: Split,
        *,
        hosts: str | Sequence[str] | None = None,
        port: int | None = None,
        batch_size: int,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        last_batch_policy: LastBatchPolicy = "PARTIAL",
        in_order: bool = True,
        metadata: Sequence[str] = (),
        on_missing: OnMissing = "raise",
        max_missing: float = 0.01,
        memory_budget: int = 256_000_000,
        timeout: float = 60.0,
        max_in_flight: int = 4096,
        connections: int | None = None,
        client: ClientName | None = None,
        username: str | None = None,
        password: str | None = None,
        access: Access | None = None,
        datacenter: str | None = None,
        consistency: Consistency = "LOCAL_QUORUM",
    ) -> None:
        if not isinstance(split, Split) or isinstance(split, Folder):
            raise OptionError(f"Wanted a split, as loader.open_split gives it. Found: {split!r}")
        options = Options.checked(
            batch_size=batch_size, rank=rank, world_size=world_size, seed=seed, shuffle=shuffle,
            last_batch_policy=last_batch_policy, memory_budget=memory_budget, timeout=timeout,
            max_in_flight=max_in_flight,
        )  # fmt: skip
        cluster = Cluster.checked(
            hosts=hosts, port=port, metadata=metadata, connections=connections, client=client, username=username,
            password=password, access=access, datacenter=datacenter, consistency=consistency,
        )  # fmt: skip
        self.hosts, self.port = cluster.hosts, cluster.port
        by_id: dict[str, Any] = {"in_order": in_order, "on_missing": on_missing, "max_missing": max_missing}
        super().__init__(
            split,
            **parts_by_id(split, cluster.fetchers(split), options, **by_id, metadata=cluster.metadata),
            has_detected_ranks=rank is None,
            remake=partial(type(self), split, **vars(cluster), **vars(options), **by_id),
            where=f"hosts={list(self.hosts)}, port={self.port}, ",
        )


class FolderSource(Source):
    """Batches of a tree of class folders on one rank, read from a local disk, or a mounted one, ahead of their use.

    Order, ranks, policies, faults and options are as in `Source`: a training that reads its files with this one sees
    the batches that it sees with `CassandraSource` and a split of the same images; see `open_folder`.

    Raises `OptionError` for an option out of its range. Reading raises `MissingImageError` for a file that is not there
    or is empty, `AccessError` for one that may not be read, `UnreachableError` for a disk that fails.
    """

    def __init__(
        self,
        folder: Folder,
        *,
        batch_size: int,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        last_batch_policy: LastBatchPolicy = "PARTIAL",
        in_order: bool = True,
        on_missing: OnMissing = "raise",
        max_missing: float = 0.01,
        memory_budget: int = 256_000_000,
        timeout: float = 60.0,
        max_in_flight: int = 4096,
    ) -> None:
        if not isinstance(folder, Folder):
            raise OptionError(f"Wanted a folder, as loader.open_folder gives it. Found: {folder!r}")
        options = Options.checked(
            batch_size=batch_size, rank=rank, world_size=world_size, seed=seed, shuffle=shuffle,
            last_batch_policy=last_batch_policy, memory_budget=memory_budget, timeout=timeout,
            max_in_flight=max_in_flight,
        )  # fmt: skip
        by_id: dict[str, Any] = {"in_order": in_order, "on_missing": on_missing, "max_missing": max_missing}
        super().__init__(
            folder,
            **parts_by_id(folder, partial(FileFetcher, folder), options, **by_id),
            has_detected_ranks=rank is None,
            remake=partial(type(self), folder, **vars(options), **by_id),
        )


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
        options = Options.checked(
            batch_size=batch_size, rank=rank, world_size=world_size, seed=seed, shuffle=shuffle,
            last_batch_policy=last_batch_policy, memory_budget=memory_budget, timeout=timeout,
            max_in_flight=max_in_flight,
        )  # fmt: skip
        batches = ShardBatches(shards.label_type)
        self.not_taken = batches.not_taken
        of_shards: dict[str, Any] = {"mix": mix, "streams": streams, "cache_bytes": cache_bytes}
        of_shards["cache"] = None if cache is None else Path(cache).absolute()  # workers may be in another folder
        super().__init__(
            shards,
            **parts_of_shards(shards, options, batches, **of_shards),
            has_detected_ranks=rank is None,
            remake=partial(type(self), shards, **vars(options), **of_shards),
        )


def parts_by_id(
    split: Split,
    make_fetcher: Callable[[], Fetcher],
    options: Options,
    *,
    in_order: bool,
    on_missing: OnMissing,
    max_missing: float,
    metadata: tuple[str, ...] = (),
) -> dict[str, Any]:
    """What a `Source` is made of that reads the images of a split by id. Raises `OptionError`."""
    check_bools(in_order=in_order)
    check_choice("on_missing", on_missing, get_args(OnMissing))
    plan = Schedule(fingerprint=split.fingerprint, rows=len(split), **options.of_the_order())
    is_padded = options.last_batch_policy != "PARTIAL"
    engine = FetchEngine(
        make_fetcher,
        batcher_of(split, batch_size=options.batch_size, is_padded=is_padded, in_order=in_order),
        budget=options.memory_budget,
        max_in_flight=options.max_in_flight,
        timeout=options.timeout,
        on_missing=on_missing,
        with_metadata=bool(metadata),
    )
    return {
        "plan": plan,
        "engine": engine,
        "batch_of": partial(batch_of, split=split, metadata=metadata),
        "options": options,
        "metadata": metadata,
        "in_order": in_order,
        "max_missing": check_share("max_missing", max_missing),
    }


def parts_of_shards(
    shards: Shards,
    options: Options,
    batch_of: Callable[..., Batch],
    *,
    mix: int | None,
    streams: int,
    cache: Path | None,
    cache_bytes: int,
) -> dict[str, Any]:
    """What a `Source` is made of that reads shards. Raises `OptionError`."""
    plan = ShardSchedule(
        fingerprint=shards.fingerprint,
        pieces=np.array([one.samples for one in locations_of(shards)], dtype=np.int64),
        streams=check_int("streams", streams, 1, 4096),
        mix=usual_mix(shards, streams) if mix is None else check_int("mix", mix, 1),
        **options.of_the_order(),
    )
    engine = ShardEngine(
        shards,
        budget=_checked_budget(options.memory_budget, shards),
        threads=options.max_in_flight,
        cache=cache,
        cache_bytes=check_int("cache_bytes", cache_bytes, 0),
        timeout=options.timeout,
    )
    return {"plan": plan, "engine": engine, "batch_of": batch_of, "options": options}


def _checked_budget(budget: int, shards: Shards) -> int:
    least = max((one.bytes for one in locations_of(shards)), default=1)
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
