"""Requests to signed addresses: what a store refuses is told as such."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from formats.errors import RefusedError, StorageError
from formats.http import Requests
from loader import AccessError, UnreachableError
from loader._s3_client import told


@contextmanager
def store(status: int, body: bytes) -> Iterator[ThreadingHTTPServer]:
    """A server that answers everything alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
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
def test_what_is_refused_is_told_from_what_is_not_there_or_fails(status: int, code: str, kind: type[OSError]) -> None:
    with store(status, f"<Error><Code>{code}</Code></Error>".encode()) as server, pytest.raises(kind) as found:
        Requests().read_into(f"http://127.0.0.1:{server.server_port}/a", 0, memoryview(bytearray(3)), place="s3://b/a")
    assert type(found.value) is kind
    assert str(found.value).startswith("Wanted s3://b/a. Found: ")
    assert code in str(found.value)


def test_the_class_of_an_error_says_who_is_refused_and_not_its_words() -> None:
    assert type(told(RefusedError("Found: 404"))) is AccessError
    assert type(told(StorageError("Wanted s3://refuses/no keys. Found: no bucket"))) is UnreachableError
