"""Limits against unknown clients: headers, bodies that are read at once, connections, slow clients."""

import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imagestrata.service.commands import main
from imagestrata.service.server.connections import Limits
from imagestrata.service.stores import bodies
from tests.support.dataset_servers import Server, ServerInThread, anonymous_mb, token_of
from tests.support.waiting import until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that requires tokens."""
    root = tmp_path_factory.mktemp("service") / "root"
    token_of(root)
    with Server(root) as server:
        yield server


def head_of(server: Server, size: int) -> bytes:
    """The answer to a request with a header of this size, or nothing."""
    with socket.create_connection((server.host, server.port), timeout=60) as opened:
        try:
            opened.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
            for _ in range(0, size, 10_000):
                opened.sendall(b"a" * 10_000)
            opened.sendall(b"\r\n\r\n")
        except OSError:
            pass  # the server has closed already
        try:
            return opened.recv(1000)
        except OSError:
            return b""


def test_headers_are_bounded(server: Server) -> None:
    assert head_of(server, 30_000).startswith(b"HTTP/1.1 200")
    assert head_of(server, 50_000_000)[:12] in (b"HTTP/1.1 431", b"")
    assert anonymous_mb(server.process.pid) < 100
    assert server.ask("GET", "/health").status == 200


def test_bodies_read_into_memory_are_bounded(server: Server) -> None:
    headers = {"Content-Type": "application/json"}
    for body in (b'"' + b"a" * 50_000_000 + b'"', iter([b'"'] + [b"a" * 1_000_000] * 50)):
        try:
            answer = server.ask("POST", "/datasets", body, headers)
        except OSError:  # it did not wait for the whole request
            continue
        assert (answer.status, answer.headers["content-type"]) == (413, "application/problem+json")
    assert anonymous_mb(server.process.pid) < 100


def test_connections_beyond_the_limit_are_closed_until_others_end(tmp_path: Path) -> None:
    with Server(tmp_path / "root", limit="ulimit -n 200") as server:
        opened = []
        for _ in range(400):
            one = socket.create_connection((server.host, server.port), timeout=60)
            one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost")
            opened.append(one)
        ended = 0
        for one in opened[100:]:
            try:
                ended += one.recv(1000)[9:12] in (b"429", b"503")
            except ConnectionResetError:
                ended += 1
        assert ended == 300
        for one in opened:
            one.close()
        until(lambda: is_healthy(server), "the service")
    assert server.log.stat().st_size < 100_000


def is_healthy(server: Server) -> bool:
    try:
        return server.ask("GET", "/health").status == 200
    except OSError:
        return False


SHORT = Limits(connections=100, of_address=100, head_seconds=0.5, body_seconds=0.5, read_seconds=0.5, look_seconds=0.1)
PUT = b"PUT /datasets/x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[ServerInThread]:
    """A service whose deadlines are half a second."""
    with ServerInThread(tmp_path / "root", limits=SHORT) as server:
        server.create("x")
        yield server


def drip(server: ServerInThread, first: bytes, each: bytes) -> bytes:
    """The answer to a client that sends something now and then, until the connection ends."""
    with socket.create_connection((server.host, server.port), timeout=0.05) as opened:
        found, end = b"", time.monotonic() + 60
        try:
            opened.sendall(first)
            while time.monotonic() < end:
                opened.sendall(each)
                with suppress(TimeoutError):
                    block = opened.recv(1 << 16)
                    if not block:
                        return found
                    found += block
        except OSError:
            return found
    raise AssertionError("the connection goes on for ever")


@pytest.mark.parametrize(
    ("first", "each", "status"),
    [
        (b"", b"", b""),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", b"a", b"408"),
        (b"", b"\r\n", b"408"),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"\r\n", b"200"),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET / HTTP/1.1\r\nX: ", b"a", b"200"),
        (PUT + b"Content-Length: 9999\r\n\r\n", b"a", b"408"),
        (PUT + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", b"408"),
        (b"POST /datasets HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\n", b" ", b"408"),
    ],
)
def test_a_client_that_sends_a_byte_now_and_then_is_disconnected(
    impatient: ServerInThread, first: bytes, each: bytes, status: bytes
) -> None:
    assert drip(impatient, first, each)[9:12] == status
    until(lambda: list((impatient.root / "incoming").iterdir()) == [])


def test_a_slow_but_steady_upload_is_taken(tmp_path: Path) -> None:
    limits = replace(SHORT, body_seconds=1.0, least_rate=1.0)
    with ServerInThread(tmp_path / "root", limits=limits) as server:
        server.create("x")
        assert drip(server, PUT + b"Content-Length: 60\r\n\r\n", b"a").startswith(b"HTTP/1.1 200")


def test_what_came_of_an_upload_that_was_too_slow_stays(impatient: ServerInThread) -> None:
    place = impatient.begin("x", 9999).headers["location"]
    head = f"PATCH {place} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpload-Offset: 0\r\nContent-Length: 9999\r\n"
    rest = "Tus-Resumable: 1.0.0\r\nContent-Type: application/offset+octet-stream\r\n\r\n"
    assert b"Use a resumable upload" in drip(impatient, f"{head}{rest}".encode(), b"a")
    until(lambda: impatient.look(place).headers["upload-offset"] != "0")


def test_a_server_that_does_not_read_does_not_blame_its_client(
    impatient: ServerInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, written = threading.Event(), bodies._write

    def wait(*args: Any) -> None:
        assert goes_on.wait(60)
        written(*args)

    monkeypatch.setattr(bodies, "_write", wait)
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(impatient.put, "x", bytes(30_000_000))
        threading.Timer(3 * SHORT.body_seconds, goes_on.set).start()
        assert put.result(60).status == 200


@pytest.mark.parametrize(("size", "requests"), [(30_000, 900), (30_000_000, 1)])
def test_a_client_that_never_reads_is_disconnected(impatient: ServerInThread, size: int, requests: int) -> None:
    assert impatient.put("x", bytes(size)).status == 200
    with socket.socket() as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        opened.connect((impatient.host, impatient.port))
        opened.sendall(b"GET /datasets/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * requests)
        ended = select.poll()
        ended.register(opened, 0)  # only errors
        assert ended.poll(60_000)


def test_many_downloads_that_nobody_reads_share_a_bounded_memory(tmp_path: Path) -> None:
    with Server(tmp_path / "root") as server, ExitStack() as held:
        server.create("x")
        assert server.put("x", bytes(20_000_000)).status == 200
        for _ in range(300):
            opened = held.enter_context(socket.socket())
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            opened.settimeout(60)
            opened.connect((server.host, server.port))
            opened.sendall(b"GET /datasets/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert opened.recv(1) == b"H"
        assert server.ask("GET", "/health").status == 200
        assert anonymous_mb(server.process.pid) < 300  # each could hold two blocks of 1 MiB


def test_a_download_that_is_read_slowly_goes_on(tmp_path: Path) -> None:
    with ServerInThread(tmp_path / "root", limits=replace(SHORT, least_rate=1000.0)) as server:
        server.create("x")
        assert server.put("x", bytes(20_000_000)).status == 200
        with socket.socket() as opened:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            opened.settimeout(60)
            opened.connect((server.host, server.port))
            opened.sendall(b"GET /datasets/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            end = time.monotonic() + 6 * SHORT.read_seconds
            while time.monotonic() < end:
                assert opened.recv(5_000)
                time.sleep(0.05)


@pytest.mark.parametrize(("proxies", "expected"), [([], 3), (["127.0.0.0/8"], 8)])
def test_connections_of_one_address_are_limited(tmp_path: Path, proxies: list[str], expected: int) -> None:
    limits = replace(SHORT, of_address=3, proxies=proxies, head_seconds=60.0)
    with ServerInThread(tmp_path / "root", limits=limits) as server, ExitStack() as held:
        opened = [
            held.enter_context(socket.create_connection((server.host, server.port), timeout=0.5)) for _ in range(8)
        ]
        answers = [answer for one in opened if (answer := answer_of(one))]
        assert len(answers) == 8 - expected
        for answer in answers:
            assert answer.startswith(b"HTTP/1.1 429 ")
            assert b"from one address" in answer
            assert b"--proxy" in answer
        for one in opened:
            one.close()
        until(lambda: is_healthy(server), "the service")


def answer_of(connection: socket.socket) -> bytes:
    """What the server sends before a request, or nothing."""
    try:
        return connection.recv(4096)
    except TimeoutError:
        return b""


CHUNKED = b"PUT /datasets/x HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"


def test_trailers_never_count_as_headers(impatient: ServerInThread) -> None:
    trailers = b"Host: other.example\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection((impatient.host, impatient.port), timeout=60) as opened:
        opened.sendall(CHUNKED + b"1\r\na\r\n0\r\n" + trailers)
        assert opened.recv(4096).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("trailer", [b"a: b\r\n", b"a"])
def test_trailers_are_bounded(tmp_path: Path, trailer: bytes) -> None:
    with ServerInThread(tmp_path / "root") as server:
        server.create("x")
        with socket.create_connection((server.host, server.port), timeout=60) as opened:
            opened.sendall(CHUNKED + b"1\r\na\r\n0\r\na: ")
            with pytest.raises(OSError, match=r"reset|[Bb]roken"):
                for _ in range(100):
                    opened.sendall(trailer * 100_000)


def test_a_body_in_small_chunks_is_taken(impatient: ServerInThread) -> None:
    with socket.create_connection((impatient.host, impatient.port), timeout=60) as opened:
        opened.sendall(CHUNKED + b"1\r\na\r\n" * 50_000 + b"0\r\n\r\n")
        found = b""
        while block := opened.recv(4096):
            found += block
    assert b'"bytes":50000,' in found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_with_exit_code_0_when_it_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    with Server(tmp_path / "root") as server:
        server.process.send_signal(number)
        assert server.process.wait(60) == 0


def test_a_service_stays_closed_after_its_token_is_revoked(tmp_path: Path) -> None:
    token = token_of(tmp_path / "root")
    assert main(["token", "revoke", "--root", str(tmp_path / "root"), "--name", "x"]) == 0
    with ServerInThread(tmp_path / "root") as server:
        assert server.ask("GET", "/datasets").status == 401
        assert server.ask("GET", "/datasets", headers={"Authorization": f"Bearer {token}"}).status == 401
        assert server.ask("GET", "/health").status == 200
        (tmp_path / "root" / "tokens.json").write_text("{")  # nobody can be admitted any more
        until(lambda: server.ask("GET", "/health").status == 503, "the damage to be seen")
        answer = server.ask("GET", "/datasets", headers={"Authorization": f"Bearer {token}"})
        assert answer.status == 503
        assert b"tokens.json is damaged" in answer.body
