"""The public sources, each put together from a plan, an engine, and a function that makes batches of what is read."""

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from formats import FormatsError
from loader.batch import Batch
from loader.cassandra.clients import readers_of
from loader.cassandra.cluster import Cluster, ClusterOptions, cluster_of
from loader.errors import OptionError, SplitError
from loader.folder.files import FileFetcher
from loader.folder.folders import Folder
from loader.mixed.failover import Store, failover_of
from loader.mixed.fetchers import fetchers_of
from loader.mixed.mixture import Mixture, checksums_of, weights_of
from loader.options import check_bools, check_choice, check_int, check_names, check_share
from loader.order.buckets import buckets_of
from loader.order.permutation import LastBatchPolicy
from loader.order.sampling import ClassWeights, check_places, sampling_of
from loader.order.schedule import Schedule
from loader.order.strata import Classes, Sampling, SamplingName
from loader.prefetch.engine import Engine
from loader.prefetch.fetch_thread import fetch_engine
from loader.prefetch.fetcher import Fetcher
from loader.prefetch.runtime import SYSTEM, Runtime
from loader.prefetch.split_batches import batch_of, batcher_of
from loader.prefetch.split_features import open_features
from loader.prefetch.stats import Meter
from loader.prefetch.stream import OnMissing
from loader.shards.piece_cache import PieceCache
from loader.shards.pieces import PieceReader, locations_of
from loader.shards.shard_batches import ShardBatches
from loader.shards.shard_schedule import ShardSchedule
from loader.shards.shard_set import TIMEOUT_SECONDS, Shards
from loader.shards.shard_stream import ShardStream
from loader.source import Options, Parts, Source
from loader.splits import Split

_MIXED_BYTES = 200_000_000  # of all streams of a rank together
_LEAST_MIX, _MOST_MIX = 8, 1024  # samples of each stream


