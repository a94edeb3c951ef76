"""Reading ahead: one background thread with an event loop launches batches in order and hands them out in order.

::

    requests --launch--> reads in flight --emit--> ready queue --next()--> consumer
                ^                                                     |
                +---------------- a free slot <-----------------------+

Launching and emitting are two tasks: in one, a batch would not be launched before the one ahead of it has arrived,
which halves the depth. A slot is taken when a batch is launched and given back when the consumer takes it, so that
``depth`` bounds what is in flight and what is ready together.
"""

import asyncio
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from loader._errors import ClosedError
from loader._fetch import Fetched, Fetcher

_log = logging.getLogger(__name__)

_CLOSE_SECONDS = 2.0
"""How long closing waits for the driver, which lets go of a connection only when its reads are answered or timed out.
After that the thread goes on alone; it is no obstacle to the end of the process."""

_WAKE_SECONDS = 0.5
"""How long a consumer waits at a time. Ctrl-C that comes while a thread hands over the interpreter, before it waits,
or that the system gives to another thread, does not wake it: it is seen when it looks up."""


class Request(Protocol):
    """One batch to be read."""

    @property
    def ids(self) -> NDArray[np.uint8]:
        """uint8 ``(b, 16)``."""
        ...


R = TypeVar("R", bound=Request)


