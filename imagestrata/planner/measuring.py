"""What a real cluster sends to the ranks of this machine: round trip, images a second, and their size."""

import asyncio
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import loader
from loader.cassandra.cluster import Cluster
from loader.cassandra.probe import round_trip
from loader.splits import Split
from schemas.errors import ImagestrataError

_PROBES = 5  # the median of so many round trips
_BATCH = 64  # small, so that a steady part has many


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
    trip = asyncio.run(_round_trip(cluster))
    with ProcessPoolExecutor(ranks, mp_context=get_context("spawn")) as pool:
        given = [(split, cluster, rank, ranks, seconds) for rank in range(ranks)]
        found = list(pool.map(_read, *zip(*given, strict=True)))
    images = sum(one.images for one in found)
    return Measured(
        round_trip=trip,
        rate=sum(one.images / one.seconds for one in found),
        image_bytes=max(1, round(sum(one.bytes for one in found) / images)),
        client=sum(one.cpu for one in found) / images,
    )


async def _round_trip(cluster: Cluster) -> float:
    """The median of a few round trips, each of a new connection. Raises `UnreachableError`."""
    tls = cluster.access.tls()
    found = [await round_trip(cluster.hosts, cluster.port, tls) for _ in range(_PROBES)]
    if known := [one for one in found if one is not None]:
        return statistics.median(known)
    raise loader.UnreachableError(f"Wanted Cassandra at {cluster.place}. Found: no answer. Is it running?")


def _read(split: Split, cluster: Cluster, rank: int, ranks: int, seconds: float) -> _Read:
    """Read epochs, as one of the ranks. The first third of the time, in which reads in flight grow, does not count."""
    with loader.CassandraSource(split, cluster=cluster, batch_size=_BATCH, rank=rank, world_size=ranks) as source:
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
