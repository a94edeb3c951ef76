"""The engine with a fetcher controlled by events: budget, order, faults and shutdown, without a database."""

import asyncio
import gc
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from loader import ClosedError, MissingImageError, TableError, UnreachableError
from loader.order.schedule import Step
from loader.prefetch import stream as module
from loader.prefetch.batcher import Batcher, Filled, InOrder, OutOfOrder
from loader.prefetch.engine import Engine, Stream
from loader.prefetch.fetch_thread import fetch_engine
from loader.prefetch.fetcher import Row
from loader.prefetch.retry_policy import RetryPolicy
from loader.prefetch.stats import Meter
from loader.prefetch.stream import FetchContext, FetchStream
from loader.prefetch.window import Window
from tests.support.waiting import until

SIZE = 100
SECONDS = 20


class FakeFetcher:
    """Answers a sample when its gate is open; all are open unless `gated`. Samples are their positions."""

    def __init__(self, *, gated: bool = False, refuses: bool = False, **failing: dict[int, list[Exception]]) -> None:
        self.gated, self.refuses = gated, refuses
        self.errors = failing.get("errors", {})
        self.gates: dict[int, list[asyncio.Event]] = {}
        self.asked: list[int] = []
        self.given_up: list[int] = []
        self.changed = threading.Condition()
        self.is_closed = False
        self.connections = 1
        self.most_in_flight: int | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    async def connect(self) -> None:
        self.loop = asyncio.get_running_loop()
        if self.refuses:
            raise UnreachableError("Wanted Cassandra. Found: nothing")

    async def read(self, one: bytes, position: int, /) -> Row:
        number = int.from_bytes(one, "big")
        gate = asyncio.Event()
        with self.changed:
            self.asked.append(number)
            self.gates.setdefault(number, []).append(gate)
            self.changed.notify_all()
        try:
            if self.gated:
                await gate.wait()
            else:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.given_up.append(number)
            raise
        if self.errors.get(number):
            raise self.errors[number].pop(0)
        return bytes([number % 256]) * SIZE, number, ()

    def wanted(self, one: bytes, position: int, /) -> str:
        return f"image {int.from_bytes(one, 'big')}"

    async def close(self) -> None:
        self.is_closed = True

    def open(self, *numbers: int, turn: int = 0) -> None:
        """Answer the first reads of these samples, or the second (``turn=1``)."""
        assert self.loop is not None
        for number in numbers:
            self.loop.call_soon_threadsafe(self.gates[number][turn].set)

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        with self.changed:
            return self.changed.wait_for(condition, timeout=10)

    def settle(self) -> None:
        """Wait until the loop has processed its tasks."""
        assert self.loop is not None
        for _ in range(5):
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop).result(5)


Make = Callable[..., tuple[Engine, FakeFetcher]]


@pytest.fixture
def make() -> Iterator[Make]:
    engines: list[Engine] = []

    def build(
        budget: int = 10**9, max_in_flight: int = 1000, timeout: float = 10.0, on_missing: str = "raise", **fake: object
    ) -> tuple[Engine, FakeFetcher]:
        fetcher = FakeFetcher(**fake)  # type: ignore[arg-type]
        engine = fetch_engine(
            lambda: fetcher,
            lambda batcher: batcher,
            budget=budget,
            max_in_flight=max_in_flight,
            timeout=timeout,
            on_missing=on_missing,  # type: ignore[arg-type]
        )
        engines.append(engine)
        return engine, fetcher

    yield build
    for engine in engines:
        engine.close()


def ids(positions: NDArray[np.int64]) -> NDArray[np.uint8]:
    packed = b"".join(int(position).to_bytes(16, "big") for position in positions)
    return np.frombuffer(packed, dtype=np.uint8).reshape(-1, 16)


def steps(rows: int, batch_size: int, first: int = 0) -> Iterator[Step]:
    for number, start in enumerate(range(first, first + rows, batch_size)):
        yield Step.plain(number, np.arange(start, min(start + batch_size, first + rows)))


def epoch(rows: int, batch_size: int = 2, *, first: int = 0, is_padded: bool = False) -> Batcher:
    return InOrder(steps(rows, batch_size, first), ids, batch_size=batch_size, is_padded=is_padded)


def unordered(rows: int, batch_size: int = 2, *, first: int = 0, reorder: int = 1000) -> Batcher:
    return OutOfOrder(steps(rows, batch_size, first), ids, batch_size=batch_size, is_padded=False, reorder=reorder)


def taken(stream: Stream) -> Iterator[Filled]:
    """The undelivered rest of an epoch."""
    while (filled := stream.take()) is not None:
        yield filled


