"""The prefetch engine over a fetcher that is made of events: depth, order, errors and endings, without a database."""

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from loader import ClosedError, MissingImageError, UnreachableError
from loader._fetch import Fetched
from loader._prefetch import Engine


@dataclass(frozen=True)
class Request:
    number: int

    @property
    def ids(self) -> NDArray[np.uint8]:
        return np.full((2, 16), self.number, dtype=np.uint8)


class FakeFetcher:
    """Answers a batch when its gate is open; all are open unless `gated`."""

    def __init__(self, *, gated: bool = False, fails: int | None = None, refuses: bool = False) -> None:
        self.gated, self.fails, self.refuses = gated, fails, refuses
        self.gates: dict[int, asyncio.Event] = {}
        self.launched: list[int] = []
        self.given_up: list[int] = []
        self.changed = threading.Condition()
        self.is_closed = False
        self.loop: asyncio.AbstractEventLoop | None = None

    async def connect(self) -> None:
        self.loop = asyncio.get_running_loop()
        if self.refuses:
            raise UnreachableError("Wanted Cassandra. Found: nothing")

    async def get(self, ids: NDArray[np.uint8], /) -> Fetched:
        number = int(ids[0, 0])
        with self.changed:
            self.launched.append(number)
            self.changed.notify_all()
        try:
            if self.gated:
                await self.gates.setdefault(number, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.given_up.append(number)
            raise
        if number == self.fails:
            raise MissingImageError(f"Wanted {number}. Found: no such row")
        return [bytes([number])] * len(ids), np.full(len(ids), number, dtype=np.int32)

    async def close(self) -> None:
        self.is_closed = True

    def open(self, number: int) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(lambda: self.gates.setdefault(number, asyncio.Event()).set())

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        with self.changed:
            return self.changed.wait_for(condition, timeout=5)


@pytest.fixture
def make() -> Iterator[Callable[..., tuple[Engine, FakeFetcher]]]:
    engines: list[Engine] = []

    def build(**options: object) -> tuple[Engine, FakeFetcher]:
        fetcher = FakeFetcher(**options)  # type: ignore[arg-type]
        engines.append(Engine(lambda: fetcher))
        return engines[-1], fetcher

    yield build
    for engine in engines:
        engine.close()


def requests(count: int) -> Iterator[Request]:
    return map(Request, range(count))


Make = Callable[..., tuple[Engine, FakeFetcher]]


@pytest.mark.parametrize("depth", [1, 3, 100])
def test_batches_come_in_order_with_their_requests(make: Make, depth: int) -> None:
    engine, _ = make()
    found = [
        (request.number, images, labels.tolist())
        for request, (images, labels) in engine.stream(requests(20), depth=depth)
    ]
    assert found == [(number, [bytes([number])] * 2, [number] * 2) for number in range(20)]


def test_no_requests_are_an_empty_pass(make: Make) -> None:
    engine, _ = make()
    assert list(engine.stream(requests(0), depth=2)) == []


def test_order_holds_when_answers_come_out_of_order(make: Make) -> None:
    engine, fetcher = make(gated=True)
    stream = engine.stream(requests(4), depth=4)
    assert fetcher.wait_for(lambda: len(fetcher.launched) == 4)
    for number in (3, 1, 2, 0):
        fetcher.open(number)
    assert [request.number for request, _ in stream] == [0, 1, 2, 3]


def test_as_many_batches_are_in_flight_as_the_depth_and_no_more(make: Make) -> None:
    engine, fetcher = make(gated=True)
    stream = engine.stream(requests(10), depth=4)
    assert fetcher.wait_for(lambda: len(fetcher.launched) == 4)
    fetcher.open(0)
    assert next(stream)[0].number == 0  # which gives its slot to batch 4
    assert fetcher.wait_for(lambda: fetcher.launched == [0, 1, 2, 3, 4])
    fetcher.open(2)  # has arrived, and still takes a slot: it has not been delivered
    assert fetcher.loop is not None
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), fetcher.loop).result(5)
    assert fetcher.launched == [0, 1, 2, 3, 4]


def test_an_error_arrives_in_its_place_and_ends_the_pass(make: Make) -> None:
    engine, _ = make(fails=3)
    stream = engine.stream(requests(10), depth=8)
    found = []
    with pytest.raises(MissingImageError, match="Wanted 3"):
        found.extend(request.number for request, _ in iter(lambda: next(stream), None))
    assert list(stream) == []
    assert len(list(engine.stream(requests(3), depth=2))) == 3  # the engine lives on


def test_an_error_of_the_requests_arrives_too(make: Make) -> None:
    engine, _ = make()

    def broken() -> Iterator[Request]:
        yield Request(0)
        raise ZeroDivisionError("in the order")

    stream = engine.stream(broken(), depth=2)
    assert next(stream)[0].number == 0
    with pytest.raises(ZeroDivisionError, match="in the order"):
        next(stream)


def test_a_stream_that_is_left_gives_up_its_reads(make: Make) -> None:
    engine, fetcher = make(gated=True)
    stream = engine.stream(requests(10), depth=3)
    assert fetcher.wait_for(lambda: len(fetcher.launched) == 3)
    stream.close()
    engine.close()
    assert sorted(fetcher.given_up) == [0, 1, 2]
    assert fetcher.is_closed


def test_closing_wakes_a_consumer_that_waits(make: Make) -> None:
    engine, fetcher = make(gated=True)
    stream = engine.stream(requests(10), depth=3)
    assert fetcher.wait_for(lambda: len(fetcher.launched) == 3)
    closer = threading.Timer(0.05, engine.close)
    closer.start()
    with pytest.raises(ClosedError, match="the source was closed"):
        next(stream)
    closer.join()
    engine.close()
    with pytest.raises(ClosedError):
        engine.stream(requests(1), depth=1)


def test_a_failed_connection_is_told_and_tried_again(make: Make) -> None:
    engine, fetcher = make(refuses=True)
    for _ in range(2):
        with pytest.raises(UnreachableError, match="Found: nothing"):
            engine.stream(requests(1), depth=1)
    fetcher.refuses = False
    assert len(list(engine.stream(requests(1), depth=1))) == 1


def test_passes_run_side_by_side(make: Make) -> None:
    engine, _ = make()
    pairs = zip(engine.stream(requests(5), depth=2), engine.stream(requests(5), depth=3), strict=True)
    assert [(one.number, other.number) for (one, _), (other, _) in pairs] == [(n, n) for n in range(5)]


def test_no_thread_is_left_behind(make: Make) -> None:
    def threads() -> int:
        return sum(thread.name == "loader-prefetch" for thread in threading.enumerate())

    before = threads()
    engine, _ = make()
    stream = engine.stream(requests(10), depth=2)
    next(stream)
    assert threads() == before + 1
    engine.close()
    del stream
    gc.collect()
    assert threads() == before
