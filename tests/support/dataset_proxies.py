"""A proxy that can count, hold, cut and damage the bytes of a connection."""

import socket
import threading
from contextlib import suppress
from typing import Self


class Proxy:
    """Forwards bytes to and from a local port and counts them as ``up`` and ``down``.

    After ``limit`` bytes in one direction (``way``), it once does what ``then`` says: ``hold`` everything until
    `release`, ``cut`` the connection, ``end`` it and accept no others, or ``damage`` that byte. ``carrying`` counts the
    open directions.
    """

    def __init__(self, port: int, *, way: str = "down", limit: int | None = None, then: str = "hold") -> None:
        self._port, self._way, self._then = port, way, then
        self.limit = limit
        self.up = self.down = self.carrying = 0
        self._counting = threading.Lock()
        self.reached, self._released = threading.Event(), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._listening.close()
        for one in self._open:
            _close(one)

    def release(self) -> None:
        """Release the bytes that are held back."""
        self._released.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._port))
                except OSError:
                    _close(near)
                    continue
                self._open += [near, far]
                self._count(2)
                threading.Thread(target=self._carry, args=(near, far, "up"), daemon=True).start()
                threading.Thread(target=self._carry, args=(far, near, "down"), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                before = getattr(self, way)
                setattr(self, way, before + len(data))
                if way == self._way and self.limit is not None and before + len(data) > self.limit:
                    place, self.limit = max(0, self.limit - before), None
                    self.reached.set()
                    if self._then == "hold":
                        assert self._released.wait(60)
                    elif self._then in ("cut", "end"):
                        if self._then == "end":
                            _close(self._listening)
                        break
                    else:
                        data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
                target.sendall(data)
        _close(source)
        _close(target)
        self._count(-1)

    def _count(self, more: int) -> None:
        with self._counting:
            self.carrying += more


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