def positions(filled: Filled) -> list[int]:
    return [sample.position for sample in filled.samples]


@pytest.mark.parametrize("budget", [1, 5 * SIZE, 10**9])
def test_batches_are_in_order_and_contain_their_images(make: Make, budget: int) -> None:
    engine, _ = make(budget=budget)
    found = list(taken(engine.stream(iter([epoch(41, 4)]))))
    assert [positions(filled) for filled in found] == [list(range(n, min(n + 4, 41))) for n in range(0, 41, 4)]
    assert [filled.number for filled in found] == list(range(11))
    for filled in found:
        assert [sample.image[0] for sample in filled.samples] == [sample.position for sample in filled.samples]
        assert [sample.label for sample in filled.samples] == positions(filled)


@pytest.mark.parametrize("kind", [epoch, unordered])
def test_epochs_follow_one_another_and_each_one_ends(make: Make, kind: Callable[..., Batcher]) -> None:
    engine, _ = make()
    stream = engine.stream(iter([kind(5, first=10 * number) for number in range(4)]))
    for number in range(4):
        found = sorted(position for filled in taken(stream) for position in positions(filled))
        assert found == list(range(10 * number, 10 * number + 5))


def test_an_order_without_samples_is_an_empty_epoch(make: Make) -> None:
    engine, _ = make()
    stream = engine.stream(iter([epoch(0), epoch(3)]))
    assert list(taken(stream)) == []
    assert len(list(taken(stream))) == 2


def test_batches_stay_in_order_when_responses_do_not(make: Make) -> None:
    engine, fetcher = make(gated=True)
    stream = engine.stream(iter([epoch(4, 1)]))
    assert fetcher.wait_for(lambda: len(fetcher.asked) == 4)
    for number in (3, 1, 2, 0):
        fetcher.open(number)
        fetcher.settle()
    assert [positions(filled) for filled in taken(stream)] == [[0], [1], [2], [3]]


def test_out_of_order_gives_arrived_samples_within_the_reorder_window(make: Make) -> None:
    engine, fetcher = make(gated=True)
    stream = engine.stream(iter([unordered(8, reorder=4), unordered(2, first=100)]))
    assert fetcher.wait_for(lambda: len(fetcher.asked) == 4)
    fetcher.open(2, 1)
    first = stream.take()
    assert first is not None
    assert (sorted(positions(first)), first.end, first.late) == ([1, 2], 3, (0,))
    fetcher.settle()
    assert sorted(fetcher.asked) == [0, 1, 2, 3]  # sample 4 would overtake sample 0 by four
    fetcher.open(0, 3)
    assert fetcher.wait_for(lambda: len(fetcher.asked) == 10)  # with those of the next epoch
    fetcher.open(100, 101)
    fetcher.settle()
    fetcher.open(7, 5, 6, 4)
    rest = list(taken(stream))
    assert sorted(position for filled in rest for position in positions(filled)) == [0, 3, 4, 5, 6, 7]
    assert (rest[-1].end, rest[-1].late) == (8, ())
    assert [sorted(positions(filled)) for filled in taken(stream)] == [[100, 101]]


def test_reads_ahead_stay_within_the_budget(make: Make) -> None:
    engine, fetcher = make(budget=8 * SIZE)
    stream = engine.stream(iter([epoch(100)]))
    assert stream.take() is not None
    fetcher.settle()
    assert fetcher.wait_for(lambda: len(fetcher.asked) >= 10)
    fetcher.settle()
    assert len(fetcher.asked) <= 2 + 16  # 8 that the budget allows; the first 16 were requested before sizes were known
    for _ in range(4):
        stream.take()
    assert fetcher.wait_for(lambda: len(fetcher.asked) >= 18)
    fetcher.settle()
    assert engine.stats().held_bytes <= 8 * SIZE


def test_no_more_reads_are_in_flight_than_allowed(make: Make) -> None:
    engine, fetcher = make(gated=True, max_in_flight=3)
    engine.stream(iter([epoch(100)]))
    assert fetcher.wait_for(lambda: len(fetcher.asked) == 3)
    fetcher.open(1)
    assert fetcher.wait_for(lambda: len(fetcher.asked) == 4)
    fetcher.settle()
    assert fetcher.asked == [0, 1, 2, 3]
    assert (engine.stats().in_flight, engine.stats().window) == (3, 3)


def test_only_one_epoch_is_read_ahead(make: Make) -> None:
    engine, fetcher = make()
    stream = engine.stream(epoch(4, first=10 * number) for number in range(10))
    assert fetcher.wait_for(lambda: len(fetcher.asked) == 8)
    fetcher.settle()
    assert max(fetcher.asked) == 13
    assert len(list(taken(stream))) == 2
    assert fetcher.wait_for(lambda: len(fetcher.asked) == 12)


