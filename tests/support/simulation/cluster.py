"""A simulated cluster, in place of a Cassandra client: what is stored, and the weather in which it answers. `objects`
has an object store in the same weather.
"""

import asyncio
import math
from dataclasses import dataclass, field, fields
from typing import Any

from formats.checksums import COLUMN as CHECKSUM
from loader.errors import UnreachableError
from tests.support.simulation.clock import Clock

_REFUSALS = 4  # of one image, so that a read succeeds within its timeout
_LOSSES = 2  # of one image
_SILENT_SECONDS = 10.0  # after which clients give a node up


def brief(value: Any) -> str:
    """A dataclass as code, without fields that are as usual."""
    found = {one.name: getattr(value, one.name) for one in fields(value) if getattr(value, one.name) != one.default}
    return f"{type(value).__name__}({', '.join(f'{name}={one!r}' for name, one in found.items())})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Weather:
    """How the cluster answers. The fields of several kinds of weather may be set together."""

    latency: float = 0.002  # seconds
    jitter: float = 0.0  # up to so many seconds more
    stragglers: float = 0.0  # the share of answers that take up to 100 times as long
    bandwidth: float = 0.0  # bytes a second of the one link; 0: no limit
    tick: float = 0.0  # answers come only at multiples of so many seconds, so that several come at once
    lost: int = 0  # the most answers that never come, until the client gives the node up
    refused: float = 0.0  # the share of reads that fail
    stale: float = 0.0  # the share of images of which one replica has other bytes, or none
    outage: tuple[float, float] = (0.0, 0.0)  # from when on, and for how many seconds, nothing answers
    late_start: bool = False  # whether the first connection fails
    # Of object stores:
    cut: float = 0.0  # the share of answers that end early
    altered: float = 0.0  # the share of bodies with a wrong byte

    __repr__ = brief


@dataclass(slots=True)
class Store:
    """What the cluster holds. Ids are 16 bytes."""

    images: dict[bytes, bytes | None]  # None: deleted. Missing ones have no entry
    labels: dict[bytes, int]
    kept: dict[tuple[bytes, int], bytes] = field(default_factory=dict)  # replaced bytes by id and checksum
    has_kept: bool = False


class Refusal(Exception):
    """A read that fails."""


class SimulatedClient:
    """As `AcsyllaClient`: rows by id, with the faults of the weather."""

    error = Refusal
    bytes_a_second = 1e9
    connections = 1

    def __init__(self, clock: Clock, store: Store, weather: Weather, *, ledger: "Ledger", level: str) -> None:
        self._clock, self._store, self._weather, self._ledger = clock, store, weather, ledger
        self._is_weak = level == "LOCAL_ONE"
        self._link_is_free = 0.0
        self._refusals: dict[bytes, int] = {}
        self._losses: dict[bytes, int] = {}
        self._lost = 0

    async def open(self, connections: int) -> None:
        """Connect. Raises `UnreachableError` in the first attempt of a late start."""
        await asyncio.sleep(self._weather.latency)
        self._ledger.connections += 1
        if self._weather.late_start and self._ledger.connections == 1:
            raise UnreachableError("Wanted a simulated cluster. Found: it has not started")

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.sleep(self._weather.latency)

    async def prepare(self, select: str) -> str:
        """The statement itself."""
        return select

    async def columns(self, table: Any) -> dict[str, tuple[str, str]]:
        """The columns of the data table, or of replaced bytes."""
        found = {"id": ("uuid", "partition_key"), "data": ("blob", "regular"), "label": ("int", "regular")}
        if str(table).endswith("_history"):
            return {**found, CHECKSUM: ("bigint", "clustering")} if self._store.has_kept else {}
        return found

    async def explained(self, error: Exception, wanted: str, level: str) -> UnreachableError:
        """The error for a read that failed."""
        return UnreachableError(f"Wanted {wanted} at {level}. Found: {error}")

    async def row(self, select: str, one: bytes, *more: Any, at_quorum: bool = False) -> tuple[Any, ...] | None:
        """The row of an image."""
        ledger = self._ledger
        if "_history" in select:
            data = self._store.kept.get((one, more[0]))
        elif f'"{CHECKSUM}"' in select:
            return None  # what the metadata says only explains an error
        else:
            data = self._store.images.get(one, b"")
            if self._is_weak and not at_quorum and self._is_stale(one):
                data = b"old" if one[1] % 2 else b""
        size = len(data or b"")
        ledger.sent(size)
        try:
            await self._wait(one, size)
        finally:
            ledger.ended(size)
        ledger.answered += size
        if data == b"" or (data is None and "_history" in select):
            return None
        return (data, self._store.labels[one]) if '"label"' in select else (data,)

    async def _wait(self, one: bytes, size: int) -> None:
        """Let the time of an answer pass. Raises `Refusal`."""
        weather, clock = self._weather, self._clock
        numbers = clock.random
        seconds = weather.latency + weather.jitter * numbers.random()
        if numbers.random() < weather.stragglers:
            seconds *= numbers.uniform(1, 100)
        if self._lost < weather.lost and numbers.random() < 0.1 and self._losses.get(one, 0) < _LOSSES:
            self._losses[one] = self._losses.get(one, 0) + 1
            self._lost += 1
            await asyncio.sleep(_SILENT_SECONDS)
            raise Refusal("a node is silent")
        if weather.tick:
            seconds = math.ceil((clock.now + seconds) / weather.tick) * weather.tick - clock.now
        await asyncio.sleep(seconds)
        begin, duration = weather.outage
        if begin <= clock.now < begin + duration:
            raise Refusal("the cluster is away")
        if numbers.random() < weather.refused and self._refusals.get(one, 0) < _REFUSALS:
            self._refusals[one] = self._refusals.get(one, 0) + 1
            raise Refusal("it is overloaded")
        if weather.bandwidth:
            self._link_is_free = max(clock.now, self._link_is_free) + size / weather.bandwidth
            await asyncio.sleep(self._link_is_free - clock.now)

    def _is_stale(self, one: bytes) -> bool:
        return one[0] < 256 * self._weather.stale


@dataclass(slots=True)
class Ledger:
    """What was asked of the cluster and answered, over all connections of a source."""

    connections: int = 0
    reads: int = 0
    answered: int = 0  # bytes
    in_flight: int = 0  # bytes of answers to come
    most: int = 0  # of what is in flight and held
    held: Any = None  # a function: the bytes that the loader holds
    buffered: int = 0  # the most bytes of its buffers that were written to and not freed

    def sent(self, size: int) -> None:
        """A read is sent."""
        self.reads += 1
        self.in_flight += size
        self.most = max(self.most, self.in_flight + (self.held() if self.held else 0))

    def ended(self, size: int) -> None:
        """A read is answered, has failed, or was cancelled."""
        self.in_flight -= size