class CassandraSource(Source):
    """Batches of a split on one rank, read ahead from Cassandra.

    `Source` explains order, ranks, policies and failures; `Cluster` explains clients and consistency.

    Args:
        split: What `open_split` or `open_rows` returned.
        cluster: The Cassandra to read from, by default the one that ``imagestrata up`` started.
        batch_size: Samples of a batch on this rank.
        rank: The number of this rank, from 0. Give both ``rank`` and ``world_size``, or neither.
        world_size: The number of ranks.
        seed: The seed of the order.
        shuffle: Whether each epoch has a new order; otherwise all have the order of the split.
        sampling: "shuffled"; "stratified" for the same share of each class in all global batches; or "balanced" for
            as many places of each class in an epoch, and in each global batch, as of any other.
        class_weights: The places of classes, by class number or name, in proportion; a class that is not named has
            weight 1, and 0 leaves a class out. With ``sampling="balanced"``, which is then the default.
        buckets: A number for each image, whole numbers ``(n,)`` by position, such as those of `aspect_buckets`. Each
            global batch then has images of one bucket. Images that do not fill a batch of their bucket come in later
            epochs. Not with ``sampling`` and ``class_weights``.
        last_batch_policy: How an epoch ends: "PARTIAL", "FILL" or "DROP".
        in_order: Whether batches keep the order, or take samples as they arrive.
        metadata: Columns of the metadata table, read with the images: one more read for each image.
        features: Features that the split was made with (``split.py --features``), from the files of the split; or all
            of a feature service, as ``service:NAME``.
        on_missing: "raise", or "skip" to leave out images that are missing.
        max_missing: With "skip", the share of an epoch that may be missing, from 0 to 1. Deleted images do not count.
        memory_budget: Bytes that may be read ahead and in flight.
        timeout: Seconds after which the read of an image fails.
        max_in_flight: An upper limit for the number of reads in flight, which follows from measurements.
        **where: The arguments of `Cluster`, such as ``hosts``, instead of ``cluster``.

    Raises:
        OptionError: An option is out of its range. Reading raises `UnreachableError`, `AccessError`, `TableError`,
            `MissingImageError` and, after `close`, `ClosedError`.
    """

    def __init__(
        self,
        split: Split,
        *,
        cluster: Cluster | None = None,
        batch_size: int,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        sampling: SamplingName = "shuffled",
        class_weights: ClassWeights | None = None,
        buckets: NDArray[np.integer[Any]] | None = None,
        last_batch_policy: LastBatchPolicy = "PARTIAL",
        in_order: bool = True,
        metadata: Sequence[str] = (),
        features: Sequence[str] = (),
        on_missing: OnMissing = "raise",
        max_missing: float = 0.01,
        memory_budget: int = 256_000_000,
        timeout: float = 60.0,
        max_in_flight: int = 4096,
        **where: Unpack[ClusterOptions],
    ) -> None:
        if not isinstance(split, Split) or isinstance(split, (Folder, Mixture)):
            raise OptionError(f"Wanted a split from loader.open_split. Found: {split!r}")
        options = Options.checked(
            batch_size=batch_size, rank=rank, world_size=world_size, seed=seed, shuffle=shuffle,
            last_batch_policy=last_batch_policy, memory_budget=memory_budget, timeout=timeout,
            max_in_flight=max_in_flight,
        )  # fmt: skip
        cluster = cluster_of(cluster, where)
        self.hosts, self.port = cluster.hosts, cluster.port
        columns, names = open_features(split, features), check_names("metadata", metadata)
        class_weights, buckets = copy(class_weights), copy(buckets)  # the caller may change them later
        parts = parts_by_id(
            split, readers_of(split, cluster, metadata=names), options, in_order=in_order, on_missing=on_missing,
            max_missing=max_missing, metadata=names, features=columns,
            checksums=split.checksums_fingerprint if cluster.on_changed == "raise" else None,
            strata=strata_of(split, options, sampling, class_weights, buckets),
        )  # fmt: skip
        remake = partial(
            _in_cluster, type(self), split, cluster, in_order=in_order, metadata=names, features=tuple(columns),
            on_missing=on_missing, max_missing=max_missing, sampling=sampling, class_weights=class_weights,
            buckets=buckets,
        )  # fmt: skip
        place = f"hosts={list(self.hosts)}, port={self.port}, "
        super().__init__(split, parts, options, has_detected_ranks=rank is None, remake=remake, where=place)


def _in_cluster(
    kind: type[CassandraSource], split: Split, usual: Cluster, *, cluster: Cluster | None = None, **options: Any
) -> CassandraSource:
    """A source of this cluster, of the usual one with changes, or of the usual one, as `Source.again` asks."""
    changes = {name: options.pop(name) for name in ClusterOptions.__annotations__ if name in options}
    if cluster is None:
        return kind(split, cluster=Cluster(**vars(usual) | changes) if changes else usual, **options)
    return kind(split, cluster=cluster, **changes, **options)


