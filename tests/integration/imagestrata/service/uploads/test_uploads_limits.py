"""Limits on uploads: unfinished ones, the quota and the disk are reserved as soon as a size is known."""

import json
import socket
from pathlib import Path

import pytest

from formats.stores.storage import Storage
from imagestrata.service.uploads import uploads
from tests.support.dataset_servers import ServerInThread, token_of
from tests.support.waiting import until


def begin(server: ServerInThread, length: int, **headers: str) -> tuple[int, str]:
    """Begin an upload of this many bytes; return the status and its address."""
    answer = server.begin("x", length, **headers)
    return answer.status, answer.headers.get("location", "")


def test_begun_uploads_cannot_promise_more_than_the_quota(tmp_path: Path) -> None:
    with ServerInThread(tmp_path / "root", quota=10_000) as server:
        server.create("x")
        assert begin(server, 10_001)[0] == 413
        begun = [begin(server, 4000) for _ in range(3)]
        assert [status for status, _ in begun] == [201, 201, 507]
        assert server.put("x", bytes(2001)).status == 507
        assert server.put("x", bytes(2000)).status == 200
        place = begun[0][1]
        assert server.append(place, 0, bytes(4000)).status == 204
        assert begin(server, 1)[0] == 507
        assert server.look(begun[1][1], "DELETE").status == 204
        assert begin(server, 4000)[0] == 201


def test_the_length_of_a_body_counts_as_soon_as_its_headers_are_there(tmp_path: Path) -> None:
    with ServerInThread(tmp_path / "root", quota=10_000) as server:
        server.create("x")
        with socket.create_connection((server.host, server.port), timeout=60) as first:
            first.sendall(b"PUT /datasets/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000\r\n\r\n")
            until(lambda: [*(tmp_path / "root" / "incoming").iterdir()] != [])
            assert begin(server, 2000)[0] == 507
        until(lambda: begin(server, 2000)[0] == 201)


def test_unfinished_uploads_are_limited_by_token_and_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_OF_TOKEN", 2)
    monkeypatch.setattr(uploads, "MOST_BEGUN", 3)
    first, second = (f"Bearer {token_of(tmp_path / 'root', 'write', name=name)}" for name in ("a", "b"))
    with ServerInThread(tmp_path / "root") as server:
        new = {"Content-Type": "application/json", "Authorization": first}
        assert server.ask("POST", "/datasets", json.dumps({"name": "x"}).encode(), new).status == 201
        begun = [begin(server, 9, Authorization=first) for _ in range(3)]
        assert [status for status, _ in begun] == [201, 201, 429]
        assert [begin(server, 9, Authorization=second)[0] for _ in range(2)] == [201, 429]
        place = begun[0][1]
        assert server.append(place, 0, bytes(9), Authorization=first).status == 204
        assert [begin(server, 9, Authorization=second)[0] for _ in range(2)] == [201, 429]
    with ServerInThread(tmp_path / "root") as server:  # it counts existing uploads when it starts
        assert begin(server, 9, Authorization=second)[0] == 429


def test_a_body_counts_once_while_it_is_published(tmp_path: Path, bucket: Storage | None) -> None:
    with ServerInThread(tmp_path / "root", bucket=bucket, quota=3_000_000) as server:
        server.create("x")
        seen = set()
        for number in range(3):
            assert server.put("x", bytes([number]) * 1_000_000).status == 200
            health = server.ask("GET", "/health").json
            seen.add((health["used"] + health["arriving"]) // (number + 1))
        assert seen == {1_000_000}
        assert server.put("x", b"1").status == 507
