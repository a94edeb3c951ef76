"""Requests to presigned URLs: refusals, and trusted certificates."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from formats.errors import RefusedError, StorageError
from formats.retries import Retries
from formats.stores.http import Requests
from tests.support.certificates import Authority


@contextmanager
def store(status: int, body: bytes, tls: ssl.SSLContext | None = None, *, ending: int = 0) -> Iterator[str]:
    """The address of a server that gives every request the same answer, but ends the first ones too early."""
    early = iter(range(ending))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if next(early, None) is None else body[:-2])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "Unauthorized", RefusedError),
        (403, "AccessDenied", RefusedError),
        (404, "NoSuchBucket", RefusedError),
        (404, "NoSuchKey", FileNotFoundError),
        (400, "RequestTimeout", StorageError),
    ],
)
def test_refusals_missing_objects_and_failures_raise_different_errors(
    status: int, code: str, kind: type[OSError]
) -> None:
    with store(status, f"<Error><Code>{code}</Code></Error>".encode()) as address, pytest.raises(kind) as found:
        Requests().read_into(f"{address}/a", 0, memoryview(bytearray(3)), place="s3://b/a")
    assert type(found.value) is kind
    assert str(found.value).startswith("Wanted s3://b/a. Found: ")
    assert code in str(found.value)


def test_an_answer_that_ends_early_is_not_the_end_of_the_object() -> None:
    data = bytearray(5)
    with store(206, b"abc", ending=3) as address:
        assert Requests().read_into(f"{address}/a", 0, memoryview(data), place="s3://b/a") == 3
        assert data[:3] == b"abc"
    with store(206, b"abc", ending=9) as address, pytest.raises(StorageError, match="IncompleteRead"):
        Requests(Retries(2)).read_into(f"{address}/a", 0, memoryview(data), place="s3://b/a")


def test_certificate_authorities_are_taken_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, data = Authority(tmp_path / "ca"), bytearray(3)
    with store(200, b"abc", authority.server(authority.issue("store"))) as address:

        def read() -> int:
            return Requests().read_into(f"{address}/a", 0, memoryview(data), place="s3://b/a")

        names = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
        for name in names:
            monkeypatch.delenv(name, raising=False)
        for name in names:
            with pytest.raises(StorageError, match=r"Wanted s3://b/a\. Found: no answer \(SSLCertVerificationError"):
                read()
            with monkeypatch.context() as inside:
                inside.setenv(name, str(authority.ca))
                assert (read(), bytes(data)) == (3, b"abc")