class FolderSource(Source):
    """Batches of a tree of class folders on one rank, read ahead from a local or mounted disk.

    `Source` explains order, ranks, policies and failures. A training sees the same batches as with `CassandraSource`
    and a split of the same images; see `open_folder`.

    Args:
        folder: What `open_folder` returned.
        batch_size: Samples of a batch on this rank.
        rank: The number of this rank, from 0. Give both ``rank`` and ``world_size``, or neither.
        world_size: The number of ranks.
        seed: The seed of the order.
        shuffle: Whether each epoch has a new order; otherwise all have the order of the folder.
        sampling: "shuffled"; "stratified" for the same share of each class in all global batches; or "balanced" for
            as many places of each class in an epoch, and in each global batch, as of any other.
        class_weights: The places of classes, by class number or name, in proportion; a class that is not named has
            weight 1, and 0 leaves a class out. With ``sampling="balanced"``, which is then the default.
        buckets: A number for each image, whole numbers ``(n,)`` by position, such as those of `aspect_buckets`. Each
            global batch then has images of one bucket. Images that do not fill a batch of their bucket come in later
            epochs. Not with ``sampling`` and ``class_weights``.
        last_batch_policy: How an epoch ends: "PARTIAL", "FILL" or "DROP".
        in_order: Whether batches keep the order, or take samples as they arrive.
        on_missing: "raise", or "skip" to leave out images that are missing.
        max_missing: With "skip", the share of an epoch that may be missing, from 0 to 1.
        memory_budget: Bytes that may be read ahead and in flight.
        timeout: Seconds after which the read of an image fails.
        max_in_flight: An upper limit for the number of reads in flight, which follows from measurements.

    Raises:
        OptionError: An option is out of its range. Reading raises `MissingImageError` for a missing or empty file,
            `AccessError` for one without permission, `UnreachableError` for a failing disk, and `ClosedError` after
            `close`.
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
        sampling: SamplingName = "shuffled",
        class_weights: ClassWeights | None = None,
        buckets: NDArray[np.integer[Any]] | None = None,
        last_batch_policy: LastBatchPolicy = "PARTIAL",
        in_order: bool = True,
        on_missing: OnMissing = "raise",
        max_missing: float = 0.01,
        memory_budget: int = 256_000_000,
        timeout: float = 60.0,
        max_in_flight: int = 4096,
    ) -> None:
        if not isinstance(folder, Folder):
            raise OptionError(f"Wanted a folder from loader.open_folder. Found: {folder!r}")
        class_weights, buckets = copy(class_weights), copy(buckets)  # the caller may change them later
        options = Options.checked(
            batch_size=batch_size, rank=rank, world_size=world_size, seed=seed, shuffle=shuffle,
            last_batch_policy=last_batch_policy, memory_budget=memory_budget, timeout=timeout,
            max_in_flight=max_in_flight,
        )  # fmt: skip
        parts = parts_by_id(
            folder, partial(FileFetcher, folder), options, in_order=in_order, on_missing=on_missing,
            max_missing=max_missing, strata=strata_of(folder, options, sampling, class_weights, buckets),
        )  # fmt: skip
        remake = partial(
            type(self), folder, in_order=in_order, on_missing=on_missing, max_missing=max_missing, sampling=sampling,
            class_weights=class_weights, buckets=buckets,
        )  # fmt: skip
        super().__init__(folder, parts, options, has_detected_ranks=rank is None, remake=remake)


class FailoverSource(Source):
    """Batches of a split on one rank whose images are in several stores: each read goes to the first that answers.

    `Source` explains order, ranks, policies and failures. The batches, states and pixels are those of
    `CassandraSource` with the same split, whichever store is read, also if that changes within an epoch. Every image
    is compared with its checksum in the split. A store that does not answer is tried again after 30 seconds. What
    folders and shards lack, or have with other bytes, is read from the next store; the log says so once. A table
    decides: what was deleted from it, has expired or was replaced is not looked for in copies, unless the table does
    not answer, or comes after them.

    Shards are read image by image, in the order of the split, with a request for each. `ShardSource` has another
    order and needs far fewer requests.

    Args:
        split: What `open_split` returned, with a checksum of each image.
        stores: Where the images are, the preferred store first: a `Cluster` with the tables of the split, class
            folders (`open_folder` with the ``dataset`` and ``or_split`` of the ingest, one for each ``or_split``), or
            shards of the split (``shard.py --split``). One is enough.
        batch_size: Samples of a batch on this rank.
        rank: The number of this rank, from 0. Give both ``rank`` and ``world_size``, or neither.
        world_size: The number of ranks.
        seed: The seed of the order.
        shuffle: Whether each epoch has a new order; otherwise all have the order of the split.
        sampling: "shuffled"; "stratified" for the same share of each class in all global batches; or "balanced" for
            as many places of each class in an epoch, and in each global batch, as of any other.
        class_weights: The places of classes, by class number or name, in proportion; a class that is not named has
            weight 1, and 0 leaves a class out. With ``sampling="balanced"``, which is then the default.
        buckets: A number for each image, whole numbers ``(n,)`` by position; see `CassandraSource`.
        last_batch_policy: How an epoch ends: "PARTIAL", "FILL" or "DROP".
        in_order: Whether batches keep the order, or take samples as they arrive.
        on_missing: "raise", or "skip" to leave out images that are missing.
        max_missing: With "skip", the share of an epoch that may be missing, from 0 to 1. Deleted images do not count.
        memory_budget: Bytes that may be read ahead and in flight.
        timeout: Seconds after which the read of an image fails.
        max_in_flight: An upper limit for the number of reads in flight, which follows from measurements.

    Raises:
        OptionError: An option is out of its range.
        SplitError: The split has images without checksums, or a store does not have its images. Reading raises what
            `CassandraSource`, `FolderSource` and `ShardSource` raise, and `UnreachableError` if no store answers.
    """

    def __init__(
        self,
        split: Split,
        *,
        stores: Sequence[Store],
        batch_size: int,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        sampling: SamplingName = "shuffled",
        class_weights: ClassWeights | None = None,
        buckets: NDArray[np.integer[Any]] | None = None,
        last_batch_policy: LastBatchPolicy = "PARTIAL",
        in_order: bool = True,
        on_missing: OnMissing = "raise",
        max_missing: float = 0.01,
        memory_budget: int = 256_000_000,
        timeout: float = 60.0,
        max_in_flight: int = 4096,
    ) -> None:
        options = Options.checked(
            batch_size=batch_size, rank=rank, world_size=world_size, seed=seed, shuffle=shuffle,
            last_batch_policy=last_batch_policy, memory_budget=memory_budget, timeout=timeout,
            max_in_flight=max_in_flight,
        )  # fmt: skip
        make_fetcher = failover_of(split, stores, timeout=options.timeout)
        # The caller may change them later.
        stores, class_weights, buckets = copy(stores), copy(class_weights), copy(buckets)
        parts = parts_by_id(
            split, make_fetcher, options, in_order=in_order, on_missing=on_missing, max_missing=max_missing,
            checksums=split.checksums_fingerprint,
            strata=strata_of(split, options, sampling, class_weights, buckets),
        )  # fmt: skip
        remake = partial(
            type(self), split, stores=stores, in_order=in_order, on_missing=on_missing, max_missing=max_missing,
            sampling=sampling, class_weights=class_weights, buckets=buckets,
        )  # fmt: skip
        super().__init__(split, parts, options, has_detected_ranks=rank is None, remake=remake)


class ShardSource(Source):
    """Batches of shards on one rank, read ahead in large pieces from an object store or a disk.

    `Source` explains ranks, policies and states. The order is different: each epoch puts all pieces of all shards
    (about 5 MB each) into a new order, which depends only on the fingerprint, ``seed`` and the epoch, and gives each
    rank a contiguous part of it, so that ranks read different parts of the shards. A rank divides its part into
    ``streams``, reads them in parallel, and takes batches from them in turn. Within each stream, ``mix`` samples of
    several pieces are shuffled again. Workers whose number divides ``streams`` (1, 2, 3, 4, 6 or 12 for 12) read
    different pieces; the order is the same for any number of workers. A state continues exactly with the next batch.
    With another ``batch_size``, ``world_size``, ``streams`` or ``mix``, the rest of the epoch is distributed again,
    each sample once.

    A budget that does not hold all mixed samples does not change the order. Pieces are then read again, which is slow:
    it is logged once, and counted in ``stats().rereads``. Every piece is compared with its XXH3; `Shards.verify`
    compares whole shards with their SHA-256.

    A batch has the first file of each sample, which is its image, the class number or the mask or array, and the id.
    Other files are counted in ``not_taken``, by extension, in the process that reads; `RemoteDataset` delivers all
    files.

    Args:
        shards: What `open_shards` returned.
        batch_size: Samples of a batch on this rank.
        rank: The number of this rank, from 0. Give both ``rank`` and ``world_size``, or neither.
        world_size: The number of ranks.
        seed: The seed of the order.
        shuffle: Whether each epoch has a new order; otherwise all have the order of the shards.
        last_batch_policy: How an epoch ends: "PARTIAL", "FILL" or "DROP".
        mix: Samples that each stream shuffles, by default as many as 200 MB hold for all streams, from 8 to 1,024.
        streams: Parts that a rank reads in parallel.
        memory_budget: Bytes that may be read ahead and in flight. Each of k workers has 1/k of it, which must hold
            the largest piece.
        timeout: Seconds after which a failing request is not repeated any more.
        max_in_flight: Requests at the same time, each on its own connection.
        cache: A folder on a local disk in which pieces are kept.
        cache_bytes: The most bytes that the cache may hold.

    Raises:
        OptionError: An option is out of its range. Reading raises `ShardError` for a shard that is missing, truncated
            or does not match its manifest, `AccessError` and `UnreachableError`.
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
            raise OptionError(f"Wanted shards from loader.open_shards. Found: {shards!r}")
        options = Options.checked(
            batch_size=batch_size, rank=rank, world_size=world_size, seed=seed, shuffle=shuffle,
            last_batch_policy=last_batch_policy, memory_budget=memory_budget, timeout=timeout,
            max_in_flight=max_in_flight,
        )  # fmt: skip
        cache = None if cache is None else Path(cache).absolute()  # workers may be in another folder
        parts = parts_of_shards(
            shards, options, self._batches_of(shards), mix=mix, streams=streams, cache=cache, cache_bytes=cache_bytes
        )
        remake = partial(type(self), shards, mix=mix, streams=streams, cache=cache, cache_bytes=cache_bytes)
        super().__init__(shards, parts, options, has_detected_ranks=rank is None, remake=remake)

    def _batches_of(self, shards: Shards) -> Callable[..., Batch]:
        """A function that makes batches of what was read."""
        batches = ShardBatches(shards.label_type)
        self.not_taken = batches.not_taken
        return batches


