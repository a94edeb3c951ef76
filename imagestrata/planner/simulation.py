"""An epoch on virtual time: the loader's own window, budget and batches, over a modelled network and cluster.

::

    read --half a round trip--> cluster --> connection --> network --half a round trip--> client --> batch
                                rate        bytes a        bytes a                        CPU        |
                                            round trip     second                                    v
                                                           GPU <--two decoded batches-- decoding threads

A node works on 128 reads at a time, and any of them may be answered next, so batches wait for their last images. TCP's
slow start, lost packets and late answers are not modelled, and all images have the same size. Ranks are alike, so one
is simulated, with its part of the cluster and the network.
"""

import asyncio
import math
import queue
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loader.cassandra.probe import BYTES_A_SECOND, connections_for
from loader.errors import UnreachableError
from loader.order.schedule import Step
from loader.prefetch.batcher import InOrder
from loader.prefetch.fetcher import Row
from loader.prefetch.retry_policy import RetryPolicy
from loader.prefetch.stats import Meter
from loader.prefetch.stream import FetchContext, FetchStream
from loader.prefetch.window import Window
from schemas.errors import ImagestrataError

CLIENT_SECONDS = 0.15e-3  # measured, with acsylla and images of 110 kB
_RESOLUTION = 1e-9  # seconds; a timer that is due within this time is due now
TIMEOUT = 60.0  # seconds that the loader gives an image by default
_TOGETHER = 128  # reads that a node of Cassandra works on at a time, native_transport_max_threads
_PIECES = 4  # of what a connection carries in a round trip
_DECODED = 2  # batches that DALI keeps for the GPU
_WARM_SECONDS, _WARM_ROUND_TRIPS = 5.0, 20  # before the steady part: reads in flight have grown, and memory is full
_LEAST_WINDOWS = 12  # images, in most reads in flight
_MOST_PIECES, _LEAST_BATCHES = 60_000, 6  # to simulate, so that a plan takes seconds
_MOST_SIMULATED, _MOST_STEP = 1_000_000, 600.0  # pieces in the fewest batches, and seconds of a step: half a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What reads, and from where. Times are in seconds; infinity: no limit."""

    round_trip: float
    image_bytes: int
    batch_size: int = 256  # of a rank
    gpus: int = 1  # each has a rank
    step: float = 0.0  # of a GPU, for a batch
    decode: float = 0.0  # of a core, for an image
    threads: int = 4  # that decode, of a rank
    bandwidth: float = float("inf")  # of the network that all ranks share, in bytes a second
    cluster: float = float("inf")  # images a second that the cluster can send to all ranks
    client: float = CLIENT_SECONDS  # of the core that a rank reads with, for an image
    memory_budget: int = 256_000_000
    connections: int | None = None  # of a rank to each node; None: as the loader chooses
    nodes: int = 1
    connection_bytes: float = 2e6  # of a connection, on their way: usual buffers
    max_in_flight: int = 4096

    @property
    def opened(self) -> int:
        """The connections of a rank."""
        chosen = connections_for(self.round_trip, bytes_a_second=BYTES_A_SECOND)
        return self.nodes * (chosen if self.connections is None else self.connections)

    @property
    def pieces(self) -> int:
        """In how many pieces an image leaves, so that a connection is never empty for lack of room for all of it."""
        return math.ceil(self.image_bytes / self.connection_bytes * _PIECES)

    @property
    def demand(self) -> float:
        """The images a second that all GPUs take if they never wait."""
        return self.gpus * self.batch_size / self.step if self.step else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a plan leads to. Times are in seconds."""

    rate: float  # images a second of all ranks, in the steady part
    waiting: float  # the share of the steady part in which a GPU waits, from 0 to 1
    first_batch: float  # when the first batch is there, after connecting
    in_flight: int  # the most reads of a rank
    memory: int  # the most bytes of a rank that were read and not yet decoded, or in flight


def simulate(plan: Plan, *, progress: Callable[[int, int], None] = lambda done, total: None) -> Outcome:
    """Simulate the first epoch of a training, long enough for a steady rate. Raises `ImagestrataError` if the loader
    would give up, and for a plan that would take minutes to simulate.
    """
    most = _MOST_SIMULATED // (_LEAST_BATCHES * plan.pieces)
    if plan.batch_size > most or plan.step > _MOST_STEP:
        raise ImagestrataError(
            f"Wanted a batch of at most {most:,} images of {plan.image_bytes / 1000:,.0f} kB, and a step of at most "
            f"{_MOST_STEP:.0f} s, so that a plan takes seconds. Found: {plan.batch_size:,} images and {plan.step:g} s. "
            "Plan smaller images or batches, with a step that is as much shorter."
        )
    loop = VirtualLoop()
    rank = _Rank(plan, loop)
    try:
        return rank.train(progress)
    except UnreachableError:
        found = f"at {loop.now:.0f} s, one takes longer, so the loader raises UnreachableError"
        raise ImagestrataError(
            f"Wanted each image within {TIMEOUT:.0f} s. Found: {found}. The network or the cluster is too slow for "
            "images of this size."
        ) from None
    finally:
        rank.close()
        loop.close()


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without files and sockets. If it has nothing to do, time moves to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1.0  # seconds; the loader takes 0 for "not yet"
        self._clock_resolution = _RESOLUTION
        self._selector = self  # asyncio's loop asks it for events, and so lets time pass

    def time(self) -> float:
        """The virtual time."""
        return self.now

    def select(self, timeout: float | None) -> list[Any]:
        """Let time pass up to the next timer."""
        self.now += timeout or 0.0
        return []

    def run_to(self, time: float) -> None:
        """Let time pass up to this time."""
        self.run_until_complete(asyncio.sleep(max(0.0, time - self.now)))

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class _Thread:
    """As `LoopThread`: the loop runs while the consumer waits."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop

    def queue(self) -> "_Queue":
        return _Queue(self.loop)