@pytest.mark.parametrize("kind", [epoch, unordered])
def test_an_error_arrives_in_its_place_and_ends_the_stream(make: Make, kind: Callable[..., Batcher]) -> None:
    engine, _ = make(errors={7: [MissingImageError("Wanted 7. Found: no such row")]})
    stream = engine.stream(iter([kind(20)]))
    found: list[int] = []
    with pytest.raises(MissingImageError, match="Wanted 7"):
        for filled in taken(stream):
            found += positions(filled)
    assert found == list(range(6))
    assert not stream.is_usable()
    assert len(list(taken(engine.stream(iter([kind(3)]))))) == 2  # the engine is still running


def test_an_error_in_the_order_is_raised_too(make: Make) -> None:
    engine, _ = make()

    def broken() -> Iterator[Step]:
        yield Step.plain(0, np.arange(2))
        yield Step.plain(1, np.arange(2, 4))
        raise ZeroDivisionError("in the order")

    stream = engine.stream(iter([InOrder(broken(), ids, batch_size=2, is_padded=False)]))
    with pytest.raises(ZeroDivisionError, match="in the order"):
        list(taken(stream))


@pytest.mark.parametrize(("kind", "is_padded", "sizes"), [("order", False, [2, 1, 2]), ("order", True, [2, 2, 2])])
def test_missing_images_can_be_skipped(make: Make, kind: str, is_padded: bool, sizes: list[int]) -> None:
    engine, _ = make(on_missing="skip", errors={3: [MissingImageError("Wanted 3. Found: no such row")]})
    found = list(taken(engine.stream(iter([epoch(6, is_padded=is_padded)]))))
    assert [len(filled.samples) for filled in found] == sizes
    assert [positions(filled)[0] for filled in found] == [0, 2, 4]
    assert [[sample.position for sample in filled.skipped] for filled in found] == [[], [3], []]
    assert found[1].repeats == int(is_padded)


def test_memory_of_samples_that_fill_a_batch_is_released_once(make: Make) -> None:
    gone = {number: [MissingImageError(f"Wanted {number}. Found: no such row")] for number in (1, 2, 3)}
    engine, _ = make(on_missing="skip", errors=gone)
    found = list(taken(engine.stream(iter([epoch(4, is_padded=True)]))))
    assert [positions(filled) for filled in found] == [[0, 0], []]
    until(lambda: engine.stats().held_bytes == 0)


def test_other_errors_are_never_skipped(make: Make) -> None:
    engine, _ = make(on_missing="skip", errors={1: [TableError("Wanted a label. Found: null")]})
    with pytest.raises(TableError, match="Wanted a label"):
        engine.stream(iter([epoch(6)])).take()


def test_a_failed_read_is_retried(make: Make) -> None:
    engine, fetcher = make(errors={1: [UnreachableError("Found: a node died")] * 2})
    found = list(taken(engine.stream(iter([epoch(4)]))))
    assert [positions(filled) for filled in found] == [[0, 1], [2, 3]]
    assert fetcher.asked.count(1) == 3
    assert engine.stats().retries == 2


def test_a_read_that_never_succeeds_is_given_up_with_its_reason(make: Make) -> None:
    engine, _ = make(timeout=0.5, errors={1: [UnreachableError("Found: the node is away")] * 100})
    stream = engine.stream(iter([epoch(4)]))
    with pytest.raises(UnreachableError, match=r"Wanted image 1 within 0\.5 s\. Found: the node is away \(\d"):
        stream.take()


def test_the_error_raised_is_that_of_the_abandoned_read(make: Make) -> None:
    errors = {0: [UnreachableError("Found: away for a while")] * 100, 1: [TableError("Found: no such table")]}
    engine, _ = make(errors=errors)
    with pytest.raises(TableError, match="no such table"):
        engine.stream(iter([epoch(2)])).take()


def test_a_read_that_is_never_answered_is_given_up(make: Make) -> None:
    engine, fetcher = make(timeout=0.3, gated=True)
    stream = engine.stream(iter([epoch(4)]))
    assert fetcher.wait_for(lambda: len(fetcher.asked) >= 4)
    fetcher.open(0, 2, 3)
    with pytest.raises(UnreachableError, match=r"Wanted image 1 within 0\.3 s\. Found: no answer"):
        stream.take()