class MixedSource(Source):
    """Batches of several splits on one rank: each split has its share of every epoch and of every global batch.

    `Source` explains order, ranks, policies and failures. An epoch has as many places as all splits have images, and
    each split has its share of them, rounded up or down. Each global batch has the part that a split has of the epoch,
    rounded up or down. If a split has more places than images, these come again, as evenly as possible; if it has
    fewer, the next epochs have the others. Any ranks continue from a state; with another global batch, they continue
    the order of the first one. One stream reads all splits, with one budget. `Mixture.part_numbers` says which split an
    image is of.

    Args:
        mixture: What `mix_splits` returned.
        shares: The places of each split in proportion, by its name. None: as many places as it has images.
        cluster: The Cassandra that all tables are in, by default the one that ``imagestrata up`` started.
        batch_size: Samples of a batch on this rank.
        rank: The number of this rank, from 0. Give both ``rank`` and ``world_size``, or neither.
        world_size: The number of ranks.
        seed: The seed of the order.
        shuffle: False, without ``shares``: one split after another, each in its own order.
        last_batch_policy: How an epoch ends: "PARTIAL", "FILL" or "DROP".
        in_order: Whether batches keep the order, or take samples as they arrive.
        on_missing: "raise", or "skip" to leave out images that are missing.
        max_missing: With "skip", the share of an epoch that may be missing, from 0 to 1. Deleted images do not count.
        memory_budget: Bytes that may be read ahead and in flight.
        timeout: Seconds after which the read of an image fails.
        max_in_flight: An upper limit for the number of reads in flight, which follows from measurements.
        **where: The arguments of `Cluster`, such as ``hosts``, instead of ``cluster``.

    Raises:
        OptionError: An option is out of its range, or the shares are not those of the splits. Reading raises what
            `CassandraSource` and `FolderSource` raise.
    """

    def __init__(
        self,
        mixture: Mixture,
        *,
        shares: Mapping[str, float] | None = None,
        cluster: Cluster | None = None,
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
        **where: Unpack[ClusterOptions],
    ) -> None:
        if not isinstance(mixture, Mixture):
            raise OptionError(f"Wanted a mixture from loader.mix_splits. Found: {mixture!r}")
        options = Options.checked(
            batch_size=batch_size, rank=rank, world_size=world_size, seed=seed, shuffle=shuffle,
            last_batch_policy=last_batch_policy, memory_budget=memory_budget, timeout=timeout,
            max_in_flight=max_in_flight,
        )  # fmt: skip
        if shares is not None and not shuffle:
            raise OptionError("Wanted shuffle=True with shares. Found: shuffle=False, one split after another")
        make_fetcher, read = fetchers_of(mixture, cluster, where)
        shares = copy(shares)  # the caller may change them later
        weights = None if shares is None else weights_of(mixture, shares)
        strata = (Sampling("mixed", options.global_batch, weights), mixture.by_part()) if shuffle else None
        if strata is not None:
            check_places(*strata, names=dict(enumerate(mixture.names)), what="shares")
        is_compared = read is not None and read.on_changed == "raise"
        parts = parts_by_id(
            mixture, make_fetcher, options, in_order=in_order, on_missing=on_missing, max_missing=max_missing,
            checksums=checksums_of(mixture) if is_compared else None,
            strata=strata,
        )  # fmt: skip
        remake = partial(
            type(self), mixture, shares=shares, in_order=in_order, on_missing=on_missing, max_missing=max_missing,
            cluster=read,
        )  # fmt: skip
        super().__init__(mixture, parts, options, has_detected_ranks=rank is None, remake=remake)


