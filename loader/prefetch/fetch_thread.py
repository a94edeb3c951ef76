"""The thread that reads ahead, with its event loop and its connections.

::

    connecting ------> connected ---close---> closing ------> over
        |              streams begin          streams get       ^
        |              and end                `ClosedError`     |
        +--- an error, which all that wait for it get ----------+
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from loader.errors import closed
from loader.order.schedule import Step
from loader.prefetch.batcher import Batcher
from loader.prefetch.engine import Engine
from loader.prefetch.fetcher import Fetcher
from loader.prefetch.retry_policy import RetryPolicy
from loader.prefetch.runtime import SYSTEM, LoopThread, Runtime
from loader.prefetch.stats import Meter
from loader.prefetch.stream import FetchContext, FetchStream, OnMissing
from loader.prefetch.window import Window

_log = logging.getLogger(__name__)

# How long closing waits for the driver, which closes a connection only when its reads are answered or timed out. After
# that the thread continues alone; it does not delay the end of the process.
_CLOSE_SECONDS = 2.0


def fetch_engine(
    make_fetcher: Callable[[], Fetcher],
    begin_epoch: Callable[[Iterator[Step]], Batcher],
    *,
    budget: int,
    max_in_flight: int,
    timeout: float = 60.0,
    on_missing: OnMissing = "raise",
    runtime: Runtime = SYSTEM,
) -> Engine:
    """An engine that reads by id; ``begin_epoch`` makes the batches of an epoch of its steps. ``budget`` is in bytes,
    ``timeout`` in seconds, for one image.
    """

    def begin(meter: Meter) -> FetchThread:
        def context_of(fetcher: Fetcher) -> FetchContext:
            most = min(max_in_flight, fetcher.most_in_flight or max_in_flight)
            window = Window(most=most, now=asyncio.get_running_loop().time())
            policy = RetryPolicy(timeout=timeout, uniform=runtime.uniform)
            return FetchContext(fetcher, window, policy, meter, budget, on_missing)

        return FetchThread(make_fetcher, context_of, runtime.thread())

    return Engine(begin, lambda thread, epochs: thread.stream(map(begin_epoch, epochs)), clock=runtime.clock)


class FetchThread:
    """The thread from connecting to closing."""

    def __init__(
        self, make_fetcher: Callable[[], Fetcher], context_of: Callable[[Fetcher], FetchContext], thread: LoopThread
    ) -> None:
        self._make_fetcher, self._context_of = make_fetcher, context_of
        self._context: FetchContext | None = None
        self._lock = threading.Lock()  # guards _is_over: no stream may begin after it
        self._is_over = False
        self._streams: set[asyncio.Task[None]] = set()  # touched on the loop only
        self._connected: Future[FetchContext] = Future()
        self._thread, self._loop = thread, thread.loop
        self._main = self._loop.create_task(self._live())
        thread.start(self._body)

    def is_usable(self) -> bool:
        """Not after a failed connection."""
        return not self._is_over

    def connect(self) -> FetchContext:
        return self._thread.wait(self._connected)

    def figures(self) -> dict[str, Any]:
        if self._context is None or not self.is_usable():
            return {}
        window, connections = self._context.window, self._context.fetcher.connections
        p50, p99 = window.quantiles(0.5, 0.99)
        return {
            "window": window.size, "round_trip": window.round_trip, "p50": p50, "p99": p99, "connections": connections,
        }  # fmt: skip

    def stream(self, epochs: Iterator[Batcher]) -> FetchStream:
        stream = FetchStream(epochs, self._thread, self.connect())
        with self._lock:
            if self._is_over:
                raise closed()
            self._loop.call_soon_threadsafe(self._begin, stream)
        return stream

    def close(self) -> None:
        with self._lock:
            is_ending = self._is_over  # a second cancellation would interrupt the closing of connections
        try:
            if not is_ending:
                self._loop.call_soon_threadsafe(self._main.cancel)
        except RuntimeError:  # the loop is closed already
            return
        if not self._thread.join(_CLOSE_SECONDS):
            _log.info("not all reads were answered; the connections are closed in the background")

    def _body(self) -> None:
        try:
            self._loop.run_until_complete(self._main)
        except (asyncio.CancelledError, Exception) as error:
            self._finish(error)
        # Streams that were requested just before the end have not begun: let them get the error.
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _finish(self, reason: BaseException) -> None:
        with self._lock:
            self._is_over = True
        if not self._connected.done():
            self._connected.set_exception(reason if isinstance(reason, Exception) else closed())

    async def _live(self) -> None:
        fetcher = self._make_fetcher()
        try:
            await fetcher.connect()
            self._context = self._context_of(fetcher)
            self._connected.set_result(self._context)
            await asyncio.Event().wait()  # until `close` cancels this task
        except (asyncio.CancelledError, Exception) as error:
            self._finish(error)  # before the connections are closed, which may take long
        finally:
            for task in self._streams:
                task.cancel()
            await asyncio.gather(*self._streams, return_exceptions=True)
            await fetcher.close()

    def _begin(self, stream: FetchStream) -> None:
        if self._is_over:
            stream.end(closed())
            return
        stream.task = asyncio.create_task(stream.run())
        self._streams.add(stream.task)
        stream.task.add_done_callback(self._streams.discard)
        # A task that is cancelled before its first step never runs, so it cannot end its stream itself.
        stream.task.add_done_callback(lambda _: stream.end(closed()))
