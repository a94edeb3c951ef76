"""What a real cluster sends to the ranks of this machine: round trip, images a second, and their size."""

import asyncio
import signal
import time
from dataclasses import dataclass
from multiprocessing import get_context

import loader
from loader.cassandra.cluster import Cluster
from loader.cassandra.probe import round_trip
from loader.splits import Split
from schemas.errors import ImagestrataError

_PROBES = 5  # round trips; the first ones may be longer
_BATCH = 64  # small, so that a steady part has many
_BUDGET = 512_000_000  # so that it is not memory that limits the rate


@dataclass(frozen=True, slots=True)
class Measured:
    """What ranks read at the same time in the steady part."""

    round_trip: float  # seconds
    rate: float  # images a second, of all ranks
    image_bytes: int  # the mean
    client: float  # CPU seconds of a rank for an image


@dataclass(frozen=True, slots=True)
class _Read:
    """What one rank has read."""

    images: int
    bytes: int
    seconds: float
    cpu: float


def measure(split: Split, cluster: Cluster, *, ranks: int, seconds: float) -> Measured:
    """Read the split's images with this many processes for so many seconds. Raises what a source raises."""
    trip = asyncio.run(round_trip(cluster.hosts, cluster.port, cluster.access.tls(), times=_PROBES))
    if trip is None:
        raise loader.UnreachableError(f"Wanted Cassandra at {cluster.place}. Found: no answer. Is it running?")
    if len(split) < ranks:
        raise ImagestrataError(
            f"Wanted an image for each of {ranks} GPUs. Found: {len(split)} in {split!r}. Use --gpus."
        )
    given = [(split, cluster, rank, ranks, seconds) for rank in range(ranks)]
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for this process, which ends the others
    try:
        pool = get_context("spawn").Pool(ranks)
    finally:
        signal.signal(signal.SIGINT, usual)
    with pool:
        found = pool.starmap_async(_read, given, chunksize=1).get()
    images, rate = sum(one.images for one in found), sum(one.images / one.seconds for one in found)
    return Measured(
        round_trip=trip,
        rate=rate,
        image_bytes=max(1, round(sum(one.bytes for one in found) / images)),
        # A rank has several threads, of which one gives out what was read.
        client=min(sum(one.cpu for one in found) / images, ranks / rate),
    )


def _read(split: Split, cluster: Cluster, rank: int, ranks: int, seconds: float) -> _Read:
    """Read epochs, as one of the ranks. The first third of the time, in which reads in flight grow, does not count."""
    batch_size = min(_BATCH, len(split) // ranks)
    with loader.CassandraSource(
        split, cluster=cluster, batch_size=batch_size, rank=rank, world_size=ranks, memory_budget=_BUDGET,
        on_missing="skip", max_missing=1.0,
    ) as source:  # fmt: skip
        source.connect()
        begun = time.monotonic()
        images = size = epoch = 0
        at = cpu = 0.0
        while True:
            for batch in source.epoch(epoch):
                now = time.monotonic() - begun
                if now < seconds / 3:
                    at, cpu = now, time.process_time()
                    continue
                images, size = images + len(batch), size + sum(map(len, batch.images))
                if now >= seconds and images > len(batch):
                    return _Read(images, size, now - at, time.process_time() - cpu)
            epoch += 1
            if epoch > 1 and not source.stats().images:
                raise ImagestrataError(f"Wanted images to read. Found: none of rank {rank} of {ranks} in {split!r}")
