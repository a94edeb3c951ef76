"""Requests that are refused before a route: other hosts, other sites, no token; and how their connections end."""

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.dataset_servers import FILE, TAR, Server, ServerInThread, tar_of, token_of
from tests.support.waiting import until

PATHS = ("/", "/health", "/openapi.json", "/metrics", "/datasets", "/dataset/x", "/page/page.js", "/nothing")
HEADERS = {
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@pytest.fixture(scope="module", params=["", "--insecure"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service without tokens, on a loopback address."""
    options = [request.param] if request.param else []
    with Server(tmp_path_factory.mktemp("service") / "root", "--host-name", "data.example", *options) as server:
        server.create("x")
        yield server


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerInThread]:
    """A service that requires tokens."""
    root = tmp_path_factory.mktemp("closed") / "root"
    token_of(root)
    with ServerInThread(root) as server:
        yield server


def said(server: Server, sent: bytes) -> bytes:
    """All that the server answers to these bytes, until the connection ends."""
    with socket.create_connection((server.host, server.port), timeout=60) as opened:
        opened.sendall(sent)
        found = b""
        with suppress(ConnectionResetError):
            while block := opened.recv(1 << 16):
                found += block
        return found


@pytest.mark.parametrize("path", PATHS)
def test_a_request_for_another_host_is_refused_everywhere(server: Server, path: str) -> None:
    for host in ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"):
        assert server.ask("GET", path, headers={"Host": host}).status == 421
    assert server.ask("DELETE", path, headers={"Host": "evil.example"}).status == 421


@pytest.mark.parametrize("host", ["LOCALHOST", "localhost.:8080", "[::1]:8080", "127.0.0.1:1", "Data.Example", ""])
def test_a_host_is_compared_without_case_dot_and_port(server: Server, host: str) -> None:
    assert server.ask("GET", "/health", headers={"Host": host or f"localhost:{server.port}"}).status == 200


@pytest.mark.parametrize(
    "hosts", [b"", b"Host: localhost\r\nHost: localhost\r\n", b"Host: a b\r\n", b"Host: u@localhost\r\n"]
)
def test_a_request_has_exactly_one_host(server: Server, hosts: bytes) -> None:
    answer = said(server, b"GET /health HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"cross-origin-resource-policy: same-origin" in answer


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "https://data.example:3000"},
        {"Origin": "file://"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_write_that_another_site_asks_for_is_refused(server: Server, headers: dict[str, str]) -> None:
    typed = {"Content-Type": "application/json", **headers}
    for method, path, body in (
        ("POST", "/datasets", json.dumps({"name": "y"}).encode()),
        ("PUT", "/datasets/x", b"1"),
        ("PATCH", "/datasets/x/uploads/0", b"1"),
        ("DELETE", "/datasets/x", None),
    ):
        assert server.ask(method, path, body, typed).status == 403, method
    assert server.ask("GET", "/datasets", headers=headers).status == 200


def test_the_own_page_may_write(server: Server) -> None:
    own = f"http://127.0.0.1:{server.port}"
    for headers in (
        {"Origin": own, "Sec-Fetch-Site": "same-origin"},
        {"Origin": own.upper()},
        {"Origin": "https://data.example"},
        {"Sec-Fetch-Site": "none"},
        # Through a proxy that sends Host: data.example.
        {"Origin": "https://data.example:8443", "Sec-Fetch-Site": "same-origin"},
    ):
        assert server.ask("PUT", "/datasets/x", b"1", {"Content-Type": FILE, **headers}).status == 200


def test_no_answer_can_be_embedded_and_no_content_runs_as_the_page(server: Server) -> None:
    page = b"<script>alert(1)</script>"
    assert server.put("x", tar_of({"a.html": page, "b.svg": page}), kind=TAR).status == 200
    for method, path in (
        *(("GET", path) for path in PATHS),
        ("GET", "/datasets?limit=0"),
        ("PATCH", "/datasets"),
        ("OPTIONS", "/datasets/x"),
        ("GET", "/datasets/x/files/a.html"),
        ("GET", "/datasets/x/files/b.svg"),
    ):
        answer = server.ask(method, path)
        assert HEADERS.items() <= answer.headers.items(), path
        assert "access-control-allow-origin" not in answer.headers
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        if "/files/" in path:
            assert answer.headers["content-disposition"].startswith("attachment")
            assert (answer.headers["content-type"], "sandbox" in policy) == (FILE, True)


@pytest.mark.parametrize("sent", [b"NONSENSE\r\n\r\n", b"GET / HTTP/1.1\r\nA: " + bytes(9) + b"\r\n\r\n"])
def test_answers_of_the_protocol_layer_have_the_headers_too(server: Server, sent: bytes) -> None:
    answer = said(server, sent)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"\r\ncross-origin-resource-policy: same-origin\r\n" in answer
    assert b"\r\ncontent-type: application/problem+json\r\n" in answer


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/datasets?limit=0", None),
        ("GET", "/datasets/%00", None),
        ("GET", "/datasets/x/nothing/at/all", None),
        ("PATCH", "/datasets", b"1"),
        ("POST", "/datasets", b"{no JSON"),
        ("POST", "/datasets", b"x" * 100_000),
        ("PUT", "/datasets/x?sha256=1", b"1"),
        ("GET", "/metrics", None),
        ("GET", "/nothing", None),
    ],
)
def test_a_token_is_asked_for_before_anything_else_is_checked(
    closed: ServerInThread, method: str, path: str, body: bytes | None
) -> None:
    answer = closed.ask(method, path, body, {"Content-Type": "application/json"})
    assert (answer.status, "Bearer" in answer.headers["www-authenticate"]) == (401, True)


def test_a_closed_service_is_reached_under_any_name(closed: ServerInThread) -> None:
    assert closed.ask("GET", "/datasets", headers={"Host": "datasets.example"}).status == 401


def test_a_token_opens_a_service_and_closes_it_for_others(tmp_path: Path) -> None:
    with ServerInThread(tmp_path / "root") as server:
        assert server.ask("GET", "/datasets", headers={"Host": "datasets.example"}).status == 421
        token = {"Authorization": f"Bearer {token_of(tmp_path / 'root')}"}
        until(lambda: server.ask("GET", "/datasets").status == 401)
        assert server.ask("GET", "/datasets", headers=token).status == 200
        assert server.ask("POST", "/datasets", b"{no JSON", token).status == 403


@pytest.mark.parametrize("length", [b"Content-Length: 100000000000\r\n", b"Transfer-Encoding: chunked\r\n"])
@pytest.mark.parametrize("path", [b"/datasets/x", b"/nothing"])
def test_a_refused_body_is_not_read_to_its_end(closed: ServerInThread, path: bytes, length: bytes) -> None:
    block = b"x" * (1 << 20)
    part = b"100000\r\n" + block + b"\r\n" if b"chunked" in length else block
    with socket.create_connection((closed.host, closed.port), timeout=60) as opened:
        opened.sendall(b"PUT " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + length + b"\r\n")
        assert opened.recv(4096).startswith(b"HTTP/1.1 401 ")  # before any of the body
        sent = 0
        with suppress(OSError):
            while sent < 1 << 30:
                opened.sendall(part)
                sent += len(part)
        assert sent < 64 << 20  # slightly more than the systems buffer


def test_the_addresses_that_clients_claim_are_believed_of_named_proxies_only(tmp_path: Path) -> None:
    claim = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    for number, options in enumerate(([], ["--proxy", "127.0.0.0/8"])):
        with Server(tmp_path / f"{number}", *options) as server:
            assert server.ask("GET", "/datasets", headers=claim).status == 200
        lines = [line for line in server.log.read_text().splitlines() if "GET /datasets" in line]
        assert ["203.0.113.9" in line for line in lines] == [bool(options)]
