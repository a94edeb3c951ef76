"""A stage that starts and ends all that contenders need, and what the proxy alone carries there.

That is plain bytes over several connections, without any delay. Sender and receiver copy nothing (a file's pages are
sent, what comes is thrown away in the kernel), so that the proxy has the machine almost for itself.
"""

import os
import socket
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.harness.command import tell
from imagestrata.devstack.servers.delay import DelayProxy

CONNECTIONS = 4
_LOOK_SECONDS = 3.0
_PIECE = 1 << 20


@contextmanager
def _flood() -> Iterator[int]:
    """A server that sends zeros to whoever connects, as fast as they are taken; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.TemporaryFile() as file:
        file.write(bytes(_PIECE))
        file.flush()

        def send(connection: socket.socket) -> None:
            with connection, suppress(OSError, ValueError):  # the latter for a file that is closed
                while True:
                    os.sendfile(connection.fileno(), file.fileno(), 0, _PIECE)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=send, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def capacity_mb_per_s(*, seconds: float) -> float:
    """MB/s through a proxy that delays nothing, all connections together."""
    totals = [0] * CONNECTIONS
    is_over = threading.Event()

    def take(number: int, port: int) -> None:
        piece = bytearray(_PIECE)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            while not is_over.is_set():
                totals[number] += connection.recv_into(piece, _PIECE, socket.MSG_TRUNC)

    with _flood() as port, DelayProxy(port, rtt=0.0) as proxy:
        takers = [threading.Thread(target=take, args=(number, proxy.port)) for number in range(CONNECTIONS)]
        for taker in takers:
            taker.start()
        time.sleep(seconds / 4)  # until all flow
        before, began = sum(totals), time.monotonic()
        time.sleep(seconds)
        carried, took = sum(totals) - before, time.monotonic() - began
        is_over.set()
        for taker in takers:
            taker.join()
    return carried / 1e6 / took


class Stage(ABC):
    """Where contenders run, a context manager: all is started on entering, and ended and removed on leaving."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.capacity = 0.0
        """MB/s that the proxy alone carries, the most that was seen."""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @abstractmethod
    def _start(self, stack: ExitStack) -> None:
        """Start all, each with a callback that ends it."""

    def look_at_proxy(self) -> None:
        """Measure what the proxy alone carries; other work on the machine can only make that less."""
        found = capacity_mb_per_s(seconds=_LOOK_SECONDS)
        self.capacity = max(self.capacity, found)
        tell(f"the proxy alone carries {found:,.0f} MB/s")

    def proxy_limit(self, mb_per_s: float) -> str:
        """Why a comparison through the proxy at this rate means nothing; empty where it does mean something."""
        if self.capacity >= 2 * mb_per_s:
            return ""
        return f"the proxy alone carries {self.capacity:,.0f} MB/s, less than twice {mb_per_s:,.0f} MB/s"