class Stream(Generic[R]):
    """The batches of one pass, in order: an iterator for one consumer, made by `Engine.stream`."""

    def __init__(self, requests: Iterable[R], loop: asyncio.AbstractEventLoop, *, depth: int) -> None:
        self._requests: Iterable[R] = requests
        self._loop = loop
        self._slots = asyncio.Semaphore(depth)
        self._ready: queue.SimpleQueue[tuple[R, Fetched] | BaseException] = queue.SimpleQueue()
        self._has_ended = False
        self.task: asyncio.Task[None] | None = None

    def __iter__(self) -> Iterator[tuple[R, Fetched]]:
        return self

    def __next__(self) -> tuple[R, Fetched]:
        """The next request and what came for it; raises whatever ended the pass early, in the next batch's place."""
        if self._has_ended:
            raise StopIteration
        item = self._take()
        if isinstance(item, BaseException):
            self._has_ended = True
            raise item
        self._tell(self._slots.release)
        return item

    def close(self) -> None:
        """Stop reading ahead and give up what is in flight; nothing is waited for."""
        self._has_ended = True
        self._tell(lambda: self.task is not None and self.task.cancel())

    def end(self, reason: BaseException) -> None:
        """Have the consumer find this behind the last batch that has arrived."""
        self._ready.put(reason)

    async def run(self, fetcher: Fetcher) -> None:
        """Read all requests, on the loop; whatever happens, the consumer finds an end or an error."""
        launched: asyncio.Queue[tuple[R, asyncio.Task[Fetched]] | None] = asyncio.Queue()
        in_flight: set[asyncio.Task[Any]] = set()

        async def launch() -> None:
            try:
                for request in self._requests:
                    await self._slots.acquire()
                    reading = asyncio.create_task(fetcher.get(request.ids))
                    in_flight.add(reading)
                    launched.put_nowait((request, reading))
            finally:
                launched.put_nowait(None)

        launching = asyncio.create_task(launch())
        in_flight.add(launching)
        try:
            while (pair := await launched.get()) is not None:
                request, reading = pair
                self._ready.put((request, await reading))
                in_flight.remove(reading)
            await launching
            self.end(StopIteration())
        except asyncio.CancelledError:
            self.end(_closed())
        except Exception as error:
            self.end(error)
        finally:
            self._requests = ()  # they hold the source, which must be free to go while a traceback still holds this
            for task in in_flight:
                task.cancel()
            await asyncio.gather(*in_flight, return_exceptions=True)

    def _take(self) -> tuple[R, Fetched] | BaseException:
        while True:
            with suppress(queue.Empty):
                return self._ready.get(timeout=_WAKE_SECONDS)

    def _tell(self, call: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(call)


class Engine:
    """A thread, its event loop and the connections that live on it. The first stream starts them."""

    def __init__(self, make_fetcher: Callable[[], Fetcher]) -> None:
        self._make_fetcher = make_fetcher
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._is_closed = False

    def stream(self, requests: Iterable[R], *, depth: int) -> Stream[R]:
        """Begin a pass over requests, at most ``depth`` batches ahead of its consumer. Passes may run side by side.

        Raises what `Fetcher.connect` raises, and `ClosedError` after `close`.
        """
        with self._lock:
            if self._is_closed:
                raise _closed()
            if self._run is None or not self._run.is_usable():
                self._run = _Run(self._make_fetcher)
            run = self._run
        return run.stream(requests, depth=depth)

    def close(self) -> None:
        """Give up all reads and connections; streams that are being read get `ClosedError`. Safe to call twice."""
        with self._lock:
            self._is_closed = True
            run, self._run = self._run, None
        if run is not None:
            run.close()


class _Run:
    """One life of the thread, from connecting to closing."""

    def __init__(self, make_fetcher: Callable[[], Fetcher]) -> None:
        self._make_fetcher = make_fetcher
        self._process = os.getpid()
        self._lock = threading.Lock()  # guards _is_over: no stream may begin after it
        self._is_over = False
        self._streams: set[asyncio.Task[None]] = set()  # touched on the loop only
        self._connected: Future[Fetcher] = Future()
        self._loop = asyncio.new_event_loop()
        self._main = self._loop.create_task(self._live())
        # A daemon, because a node that answers nothing must not hold up the end of the process.
        self._thread = threading.Thread(target=self._body, name="loader-prefetch", daemon=True)
        self._thread.start()

    def is_usable(self) -> bool:
        """Not after a failed connection, nor in a forked child, where the thread does not exist."""
        return not self._is_over and self._process == os.getpid()

    def stream(self, requests: Iterable[R], *, depth: int) -> Stream[R]:
        while not wait((self._connected,), timeout=_WAKE_SECONDS).done:
            pass
        fetcher = self._connected.result()
        stream = Stream(requests, self._loop, depth=depth)
        with self._lock:
            if self._is_over:
                raise _closed()
            self._loop.call_soon_threadsafe(self._begin, stream, fetcher)
        return stream

    def close(self) -> None:
        if self._process != os.getpid():
            return
        try:
            self._loop.call_soon_threadsafe(self._main.cancel)
        except RuntimeError:  # the loop is closed already
            return
        if threading.current_thread() is not self._thread:  # the garbage collector may call from there
            self._thread.join(_CLOSE_SECONDS)
            if self._thread.is_alive():
                _log.info("Cassandra has not answered all reads: the connections close in the background")

    def _body(self) -> None:
        try:
            self._loop.run_until_complete(self._main)
        except (asyncio.CancelledError, Exception) as error:
            self._finish(error)
        # Streams that were asked for just before the end have not begun: let them find it.
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _finish(self, reason: BaseException) -> None:
        with self._lock:
            self._is_over = True
        if not self._connected.done():
            self._connected.set_exception(reason if isinstance(reason, Exception) else _closed())

    async def _live(self) -> None:
        fetcher = self._make_fetcher()
        try:
            await fetcher.connect()
            self._connected.set_result(fetcher)
            await asyncio.Event().wait()  # until `close` cancels this task
        except (asyncio.CancelledError, Exception) as error:
            self._finish(error)  # before the connections are closed, which may take long
        finally:
            for task in self._streams:
                task.cancel()
            await asyncio.gather(*self._streams, return_exceptions=True)
            await fetcher.close()

    def _begin(self, stream: Stream[Any], fetcher: Fetcher) -> None:
        if self._is_over:
            stream.end(_closed())
            return
        stream.task = asyncio.create_task(stream.run(fetcher))
        self._streams.add(stream.task)
        stream.task.add_done_callback(self._streams.discard)
        # A task that is cancelled before its first step never runs, and could not tell its consumer.
        stream.task.add_done_callback(lambda _: stream.end(_closed()))


def _closed() -> ClosedError:
    return ClosedError("Wanted the next batch. Found: the source was closed")
