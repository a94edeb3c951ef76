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
from starlette.types import Receive, Scope, Send

from service import connections
from service.__main__ import main
from tests.support.dataset_servers import Server, ServerInThread, anonymous_mb, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that asks for tokens."""
    root = tmp_path_factory.mktemp("service") / "root"
    assert main(["token", "create", "--root", str(root), "--name", "x"]) == 0
    with Server(root) as server:
        yield server


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
        except OSError:  # it did not wait for all of it
            continue
        assert (answer.status, answer.headers["content-type"]) == (413, "application/problem+json")
    assert anonymous_mb(server.process.pid) < 100


def test_connections_beyond_the_limit_are_closed_until_others_end(tmp_path: Path) -> None:
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
        until(lambda: is_healthy(server), "the service")
    assert server.log.stat().st_size < 100_000


def is_healthy(server: Server) -> bool:
    try:
        return server.ask("GET", "/health").status == 200
    except OSError:
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
def test_a_silent_client_that_owes_bytes_is_disconnected(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(0.3, monkeypatch) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as opened:
        opened.sendall(said)
        with suppress(ConnectionResetError):
            assert opened.recv(1000) == b""


def test_a_slow_but_steady_client_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(4.0, monkeypatch) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as opened:
        opened.sendall(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nConnection: close\r\n\r\n")
        for _ in range(9):  # together longer than it is patient
            opened.sendall(b"a")
            time.sleep(0.5)
        assert opened.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_with_exit_code_0_when_it_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    with Server(tmp_path / "root") as server:
        server.process.send_signal(number)
        assert server.process.wait(60) == 0


def test_a_service_stays_closed_after_its_token_is_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(tmp_path / "root")
    assert main(["token", "create", "--root", root, "--name", "x"]) == 0
    token = capsys.readouterr().out.strip()
    assert main(["token", "revoke", "--root", root, "--name", "x"]) == 0
    with ServerInThread(tmp_path / "root") as server:
        assert server.ask("GET", "/datasets").status == 401
        assert server.ask("GET", "/datasets", headers={"Authorization": f"Bearer {token}"}).status == 401


def test_a_foreign_host_header_is_accepted_once_tokens_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = {"Host": "datasets.example"}
    with ServerInThread(tmp_path / "root") as server:
        assert server.ask("GET", "/datasets", headers=headers).status == 421
        assert server.ask("GET", "/health", headers=headers).status == 200
        assert main(["token", "create", "--root", str(tmp_path / "root"), "--name", "x"]) == 0
        token = capsys.readouterr().out.strip()
        until(lambda: server.ask("GET", "/datasets", headers=headers).status == 401)
        allowed = server.ask("GET", "/datasets", headers={**headers, "Authorization": f"Bearer {token}"})
        assert json.loads(allowed.body) == {"datasets": [], "next": None}