class _Queue:
    """As `queue.SimpleQueue`, for a consumer outside the loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop, self._items, self._filled = loop, deque[Any](), asyncio.Event()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._filled.set()

    def get_nowait(self) -> Any:
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def get(self, timeout: float) -> Any:
        self._filled.clear()
        self._loop.run_until_complete(self._filled.wait())
        return self.get_nowait()


class _Connection:
    """A connection that has so many bytes on their way at most."""

    def __init__(self, loop: VirtualLoop, most: float) -> None:
        self._loop, self._left = loop, most
        self._known: deque[tuple[float, float]] = deque()  # when what was sent is known to have arrived, and its bytes
        self.turn = asyncio.Lock()  # one image after another

    async def room(self, size: float) -> None:
        """Wait until so many bytes may leave."""
        while True:
            while self._known and self._known[0][0] <= self._loop.now + _RESOLUTION:
                self._left += self._known.popleft()[1]
            if size <= self._left or not self._known:
                return
            await asyncio.sleep(self._known[0][0] - self._loop.now)

    def sent(self, size: float, arrives: float) -> None:
        """Record what has left, and when it is known to have arrived."""
        self._left -= size
        self._known.append((arrives, size))


class _Cluster:
    """Nodes that answer so many reads a second, one of those that they work on at a time."""

    def __init__(self, loop: VirtualLoop, *, seconds: float, together: int) -> None:
        self._loop, self._seconds, self._together = loop, seconds, together
        self._random = random.Random(0)
        self._waiting: list[asyncio.Future[None]] = []

    async def answer(self) -> None:
        """Wait for the answer to a read."""
        if not self._seconds:
            return
        self._waiting.append(done := self._loop.create_future())
        if len(self._waiting) == 1:
            self._loop.call_later(self._seconds, self._end_one)
        await done

    def _end_one(self) -> None:
        done = self._waiting.pop(self._random.randrange(min(len(self._waiting), self._together)))
        if not done.done():  # else nobody waits for it any more
            done.set_result(None)
        if self._waiting:
            self._loop.call_later(self._seconds, self._end_one)


class _Network:
    """A fetcher whose answers take the time that a plan says."""

    most_in_flight = None

    def __init__(self, plan: Plan, loop: VirtualLoop) -> None:
        self._plan, self._loop = plan, loop
        self._image = bytes(plan.image_bytes)
        self._is_free = {"network": 0.0, "client": 0.0}  # from when on
        together = max(1, _TOGETHER * plan.nodes // plan.gpus)
        self._cluster = _Cluster(loop, seconds=plan.gpus / plan.cluster, together=together)
        self._links = [_Connection(loop, plan.connection_bytes) for _ in range(plan.opened)]
        self._turn = count()

    async def read(self, one: bytes, position: int, /) -> Row:
        """The image, when its answer has arrived."""
        half = self._plan.round_trip / 2
        await asyncio.sleep(half)
        await self._cluster.answer()
        sent = await self._send(self._links[next(self._turn) % len(self._links)])
        arrived = self._pass("client", sent + half, self._plan.client)
        await asyncio.sleep(arrived - self._loop.now)
        return self._image, 0, ()

    async def _send(self, link: _Connection) -> float:
        """Send the image in pieces of its share of the connection; returns when its last byte has left."""
        plan, pieces = self._plan, self._plan.pieces
        size, sent = plan.image_bytes / pieces, self._loop.now
        async with link.turn:
            for _ in range(pieces):
                await link.room(size)
                sent = self._pass("network", self._loop.now, plan.gpus * size / plan.bandwidth)
                link.sent(size, sent + plan.round_trip)
        return sent

    def _pass(self, what: str, now: float, seconds: float) -> float:
        """When an image, or a piece of it, has passed what takes one after another."""
        self._is_free[what] = done = max(self._is_free[what], now) + seconds
        return done

    def wanted(self, one: bytes, position: int, /) -> str:
        """An image, as messages name it."""
        return f"image {position}"


class _Rank:
    """A rank that reads, decodes and trains."""

    def __init__(self, plan: Plan, loop: VirtualLoop) -> None:
        self._plan, self._loop = plan, loop
        self._meter = Meter(loop.time)
        window = Window(most=plan.max_in_flight, now=0.0)
        policy = RetryPolicy(timeout=TIMEOUT, uniform=lambda low, high: (low + high) / 2)
        network = cast(Any, _Network(plan, loop))
        context = FetchContext(network, window, policy, self._meter, plan.memory_budget, "raise")
        batches = InOrder(self._steps(), _no_ids, batch_size=plan.batch_size, is_padded=False)
        self._stream = FetchStream(iter([batches]), cast(Any, _Thread(loop)), context)
        self._reading = loop.create_task(self._stream.run())
        self._began = loop.now
        self._got = [0.0]  # when each batch began on the GPU, in seconds of the training
        self._waited = [0.0]  # how long the GPU has waited up to then

    def _steps(self) -> Iterator[Step]:
        size = self._plan.batch_size
        for number in count():
            yield Step.plain(number, np.arange(number * size, (number + 1) * size, dtype=np.int64))

    def train(self, progress: Callable[[int, int], None]) -> Outcome:
        """Take batches until the rate is steady."""
        plan, loop, meter = self._plan, self._loop, self._meter
        warm = max(_WARM_SECONDS, _WARM_ROUND_TRIPS * plan.round_trip)
        most = max(_MOST_PIECES // (plan.batch_size * plan.pieces), _LEAST_BATCHES)
        decoding = plan.decode * plan.batch_size / plan.threads
        decoded = first = memory = flying = 0.0
        for number in range(most):
            ended = self._got[-1] + plan.step if number else 0.0  # of the GPU's batch before
            # The decoder goes on when one of its batches has been taken.
            loop.run_to(self._began + max(decoded, self._got[max(0, number + 1 - _DECODED)]))
            memory = max(memory, meter.held_bytes + meter.in_flight * plan.image_bytes)
            flying = max(flying, meter.in_flight)
            self._stream.take()
            decoded = loop.now - self._began + decoding
            begun = max(decoded, ended)
            first = first or begun
            self._got.append(begun)
            self._waited.append(self._waited[-1] + max(0.0, begun - ended))
            # Reads in flight can end all at once, so that a part of few is not steady.
            if begun >= 3 * warm and number * plan.batch_size >= _LEAST_WINDOWS * flying:
                break
            progress(number, most)
        begins = next(at for at, got in enumerate(self._got) if 3 * got >= self._got[-1])
        seconds = self._got[-1] - self._got[begins]
        return Outcome(
            rate=plan.gpus * plan.batch_size * (len(self._got) - 1 - begins) / seconds,
            waiting=(self._waited[-1] - self._waited[begins]) / seconds,
            first_batch=first,
            in_flight=int(flying),
            memory=int(memory),
        )

    def close(self) -> None:
        """End all reads."""
        self._stream.close()
        self._loop.run_until_complete(self._reading)


def _no_ids(positions: NDArray[np.int64]) -> NDArray[np.uint8]:
    return np.zeros((len(positions), 16), dtype=np.uint8)
