"""What strangers may cost the dataset service: headers, bodies that are read at once, connections, silence."""

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import uvicorn
from dataset_servers import Server
from starlette.types import Receive, Scope, Send

from benchmarks.ingest_watch import anonymous_mb
from service import connections
from service.__main__ import main


def head_of(server: Server, size: int) -> bytes:
    """What comes back for a request with a header of this size, as far as it is taken."""
    with socket.create_connection((server.host, server.port), timeout=60) as opened:
        try:
            opened.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
            for _ in range(0, size, 10_000):
                opened.sendall(b"a" * 10_000)
            opened.sendall(b"\r\n\r\n")
        except OSError:
            pass  # it has closed already
        try:
            return opened.recv(1000)
        except OSError:
            return b""


def test_headers_are_bounded(tmp_path: Path) -> None:
    with Server(tmp_path / "root") as server:
        assert head_of(server, 30_000).startswith(b"HTTP/1.1 200")
        assert head_of(server, 50_000_000)[:12] in (b"HTTP/1.1 431", b"")
        assert anonymous_mb(server.process.pid) < 100
        assert server.ask("GET", "/health").status == 200


def test_bodies_that_are_read_at_once_are_bounded(tmp_path: Path) -> None:
    assert main(["token", "create", "--root", str(tmp_path / "root"), "--name", "x"]) == 0
    with Server(tmp_path / "root") as server:
        headers = {"Content-Type": "application/json"}
        for body in (b'"' + b"a" * 50_000_000 + b'"', iter([b'"'] + [b"a" * 1_000_000] * 50)):
            try:
                answer = server.ask("POST", "/datasets", body, headers)
            except OSError:  # it did not wait for all of it
                continue
            assert (answer.status, answer.headers["content-type"]) == (413, "application/problem+json")
        assert anonymous_mb(server.process.pid) < 100


def test_more_connections_than_it_may_have_take_nothing_from_the_others_for_long(tmp_path: Path) -> None:
    with Server(tmp_path / "root", limit="ulimit -n 200") as server:
        opened = []
        for _ in range(400):
            one = socket.create_connection((server.host, server.port), timeout=60)
            one.sendall(b"GET /health HTTP/1.1\r\nHost:")
            opened.append(one)
        ended = 0
        for one in opened[100:]:
            try:
                ended += one.recv(1) == b""
            except ConnectionResetError:
                ended += 1
        assert ended == 300
        for one in opened:
            one.close()
        assert wait_for_health(server)
    assert server.log.stat().st_size < 100_000


def wait_for_health(server: Server) -> bool:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            return server.ask("GET", "/health").status == 200
        except OSError:
            time.sleep(0.05)
    return False


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads a body and answers with how long it was."""
    size, more = 0, True
    while more:
        message = await receive()
        more = message.get("more_body", False)
        size += len(message.get("body", b""))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


@contextmanager
def running(patience: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server whose patience is so short."""
    monkeypatch.setattr(connections, "QUIET_SECONDS", patience)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, http=connections.at_most(10), lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\nHost: x", b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"]
)
def test_who_owes_bytes_and_is_silent_is_left(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(0.3, monkeypatch) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as opened:
        opened.sendall(said)
        with suppress(ConnectionResetError):
            assert opened.recv(1000) == b""


def test_who_is_slow_but_not_silent_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(2.0, monkeypatch) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as opened:
        opened.sendall(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nConnection: close\r\n\r\n")
        for _ in range(9):
            opened.sendall(b"a")
            time.sleep(0.4)
        assert opened.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_has_done_what_it_was_told(tmp_path: Path, told: signal.Signals) -> None:
    with Server(tmp_path / "root") as server:
        server.process.send_signal(told)
        assert server.process.wait(60) == 0


def test_a_service_that_had_tokens_stays_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(tmp_path / "root")
    assert main(["token", "create", "--root", root, "--name", "x"]) == 0
    token = capsys.readouterr().out.strip()
    assert main(["token", "revoke", "--root", root, "--name", "x"]) == 0
    with Server(tmp_path / "root") as server:
        assert server.ask("GET", "/datasets").status == 401
        assert server.ask("GET", "/datasets", headers={"Authorization": f"Bearer {token}"}).status == 401


def test_a_proxy_may_pass_its_own_host_once_tokens_say_who_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = {"Host": "datasets.example"}
    with Server(tmp_path / "root") as server:
        assert server.ask("GET", "/datasets", headers=headers).status == 421
        assert server.ask("GET", "/health", headers=headers).status == 200
    assert main(["token", "create", "--root", str(tmp_path / "root"), "--name", "x"]) == 0
    token = capsys.readouterr().out.strip()
    with Server(tmp_path / "root") as server:
        assert server.ask("GET", "/datasets", headers=headers).status == 401
        allowed = server.ask("GET", "/datasets", headers={**headers, "Authorization": f"Bearer {token}"})
        assert json.loads(allowed.body) == {"datasets": [], "next": None}
