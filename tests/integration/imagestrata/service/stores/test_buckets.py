"""The dataset service over a bucket: what it stores there, and downloads directly from it."""

import hashlib
import http.client
import io
import json
import os
import tracemalloc
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from formats.origin import created
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from imagestrata.service.commands import main
from imagestrata.service.conditions import Conditions
from imagestrata.service.stores.buckets import BucketStore
from imagestrata.service.stores.staging import DATA as BODY
from schemas.datasets import DatasetVersion
from tests.support.begun_uploads import begun
from tests.support.dataset_servers import TAR, Server, ServerInThread, tar_of

DATA = os.urandom(100_000)


def environment(s3: S3) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}
    return {**os.environ, **keys, "AWS_ENDPOINT_URL": s3.endpoint, "AWS_REGION": "us-east-1"}


@pytest.fixture
def server(storage: Storage, tmp_path: Path) -> Iterator[ServerInThread]:
    with ServerInThread(tmp_path / "spool", bucket=storage) as server:
        yield server


def follow(address: str, headers: Mapping[str, str] | None = None) -> tuple[int, bytes, dict[str, str]]:
    """Follow a redirect and download."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}", headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def test_a_file_is_downloaded_straight_from_the_bucket(server: ServerInThread, storage: Storage) -> None:
    server.create("x")
    put = server.put("x", DATA, filename="my file.bin")
    assert (put.status, put.json["version"]) == (200, 1)
    got = server.ask("GET", "/datasets/x")
    assert (got.status, got.body) == (307, b"")
    status, body, headers = follow(got.headers["location"])
    assert (status, body) == (200, DATA)
    assert headers["content-disposition"] == 'attachment; filename="my file.bin"'
    assert follow(got.headers["location"], {"Range": "bytes=5-9"})[:2] == (206, DATA[5:10])
    assert server.ask("GET", "/datasets/x", headers={"If-None-Match": put.headers["etag"]}).status == 304
    assert sorted(name for name, _ in storage.walk()) == [
        f"datasets/x/content/{hashlib.sha256(DATA).hexdigest()}",
        "datasets/x/versions/1.json",
        "names/x",
    ]
    assert list((server.root / "incoming").iterdir()) == []


def test_the_headers_of_a_file_are_served_without_the_bucket(server: ServerInThread) -> None:
    server.create("x")
    put = server.put("x", DATA, filename="a.bin")
    for path in ("/datasets/x", "/datasets/x/files/a.bin"):
        head = server.ask("HEAD", path)
        assert (head.status, head.body) == (200, b"")
        assert {name: head.headers[name] for name in ("content-length", "etag", "accept-ranges")} == {
            "content-length": str(len(DATA)),
            "etag": put.headers["etag"],
            "accept-ranges": "bytes",
        }
        unchanged = server.ask("HEAD", path, headers={"If-None-Match": put.headers["etag"]})
        assert (unchanged.status, unchanged.headers["etag"]) == (304, put.headers["etag"])
        assert server.ask("GET", path).status == 307


def test_files_of_a_folder_and_zips_are_served_by_the_service(server: ServerInThread) -> None:
    files = {f"train/{label}/{number}.png": os.urandom(3000) for label in ("cat", "dog") for number in range(3)}
    body = tar_of(files)
    server.create("x")
    assert server.put("x", body, kind=TAR).json["files"] == 6
    got = server.ask("GET", "/datasets/x/files/train/dog/2.png", headers={"Range": "bytes=-10"})
    assert (got.status, got.body) == (206, files["train/dog/2.png"][-10:])
    with zipfile.ZipFile(
        io.BytesIO(server.ask("GET", "/datasets/x", headers={"Accept": "application/zip"}).body)
    ) as got_zip:
        assert {name: got_zip.read(name) for name in got_zip.namelist()} == files
    assert follow(server.ask("GET", "/datasets/x").headers["location"])[1] == body
    assert server.ask("GET", "/datasets/x/card").json["images"] == 6


def test_deleting_a_version_removes_bytes_no_other_version_shares(server: ServerInThread, storage: Storage) -> None:
    server.create("x")
    assert [server.put("x", body).json["version"] for body in (b"one", b"two", b"one")] == [1, 2, 3]
    assert server.ask("DELETE", "/datasets/x?version=1").status == 204
    assert follow(server.ask("GET", "/datasets/x").headers["location"])[1] == b"one"
    assert server.ask("DELETE", "/datasets/x?version=3").status == 204
    assert len(storage.names("datasets/x/content")) == 1
    assert server.put("x", b"four").json["version"] == 4
    assert server.ask("DELETE", "/datasets/x").status == 204
    assert server.ask("GET", "/datasets").json["datasets"] == []
    assert list(storage.walk()) == []


def test_a_restored_version_shares_its_bytes_and_descriptions_outlive_a_restart(
    server: ServerInThread, storage: Storage
) -> None:
    server.create("x")
    assert [server.put("x", body).json["version"] for body in (DATA, b"two")] == [1, 2]
    assert server.ask("POST", "/datasets/x/restore?version=1").json["version"] == 3
    told = {"Content-Type": "application/json"}
    for text in ("", "About x"):
        body = json.dumps({"description": text}).encode()
        assert server.ask("PUT", "/datasets/x/description", body, told).status == 200
    assert server.ask("DELETE", "/datasets/x?version=1").status == 204
    assert follow(server.ask("GET", "/datasets/x").headers["location"])[1] == DATA
    small = server.ask("GET", "/datasets/x", headers={"Range": "bytes=5-9"})
    assert (small.status, small.body) == (206, DATA[5:10])  # not redirected, so that the page can read it
    assert len(storage.names("datasets/x/content")) == 2
    server.__exit__(None, None, None)
    with server:
        assert server.ask("GET", "/health").json["used"] == len(DATA) + 3
        assert server.ask("GET", "/datasets/x/card").json["description"] == "About x"
        assert server.ask("DELETE", "/datasets/x").status == 204
        assert list(storage.walk()) == []


def test_contents_left_by_a_killed_server_are_removed_at_startup(s3: S3, storage: Storage, tmp_path: Path) -> None:
    storage.write_bytes("names/x", b"{}")
    storage.write_bytes("datasets/x/content/0000", b"sent, and of no version")
    storage.write_bytes("datasets/gone/versions/1.json", b"of a dataset that was deleted")
    storage.write_bytes("datasets/gone/content/1111", b"bytes")
    with Server(tmp_path / "spool", bucket=storage.address, environment=environment(s3)) as server:
        assert [one["name"] for one in server.ask("GET", "/datasets").json["datasets"]] == ["x"]
        assert [name for name, _ in storage.walk()] == ["names/x"]
        assert server.put("x", b"new").status == 200
        server.kill()
    with ServerInThread(tmp_path / "spool", bucket=storage) as next_one:
        assert next_one.ask("GET", "/datasets/x").status == 307


def test_parts_left_by_a_killed_server_are_removed_at_startup(
    s3: S3, storage: Storage, keyspace: str, tmp_path: Path
) -> None:
    elsewhere = Storage(f"s3://{keyspace}/all2", S3Access(s3.endpoint, s3.access_key, s3.secret_key))
    for place in (storage, storage, elsewhere):
        key = place.key("datasets/x/content/0000")
        upload = place.ask("create_multipart_upload", Key=key)["UploadId"]
        place.ask("upload_part", Key=key, UploadId=upload, PartNumber=1, Body=DATA)
    assert [len(begun(place)) for place in (storage, elsewhere)] == [2, 1]
    with ServerInThread(tmp_path / "spool", bucket=storage) as server:
        assert begun(storage) == []
        server.create("x")
        assert server.put("x", DATA).status == 200
    assert begun(elsewhere) == ["all2/datasets/x/content/0000"]
    assert (elsewhere.abandon("datasets"), elsewhere.abandon("datasets")) == (1, 0)


def test_multipart_uploads_are_aborted_page_by_page(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = storage.ask
    for number in range(5):
        ask("create_multipart_upload", Key=storage.key(f"datasets/x/content/{number // 2}"))

    def in_small_pages(method: str, **named: Any) -> dict[str, Any]:
        return ask(method, **named, **({"MaxUploads": 2} if method == "list_multipart_uploads" else {}))

    monkeypatch.setattr(storage, "ask", in_small_pages)
    assert (storage.abandon("datasets"), storage.abandon("datasets")) == (5, 0)


def test_a_body_is_streamed_without_being_held_in_memory(storage: Storage, tmp_path: Path) -> None:
    store = BucketStore(storage, spool=tmp_path)
    try:
        store.create("x")
        body = os.urandom(1_000_003) * 50  # in parts and blocks, of which the last are short
        sha256 = hashlib.sha256(body).hexdigest()
        staged = store.staging.new()
        (staged / BODY).write_bytes(body)
        version = DatasetVersion(
            number=1,
            kind="file",
            filename="a.bin",
            bytes=len(body),
            sha256=sha256,
            files=1,
            created=created(),
            by=None,
            card={},
            code_version="1",
        )
        tracemalloc.start()
        try:
            store.publish("x", staged, version, Conditions())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert storage.read_bytes(f"datasets/x/content/{sha256}") == body
        assert peak < 10_000_000
    finally:
        store.close()


def test_a_missing_bucket_and_wrong_keys_are_reported_in_one_line(
    s3: S3, keyspace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.make_bucket(keyspace)
    for name, value in environment(s3).items():
        monkeypatch.setenv(name, value)
    spool = str(tmp_path / "spool")
    assert main(["serve", "--root", "s3://nosuchbucket/x", "--spool", spool, "--port", "0"]) == 1
    assert "no bucket 'nosuchbucket'" in capsys.readouterr().err
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert main(["serve", "--root", f"s3://{keyspace}/x", "--spool", spool, "--port", "0"]) == 1
    assert "the keys are rejected" in capsys.readouterr().err
