"""Measures the bandwidth of the proxy alone.

Plain bytes go through it over several connections, without delay. Sender and receiver copy nothing (sendfile, and
MSG_TRUNC on receipt), so nearly all CPU is left for the proxy.
"""

import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from benchmarks.harness.processes import Background
from benchmarks.harness.results import tell
from benchmarks.harness.runs import Run
from imagestrata.devstack.servers.delay import DelayProxy

CONNECTIONS = 4
_LOOK_SECONDS = 3.0
_PIECE = 1 << 20


@contextmanager
def _flood() -> Iterator[int]:
    """A server that sends zeros to every client as fast as possible; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.TemporaryFile() as file:
        file.write(bytes(_PIECE))
        file.flush()

        def send(connection: socket.socket) -> None:
            with connection, suppress(OSError, ValueError):  # ValueError if the file is closed
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
    """MB/s through a proxy without delay, over all connections."""
    totals = [0] * CONNECTIONS

    def take(number: int, port: int, stop: threading.Event) -> None:
        piece = bytearray(_PIECE)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            while not stop.is_set():
                totals[number] += connection.recv_into(piece, _PIECE, socket.MSG_TRUNC)

    with _flood() as port, DelayProxy(port, rtt=0.0) as proxy, ExitStack() as stack:
        for number in range(CONNECTIONS):
            stack.enter_context(Background(partial(take, number, proxy.port)))
        time.sleep(seconds / 4)  # until all connections transfer
        before, began = sum(totals), time.monotonic()
        time.sleep(seconds)
        return (sum(totals) - before) / 1e6 / (time.monotonic() - began)


class ProxyLimit:
    """The bandwidth of the proxy alone. A comparison is void if the proxy carries less than twice what was measured."""

    def __init__(self) -> None:
        self.mb_per_s = 0.0
        """The most that was measured, because other work on the machine can only lower it."""

    def look(self) -> None:
        """Measure the bandwidth."""
        found = capacity_mb_per_s(seconds=_LOOK_SECONDS)
        self.mb_per_s = max(self.mb_per_s, found)
        tell(f"the proxy alone carries {found:,.0f} MB/s")

    def void(self, *runs: Sequence[Run]) -> str:
        """Why a comparison through the proxy is void; empty if it is valid."""
        found = max(statistics.median(run.mb_per_s for run in some) for some in runs)
        if self.mb_per_s >= 2 * found:
            return ""
        return f"the proxy alone carries {self.mb_per_s:,.0f} MB/s, less than twice {found:,.0f} MB/s"
