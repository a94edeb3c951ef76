"""What all streams of a source share, for any store: whatever reads in this process, counters, and the end of both."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol
from weakref import WeakSet

from loader.errors import closed
from loader.prefetch.batcher import Filled
from loader.prefetch.stats import Meter, Stats


class Stream(Protocol):
    """The batches of one epoch after another, for one consumer."""

    def take(self) -> Filled | None:
        """The next batch; None after the last one of an epoch. An error that ended the stream is raised instead of a
        batch.
        """
        ...

    def is_usable(self) -> bool:
        """Whether more may come: not in a forked child, where nothing is read."""
        ...

    def close(self) -> None:
        """Stop reading ahead, without waiting."""
        ...


class Reader(Protocol):
    """The threads and connections of one process."""

    def is_usable(self) -> bool:
        """Not after a failed connection."""
        ...

    def connect(self) -> None:
        """Connect. Raises `AccessError`, `UnreachableError`, `TableError`."""
        ...

    def figures(self) -> dict[str, Any]:
        """What `Stats` says of its reads, besides the counters."""
        ...

    def close(self) -> None:
        """End all reads and connections."""
        ...


_engines: "WeakSet[Engine]" = WeakSet()
_inherited: list[Reader] = []


def _after_fork() -> None:
    """In a forked child, no thread of the parent is there to release a lock that it held, and a reader of the parent
    must not be freed: that would end connections that the parent uses.
    """
    for engine in _engines:
        engine.forget()


os.register_at_fork(after_in_child=_after_fork)


class Engine:
    """Reads a plan's batches ahead, from one store. The first stream begins the reader; after a failed connection, and
    in a forked child, the next stream begins another.
    """

    def __init__(
        self,
        begin: Callable[[Meter], Any],
        stream: Callable[[Any, Iterator[Iterator[Any]]], Stream],
        *,
        window: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``begin`` makes a `Reader`, and ``stream`` a stream of the reader and epochs. Neither may hold the source,
        which would then never be garbage-collected. ``window`` is that of `Stats` as long as nothing is read.
        """
        self._begin, self._stream, self._window = begin, stream, window
        self.meter = Meter(clock)  # the counters of all streams
        self.is_closed = False
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._at_close: list[Callable[[], None]] = []
        _engines.add(self)

    def stream(self, epochs: Iterator[Iterator[Any]], /) -> Stream:
        """Begin to read epochs, each given as the steps of a plan. Streams may run in parallel, each within the budget;
        raises as `connect`.
        """
        stream = self._stream(self._connected(), epochs)
        self.meter.begin()
        return stream

    def connect(self) -> None:
        """Connect. Raises `AccessError`, `UnreachableError`, `TableError`, and `ClosedError` after `close`."""
        self._connected()

    def _connected(self) -> Reader:
        with self._lock:
            if self.is_closed:
                raise closed()
            if self._reader is None or not self._reader.is_usable():
                self._reader = self._begin(self.meter)
            reader = self._reader
        reader.connect()
        return reader

    def stats(self) -> Stats:
        """How reading performs."""
        reader = self._reader
        return self.meter.stats(**{"window": self._window, **({} if reader is None else reader.figures())})

    def close(self) -> None:
        """End all reads and connections; streams that are being read raise `ClosedError`. You may call it twice."""
        with self._lock:
            self.is_closed = True
            more, self._at_close = self._at_close, []
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        for close in more:
            close()

    def forget(self) -> None:
        """Leave the lock and the reader to the parent, in a child that was just forked."""
        self._lock = threading.Lock()
        if self._reader is not None:
            _inherited.append(self._reader)
            self._reader = None

    def at_close(self, close: Callable[[], None], /) -> None:
        """Let `close` call this too. After `close`, call it now and raise `ClosedError`."""
        with self._lock:
            if not self.is_closed:
                self._at_close.append(close)
                return
        close()
        raise closed()