def parts_by_id(
    split: Split,
    make_fetcher: Callable[[], Fetcher],
    options: Options,
    *,
    in_order: bool,
    on_missing: OnMissing,
    max_missing: float,
    metadata: tuple[str, ...] = (),
    features: Mapping[str, NDArray[Any]] | None = None,
    checksums: str | None = None,
    strata: tuple[Sampling, Classes] | None = None,
    runtime: Runtime = SYSTEM,
) -> Parts:
    """The parts of a `Source` that reads images of a split by id, and compares them with the checksums of this
    fingerprint, if any; ``strata`` are those of an order that looks at classes. Raises `OptionError`.
    """
    check_bools(in_order=in_order)
    check_choice("on_missing", on_missing, get_args(OnMissing))
    if strata is not None and strata[0].name == "bucketed" and not in_order:
        raise OptionError("Wanted in_order=True with buckets. Found: False: batches of what arrives first")
    plan = Schedule(
        fingerprint=split.fingerprint,
        checksums=checksums,
        rows=len(split) if strata is None else strata[0].rows(strata[1]),
        seed=options.seed,
        shuffle=options.shuffle,
        batch_size=options.batch_size,
        rank=options.rank,
        world_size=options.world_size,
        last_batch_policy=options.last_batch_policy,
        sampling=None if strata is None else strata[0],
        classes=None if strata is None else strata[1],
    )
    is_padded = options.last_batch_policy != "PARTIAL"
    engine = fetch_engine(
        make_fetcher,
        batcher_of(split, batch_size=options.batch_size, is_padded=is_padded, in_order=in_order),
        budget=options.memory_budget,
        max_in_flight=options.max_in_flight,
        timeout=options.timeout,
        on_missing=on_missing,
        runtime=runtime,
    )
    return Parts(
        plan=plan,
        engine=engine,
        batch_of=partial(batch_of, split=split, metadata=metadata, features=features),
        metadata=metadata,
        features=features or {},
        in_order=in_order,
        max_missing=check_share("max_missing", max_missing),
        may_leave_out=on_missing == "skip",
    )