@pytest.mark.parametrize("turn", [0, 1])
def test_a_late_read_is_repeated_and_counts_once(make: Make, turn: int) -> None:
    engine, fetcher = make(gated=True)
    stream = engine.stream(iter([epoch(8)]))
    assert fetcher.wait_for(lambda: len(fetcher.asked) >= 8)
    fetcher.open(*(number for number in range(8) if number != 5))
    assert fetcher.wait_for(lambda: fetcher.asked.count(5) == 2)
    fetcher.open(5, turn=turn)
    found = list(taken(stream))
    assert [positions(filled) for filled in found] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    fetcher.settle()
    assert fetcher.given_up == [5]
    assert engine.stats().second_reads >= 1
    assert engine.stats().in_flight == 0


def test_a_second_read_not_begun_before_the_first_answer_is_not_counted() -> None:
    async def run() -> tuple[int, Filled | None]:
        loop = asyncio.get_running_loop()
        fetcher, meter = FakeFetcher(gated=True), Meter()
        reading = FetchContext(fetcher, Window(most=8, now=loop.time()), RetryPolicy(timeout=60), meter, 10**9, "raise")
        stream = FetchStream(iter([unordered(4, 4)]), SimpleNamespace(loop=loop, queue=queue.SimpleQueue), reading)
        running = loop.create_task(stream.run())
        while len(fetcher.asked) < 4:
            await asyncio.sleep(0)
        late = next(iter(stream._tasks.values()))
        fetcher.gates[0][0].set()  # the task wakes in the loop's next turn,
        stream._begin(late)  # and a check in this turn finds the read late
        for number in (1, 2, 3):
            fetcher.gates[number][0].set()
        for _ in range(10):
            await asyncio.sleep(0)
        held, filled = meter.held_bytes, stream.take()
        stream.close()
        await running
        return held, filled

    held, filled = asyncio.run(run())
    assert held == 4 * SIZE
    assert filled is not None
    assert sorted(positions(filled)) == [0, 1, 2, 3]
    assert filled.late == ()


def test_a_slow_server_gets_few_second_reads(make: Make) -> None:
    engine, fetcher = make(gated=True)
    engine.stream(iter([epoch(200, 200)]))
    for number in range(20):
        assert fetcher.wait_for(lambda: number in fetcher.asked)  # noqa: B023
        fetcher.open(number)
    assert fetcher.wait_for(lambda: engine.stats().second_reads == 16)  # 36 are late, and 20 were answered
    assert fetcher.loop is not None
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.2), fetcher.loop).result(5)  # four more checks
    assert engine.stats().second_reads == 16


def test_an_abandoned_stream_cancels_its_reads(make: Make) -> None:
    engine, fetcher = make(gated=True, max_in_flight=3)
    stream = engine.stream(iter([epoch(10)]))
    assert fetcher.wait_for(lambda: len(fetcher.asked) == 3)
    stream.close()
    engine.close()
    assert sorted(fetcher.given_up) == [0, 1, 2]
    assert fetcher.is_closed
    assert engine.stats().in_flight == 0


def test_a_second_read_in_a_window_of_one_does_not_stall_reading(make: Make) -> None:
    engine, fetcher = make(gated=True, max_in_flight=1)
    stream = engine.stream(iter([epoch(4)]))
    assert fetcher.wait_for(lambda: fetcher.asked == [0, 0])  # late: one task more than the window allows
    fetcher.gated = False
    fetcher.open(0, turn=1)
    assert [positions(filled) for filled in taken(stream)] == [[0, 1], [2, 3]]


def test_simultaneous_answers_do_not_stall_reading(make: Make) -> None:
    engine, fetcher = make(gated=True)
    stream = engine.stream(iter([epoch(2000, 2000)]))

    def narrow_and_answer() -> None:
        stream._reading.window.size = 4  # as if a round ended with the first of them
        stream._reading.window._is_beginning = False
        for gates in fetcher.gates.values():
            for gate in gates:
                gate.set()

    assert fetcher.wait_for(lambda: len(fetcher.asked) >= 16)
    fetcher.gated = False
    assert fetcher.loop is not None
    fetcher.loop.call_soon_threadsafe(narrow_and_answer)
    assert sum(len(filled.samples) for filled in taken(stream)) == 2000


def test_a_wait_in_progress_counts_as_a_stall(make: Make) -> None:
    engine, fetcher = make(gated=True)
    stream = engine.stream(iter([epoch(2)]))
    assert fetcher.wait_for(lambda: len(fetcher.asked) >= 2)
    waiting = threading.Thread(target=stream.take)
    waiting.start()
    until(lambda: engine.stats().stall_share >= 0.2)
    fetcher.open(0, 1)
    waiting.join()


