"""The client of dataset services: addresses, retries, and which hosts get its token."""

import hashlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import MappingProxyType

import pytest

from imagestrata import hub
from tests.support.certificates import Authority
from tests.support.dataset_files import read
from tests.support.dataset_servers import tar_of


@pytest.mark.parametrize("url", ["host:8080", "ftp://host", "http://", "http://me:secret@host", "http://h:99999", 7])
def test_invalid_addresses_and_tokens_are_refused(url: str) -> None:
    with pytest.raises(hub.OptionError, match="Wanted the address of a service") as told:
        hub.connect(url)
    assert "secret" not in str(told.value)
    with pytest.raises(hub.OptionError, match="Wanted a token") as told:
        hub.connect("http://host", "sec\nret")
    assert "sec" not in str(told.value).partition("Found")[2].replace("second", "")


def test_a_service_that_does_not_answer_is_reported_after_retries() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    service = hub.connect(f"http://127.0.0.1:{port}", patience=0.3)
    with pytest.raises(hub.UnreachableError, match=f"Wanted a response from http://127.0.0.1:{port}. Found: .*refused"):
        service.list()


class Elsewhere(BaseHTTPRequestHandler):
    """A service that redirects downloads to another server of the same class."""

    data = tar_of({"a": b"1" * 5000})
    odd: Mapping[str, object] = MappingProxyType({})
    has_ranges = True
    other = ""
    asked: list[tuple[str, dict[str, str]]]

    def do_GET(self) -> None:
        self.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        if self.path.startswith("/base/datasets/far/card"):
            version = {"version": 1, "kind": "folder", "filename": "far.tar", "bytes": len(self.data), "files": 1}
            version |= {"sha256": hashlib.sha256(self.data).hexdigest(), "created": "now", **self.odd}
            self.answer(200, json.dumps({"versions": [version], "newest": version, "card": {}}).encode())
        elif self.path.startswith("/base/"):
            self.answer(307, b"", Location=f"{self.other}/bucket/key?X-Signature=1")
        else:
            start = int(self.headers.get("Range", "bytes=0-")[6:-1]) if self.has_ranges else 0
            told = {"Content-Range": f"bytes {start}-{len(self.data) - 1}/{len(self.data)}"} if start else {}
            self.answer(206 if start else 200, self.data[start : start + 4000], length=len(self.data) - start, **told)

    def answer(self, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Do not log."""


@contextmanager
def served(authority: Authority | None = None, **attributes: object) -> Iterator[tuple[str, type[Elsewhere]]]:
    """Run a service; yields its address and its handler."""
    handler = type("Handler", (Elsewhere,), {"asked": [], **attributes})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        if authority is not None:
            tls = authority.server(authority.issue("service"))
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        url = f"{'http' if authority is None else 'https'}://127.0.0.1:{server.server_port}"
        handler.other = handler.other or url
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"{url}/base", handler
        finally:
            server.shutdown()


def test_no_token_is_sent_to_another_host_on_redirect(tmp_path: Path) -> None:
    with served() as (other, there), served(other=other.removesuffix("/base")) as (url, here):
        assert read(hub.connect(url, "secret-token").pull("far", tmp_path / "to")) == {"a": b"1" * 5000}
    assert all(headers["authorization"] == "Bearer secret-token" for _, headers in here.asked)
    assert len(there.asked) >= 3  # it sends 4,000 bytes and closes the connection
    assert all({"authorization", "if-range"}.isdisjoint(headers) for _, headers in there.asked)
    assert there.asked[1][1]["range"] == "bytes=4000-"


def test_a_redirect_on_the_same_host_keeps_the_token_and_not_the_tag(tmp_path: Path) -> None:
    with served() as (url, here):
        assert read(hub.connect(url, "secret-token").pull("far", tmp_path / "to")) == {"a": b"1" * 5000}
    assert all(headers["authorization"] == "Bearer secret-token" for _, headers in here.asked)
    moved = [headers for path, headers in here.asked if path.startswith("/bucket/")]
    assert [headers.get("range") for headers in moved] == [None, "bytes=4000-", "bytes=8000-"]
    assert not any("if-range" in headers for headers in moved)


def test_a_pull_that_begins_anew_each_time_ends(tmp_path: Path) -> None:
    with (
        served(has_ranges=False) as (url, _),
        pytest.raises(hub.UnreachableError, match=r"connection was lost.*, [0-9]+ times"),
    ):
        hub.connect(url, patience=0.5).pull("far", tmp_path)


def test_only_certificates_of_known_authorities_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path / "ca")
    with served(authority) as (url, _):
        service = hub.connect(url, patience=0.5)
        monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
        with pytest.raises(hub.AccessError, match=r"Wanted a trusted certificate of 127\.0\.0\.1"):
            service.pull("far", tmp_path / "to")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none"))
        with pytest.raises(hub.OptionError, match=r"Wanted certificates in .*none"):
            service.pull("far", tmp_path / "to")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.ca))
        assert read(service.pull("far", tmp_path / "to")) == {"a": b"1" * 5000}


@pytest.mark.parametrize(
    "odd",
    [
        *({"filename": name} for name in ("..", "../x", "/x", None, ["x"])),
        *({key: value} for key in ("version", "bytes", "files") for value in (-1, "1", "1/../..", 1.5, [1], None)),
        *({"sha256": value} for value in ("../x", "A" * 64, None)),
        {"kind": "../x"},
    ],
)
def test_a_version_that_makes_no_sense_is_refused(tmp_path: Path, odd: dict[str, object]) -> None:
    wanted = r"Wanted a version of 'far' with its number, size, file's name"
    with served(odd=odd) as (url, _), pytest.raises(hub.DatasetError, match=wanted):
        hub.connect(url).pull("far", tmp_path / "to")