def strata_of(
    split: Split,
    options: Options,
    sampling: SamplingName,
    class_weights: ClassWeights | None,
    buckets: NDArray[np.integer[Any]] | None = None,
) -> tuple[Sampling, Classes] | None:
    """What an order that looks at classes or buckets needs; None for one that does not. Raises `OptionError` and
    `SplitError`.
    """
    if buckets is not None:
        if sampling != "shuffled" or class_weights is not None or not options.shuffle:
            raise OptionError(
                "Wanted buckets without sampling and class_weights, and with shuffle=True. "
                f"Found: sampling={sampling!r}, class_weights={class_weights!r}, shuffle={options.shuffle}"
            )
        return buckets_of(buckets, rows=len(split), batch=options.global_batch)
    chosen = sampling_of(
        split, sampling=sampling, class_weights=class_weights, shuffle=options.shuffle, batch=options.global_batch
    )
    if chosen is None:
        return None
    classes = classes_of_split(split)
    check_places(chosen, classes, names=split.class_names, what="class_weights")
    return chosen, classes


def classes_of_split(split: Split) -> Classes:
    """The positions of a split by class, or of a mixture by part. Raises `SplitError` if the files of the split have
    changed, or the cache cannot be written.
    """
    if isinstance(split, Mixture):
        return split.by_part()
    assert split.labels is not None
    try:
        return Classes(split.labels, *split.opened.by_class(split.index, cache=split.cache))
    except FormatsError as error:
        raise SplitError(str(error)) from error