def test_batches_taken_after_close_are_not_counted_twice(make: Make) -> None:
    engine, fetcher = make()
    stream = engine.stream(iter([epoch(8)]))
    fetcher.wait_for(lambda: len(fetcher.asked) == 8)
    fetcher.settle()
    assert engine.stats().held_bytes == 8 * SIZE
    engine.close()
    stream.take()
    assert engine.stats().held_bytes == 0


def test_closing_wakes_a_consumer_that_waits(make: Make) -> None:
    engine, fetcher = make(gated=True)
    stream = engine.stream(iter([epoch(10)]))
    assert fetcher.wait_for(lambda: len(fetcher.asked) >= 3)
    closer = threading.Timer(0.05, engine.close)
    closer.start()
    with pytest.raises(ClosedError, match="closed source"):
        stream.take()
    closer.join()
    engine.close()
    with pytest.raises(ClosedError):
        engine.stream(iter([epoch(1)]))


def test_a_failed_connection_is_reported_and_retried(make: Make) -> None:
    engine, fetcher = make(refuses=True)
    for _ in range(2):
        with pytest.raises(UnreachableError, match="Found: nothing"):
            engine.stream(iter([epoch(1)]))
    fetcher.refuses = False
    assert len(list(taken(engine.stream(iter([epoch(1)]))))) == 1


def test_streams_run_side_by_side(make: Make) -> None:
    engine, _ = make()
    pairs = zip(taken(engine.stream(iter([epoch(10)]))), taken(engine.stream(iter([epoch(10)]))), strict=True)
    assert [(one.number, other.number) for one, other in pairs] == [(n, n) for n in range(5)]


def test_statistics_measure_the_time_spent_waiting(make: Make) -> None:
    engine, fetcher = make(gated=True)
    stream = engine.stream(iter([epoch(2)]))
    assert fetcher.wait_for(lambda: len(fetcher.asked) >= 2)
    opener = threading.Timer(0.2, lambda: fetcher.open(0, 1))
    opener.start()
    assert stream.take() is not None
    opener.join()
    found = engine.stats()
    assert 0.1 <= found.stall_share * found.seconds <= found.seconds
    assert found.p99 >= found.p50 >= (found.round_trip or 0) > 0


def test_no_thread_is_left_behind(make: Make) -> None:
    before = set(threading.enumerate())
    engine, _ = make()
    stream = engine.stream(iter([epoch(10)]))
    stream.take()
    (thread,) = [one for one in set(threading.enumerate()) - before if one.name == "loader-prefetch"]
    engine.close()
    del stream
    gc.collect()
    assert not thread.is_alive()


def test_a_read_that_fails_as_its_second_begins_is_not_counted_twice(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a node was killed: all its answers are late, and all fail at once."""
    monkeypatch.setattr(module, "_LOOK_SECONDS", 1000.0)  # checked explicitly
    monkeypatch.setattr(RetryPolicy, "late", lambda policy, window: -1.0)
    engine, fetcher = make(gated=True, errors={0: [UnreachableError("Wanted 0. Found: nobody")]})
    stream = engine.stream(iter([unordered(3, 1)]))
    assert fetcher.wait_for(lambda: len(fetcher.asked) == 3)
    assert fetcher.loop is not None

    def fail_and_look() -> None:
        fetcher.gates[0][0].set()
        stream._look()

    fetcher.loop.call_soon_threadsafe(fail_and_look)
    assert fetcher.wait_for(lambda: len(fetcher.asked) == 6)
    fetcher.open(0, turn=1)
    assert [sample.position for sample in stream.take().samples] == [0]  # type: ignore[union-attr]
    assert engine.meter.retries == 0  # the second read was sufficient
    until(lambda: engine.meter.in_flight <= 4)  # the failed one found that nothing is left to do
    fetcher.open(1, 2)
    assert sorted(sample.position for filled in taken(stream) for sample in filled.samples) == [1, 2]
    assert sorted(fetcher.asked) == [0, 0, 1, 1, 2, 2]


def test_a_forked_child_waits_for_no_thread_of_its_parent() -> None:
    """Another thread of the parent is making the reader at the moment of the fork."""
    parent, begun, may_end = os.getpid(), threading.Event(), threading.Event()

    def begin(_: Meter) -> Any:
        if os.getpid() == parent:
            begun.set()
            may_end.wait(SECONDS)
        return SimpleNamespace(connect=lambda: None, is_usable=lambda: True)

    engine = Engine(begin, FetchStream)
    thread = threading.Thread(target=engine.connect)
    thread.start()
    begun.wait(SECONDS)
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        engine.connect()
        os._exit(0)
    may_end.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
