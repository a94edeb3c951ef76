"""The thread that reads ahead, with its event loop and its connections.

The first stream starts the thread. After a failed connection, and in a forked child, the next one starts another::

    connecting ------> connected ---close---> closing ------> over
        |              streams begin          streams get       ^
        |              and end                `ClosedError`     |
        +--- an error, which all that wait for it get ----------+
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait

from loader.order.schedule import Step
from loader.prefetch.batcher import Batcher
from loader.prefetch.closing import Closing, closed
from loader.prefetch.fetcher import Fetcher
from loader.prefetch.retry_policy import RetryPolicy
from loader.prefetch.stats import Meter, Stats
from loader.prefetch.stream import FetchContext, FetchStream, OnMissing
from loader.prefetch.window import Window

_log = logging.getLogger(__name__)

# How long closing waits for the driver, which closes a connection only when its reads are answered or timed out. After
# that the thread continues alone; it does not delay the end of the process.
_CLOSE_SECONDS = 2.0
_WAKE_SECONDS = 0.5  # how long the wait for a connection is at a time, so that Ctrl-C is seen


class FetchEngine(Closing):
    """A thread with its event loop and connections. The first stream starts them."""

    def __init__(
        self,
        make_fetcher: Callable[[], Fetcher],
        begin_epoch: Callable[[Iterator[Step]], Batcher],
        *,
        budget: int,
        max_in_flight: int,
        timeout: float,
        on_missing: OnMissing,
        with_metadata: bool = False,
    ) -> None:
        """``begin_epoch`` makes the batches of an epoch of its steps. Neither it nor ``make_fetcher`` may hold the
        source, which would then never be garbage-collected. ``budget`` is in bytes, ``timeout`` in seconds, for one
        image.
        """
        super().__init__()
        self._make_fetcher, self._begin_epoch = make_fetcher, begin_epoch
        self._budget, self._max_in_flight, self._timeout, self._on_missing = budget, max_in_flight, timeout, on_missing
        self._with_metadata = with_metadata
        self.meter = Meter()  # the counters of all streams
        self._run: _Run | None = None

    def stream(self, epochs: Iterator[Iterator[Step]], /) -> FetchStream:
        """Begin to read epochs ahead. Streams may run in parallel, each within the budget. Raises what `connect`
        raises.
        """
        stream = self._connected().stream(map(self._begin_epoch, epochs))
        self.meter.begin()
        return stream

    def connect(self) -> None:
        """Connect. Raises what `Fetcher.connect` raises, and `ClosedError` after `close`."""
        self._connected()

    def _connected(self) -> "_Run":
        with self._lock:
            if self._is_closed:
                raise closed()
            if self._run is None or not self._run.is_usable():
                self._run = _Run(self._make_fetcher, self._context)
            run = self._run
        run.wait()
        return run

    def stats(self) -> Stats:
        """How reading performs."""
        run = self._run
        context = run.context if run is not None and run.is_usable() else None
        if context is None:
            return self.meter.stats()
        window = context.window
        p50, p99 = window.quantiles(0.5, 0.99)
        return self.meter.stats(
            window=window.size,
            round_trip=window.round_trip,
            p50=p50,
            p99=p99,
            connections=context.fetcher.connections,
        )

    def _end(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def _context(self, fetcher: Fetcher) -> FetchContext:
        most = min(self._max_in_flight, fetcher.most_in_flight or self._max_in_flight)
        window = Window(most=most, now=asyncio.get_running_loop().time())
        policy = RetryPolicy(timeout=self._timeout)
        return FetchContext(fetcher, window, policy, self.meter, self._budget, self._on_missing, self._with_metadata)


class _Run:
    """The thread from connecting to closing."""

    def __init__(self, make_fetcher: Callable[[], Fetcher], begin: Callable[[Fetcher], FetchContext]) -> None:
        self._make_fetcher, self._begin_context = make_fetcher, begin
        self.context: FetchContext | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()  # guards _is_over: no stream may begin after it
        self._is_over = False
        self._streams: set[asyncio.Task[None]] = set()  # touched on the loop only
        self._connected: Future[FetchContext] = Future()
        self._loop = asyncio.new_event_loop()
        self._main = self._loop.create_task(self._live())
        # A daemon, because a node that does not answer must not delay the end of the process.
        self._thread = threading.Thread(target=self._body, name="loader-prefetch", daemon=True)
        self._thread.start()

    def is_usable(self) -> bool:
        """Not after a failed connection, nor in a forked child, where the thread does not exist."""
        return not self._is_over and self._process == os.getpid()

    def wait(self) -> FetchContext:
        while not wait((self._connected,), timeout=_WAKE_SECONDS).done:
            pass
        return self._connected.result()

    def stream(self, epochs: Iterator[Batcher]) -> FetchStream:
        stream = FetchStream(epochs, self._loop, self.wait())
        with self._lock:
            if self._is_over:
                raise closed()
            self._loop.call_soon_threadsafe(self._begin, stream)
        return stream

    def close(self) -> None:
        if self._process != os.getpid():
            return
        with self._lock:
            is_ending = self._is_over  # a second cancellation would interrupt the closing of connections
        try:
            if not is_ending:
                self._loop.call_soon_threadsafe(self._main.cancel)
        except RuntimeError:  # the loop is closed already
            return
        if threading.current_thread() is not self._thread:  # the garbage collector may call from there
            self._thread.join(_CLOSE_SECONDS)
            if self._thread.is_alive():
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
            self.context = self._begin_context(fetcher)
            self._connected.set_result(self.context)
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