def parts_of_shards(
    shards: Shards,
    options: Options,
    batch_of: Callable[..., Batch],
    *,
    mix: int | None,
    streams: int,
    cache: Path | None,
    cache_bytes: int,
    runtime: Runtime = SYSTEM,
) -> Parts:
    """The parts of a `Source` that reads shards. Raises `OptionError`."""
    locations = locations_of(shards)
    plan = ShardSchedule(
        fingerprint=shards.fingerprint,
        pieces=np.array([one.samples for one in locations], dtype=np.int64),
        streams=check_int("streams", streams, 1, 4096),
        mix=usual_mix(shards, streams) if mix is None else check_int("mix", mix, 1),
        seed=options.seed,
        shuffle=options.shuffle,
        batch_size=options.batch_size,
        rank=options.rank,
        world_size=options.world_size,
        last_batch_policy=options.last_batch_policy,
    )
    budget, threads, timeout = options.memory_budget, options.max_in_flight, options.timeout
    if budget < (least := max((one.bytes for one in locations), default=1)):
        raise OptionError(
            f"Wanted memory_budget of at least {least:,} bytes, for the largest piece of {shards.address}. Found: "
            f"{budget:,}. The workers of a DataLoader share memory_budget, and each needs as much."
        )
    check_int("cache_bytes", cache_bytes, 0)

    def begin(meter: Meter) -> PieceReader:
        kept = None if cache is None else PieceCache(cache, size=cache_bytes)
        return PieceReader(shards, threads=threads, meter=meter, cache=kept, timeout=timeout, runtime=runtime)

    engine = Engine(begin, partial(ShardStream, budget=budget), window=threads, clock=runtime.clock)
    return Parts(plan=plan, engine=engine, batch_of=batch_of)


def usual_mix(shards: Shards, streams: int) -> int:
    """The samples that each stream mixes by default: as many as fit into a fixed memory, by their mean size."""
    mean = max(1, shards.contents.bytes // max(1, len(shards)))
    return max(_LEAST_MIX, min(_MOST_MIX, _MIXED_BYTES // (streams * mean)))
