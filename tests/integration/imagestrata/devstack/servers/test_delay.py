"""The proxy that simulates distance: unchanged bytes, delayed enough, with limited bandwidth."""

import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from imagestrata.devstack.servers.delay import DelayProxy, build

RESULT, EVENT = 0x08, 0x0C


@contextmanager
def server(work: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on a free port that handles each connection like this; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=_for_one, args=(connection,), daemon=True).start()

        def _for_one(connection: socket.socket) -> None:
            with connection:
                work(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def echo(connection: socket.socket) -> None:
    while data := connection.recv(1 << 16):
        connection.sendall(data)


def received(connection: socket.socket) -> bytes:
    """Read until the other side ends."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def connect(proxy: DelayProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=30)


@pytest.mark.parametrize("rtt", [0.0, 0.02])
def test_the_proxy_passes_bytes_and_end_of_stream_unchanged(rtt: float) -> None:
    data = os.urandom(5_000_000)
    with server(echo) as port, DelayProxy(port, rtt=rtt, window=200_000) as proxy:
        with connect(proxy) as client:

            def send() -> None:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)

            sending = threading.Thread(target=send)
            sending.start()
            assert received(client) == data
            sending.join()
        carried = proxy.end()
    assert (carried.connections, carried.bytes_to_server, carried.bytes_from_server) == (1, len(data), len(data))
    assert (carried.held, carried.cpu_seconds > 0) == (0, True)


def test_an_answer_takes_a_round_trip_at_least() -> None:
    with server(echo) as port, DelayProxy(port, rtt=0.1) as proxy, connect(proxy) as client:
        for _ in range(3):
            started = time.monotonic()
            client.sendall(b"?")
            assert client.recv(1) == b"?"
            assert time.monotonic() - started >= 0.1


def test_a_connection_carries_at_most_its_window_per_round_trip() -> None:
    size, window, rtt = 1_000_000, 100_000, 0.05

    def send(connection: socket.socket) -> None:
        connection.sendall(bytes(size))

    with server(send) as port, DelayProxy(port, rtt=rtt, window=window) as proxy, connect(proxy) as client:
        started = time.monotonic()
        assert len(received(client)) == size
        assert time.monotonic() - started >= (size / window - 1) * rtt


def frame(opcode: int, body: bytes) -> bytes:
    return struct.pack(">BBhBI", 0x84, 0, 7, opcode, len(body)) + body


def test_later_answers_overtake_held_ones_and_none_is_lost() -> None:
    """The server sends large answers, small answers and events; only large answers may be held."""
    large = [frame(RESULT, struct.pack(">I", number) + bytes(5_000)) for number in range(100)]
    small = [frame(RESULT, struct.pack(">I", 1000 + number)) for number in range(20)]
    events = [frame(EVENT, struct.pack(">I", 2000 + number) + bytes(5_000)) for number in range(20)]

    def send(connection: socket.socket) -> None:
        connection.sendall(b"".join(large + small + events))

    with server(send) as port, DelayProxy(port, rtt=0.0, hold_share=0.3, hold=2.0, seed=3) as proxy:
        with connect(proxy) as client:
            stream = received(client)
        carried = proxy.end()
    numbers = []
    while stream:
        length = struct.unpack(">I", stream[5:9])[0]
        numbers.append(struct.unpack(">I", stream[9:13])[0])
        stream = stream[9 + length :]
    assert sorted(numbers) == [*range(100), *range(1000, 1020), *range(2000, 2020)]
    overtaken = numbers[numbers.index(2019) + 1 :]
    assert len(overtaken) == carried.held
    assert 10 < carried.held < 60
    assert all(number < 100 for number in overtaken)
    prompt = [number for number in numbers if number not in set(overtaken)]
    assert prompt == sorted(prompt)
    assert overtaken == sorted(overtaken)


def test_the_proxy_ends_with_open_connections_and_refuses_invalid_options() -> None:
    with server(echo) as port, DelayProxy(port, rtt=0.01) as proxy, connect(proxy) as client:
        client.sendall(b"?")
        assert client.recv(1) == b"?"
        assert proxy.end().connections == 1
        assert client.recv(1) == b""
    with DelayProxy(port, rtt=0.0) as proxy, connect(proxy) as client:  # nobody is connected any more
        assert client.recv(1) == b""
    for wrong in (["-rtt", "1s"], ["-to", "127.0.0.1:1", "-rtt", "-1s"], ["-to", "127.0.0.1:1", "-hold-share", "2"]):
        found = subprocess.run([str(build()), *wrong], capture_output=True, text=True, timeout=30)
        assert (found.returncode, "wanted -to HOST:PORT" in found.stderr) == (2, True)
