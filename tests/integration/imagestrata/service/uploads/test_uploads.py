"""Resumable uploads to a real dataset service: tus 1.0.0 as specified, and a public client."""

import hashlib
import os
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from tusclient.client import TusClient
from tusclient.exceptions import TusUploadFailed
from tusclient.uploader import Uploader

from imagestrata.service.uploads import states
from tests.support.dataset_proxies import Proxy
from tests.support.dataset_servers import CHUNK, TAR, Server, ServerInThread, tar_of
from tests.support.waiting import until

DATA = bytes(range(256)) * 40


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def metadata(**pairs: str) -> str:
    return ",".join(f"{key} {base64(value.encode())}" for key, value in pairs.items())


# What the protocol requires


def test_options_tell_what_is_offered(server: Server, name: str, tmp_path: Path) -> None:
    for path in (f"/datasets/{name}/uploads", f"/dataset/{name}/uploads/{'0' * 32}"):
        answer = server.ask("OPTIONS", path)
        assert answer.status == 204
        assert answer.headers["tus-version"] == answer.headers["tus-resumable"] == "1.0.0"
        assert answer.headers["tus-extension"] == "creation,checksum,expiration,termination"
        assert answer.headers["tus-checksum-algorithm"] == "sha256,sha1"
        assert "tus-max-size" not in answer.headers
    for limits, largest in (({"most": 9, "quota": 5}, 5), ({"most": 9}, 9), ({"quota": 5}, 5)):
        with ServerInThread(tmp_path / "root", **limits) as limited:
            assert limited.ask("OPTIONS", "/datasets/x/uploads").headers["tus-max-size"] == str(largest)
    with ServerInThread(tmp_path / "root", quota=5) as limited:
        limited.create("x")
        assert limited.begin("x", 6).status == 413


@pytest.mark.parametrize("version", [None, "0.2.2", "2.0.0"])
def test_other_versions_of_the_protocol_are_refused(server: Server, name: str, version: str | None) -> None:
    place = server.begin(name, 3).headers["location"]
    tus = {} if version is None else {"Tus-Resumable": version}
    patch = {"Upload-Offset": "0", "Content-Type": CHUNK}
    for method, path, more in (
        ("POST", f"/datasets/{name}/uploads", {"Upload-Length": "3"}),
        ("HEAD", place, {}),
        ("PATCH", place, patch),
        ("DELETE", place, {}),
    ):
        refused = server.ask(method, path, b"abc" if method == "PATCH" else None, {**tus, **more})
        assert (refused.status, refused.headers["tus-version"]) == (412, "1.0.0")
        assert refused.headers["tus-resumable"] == "1.0.0"
    assert server.look(place).headers["upload-offset"] == "0"


def test_an_upload_is_created_resumed_and_published(server: Server, name: str) -> None:
    told = metadata(filename="größe 1.csv", filetype="text/csv", other="x") + ",flag"
    begun = server.begin(name, 6, Upload_Metadata=told)
    assert (begun.status, begun.headers["upload-offset"]) == (201, "0")
    place = begun.headers["location"]
    in_days = (parsedate_to_datetime(begun.headers["upload-expires"]).timestamp() - time.time()) / 86_400
    assert 6.9 < in_days < 7.1
    part = server.append(place, 0, b"abc")
    assert (part.status, part.headers["upload-offset"], part.body) == (204, "3", b"")
    assert "upload-expires" in part.headers
    head = server.look(place)
    assert (head.status, head.headers["upload-offset"], head.headers["upload-length"]) == (200, "3", "6")
    assert (head.headers["cache-control"], head.headers["upload-metadata"]) == ("no-store", told)
    conflict = server.append(place, 2, b"cdef")
    assert (conflict.status, conflict.headers["upload-offset"]) == (409, "3")
    assert server.append(place, 3, b"def", Content_Type="application/octet-stream").status == 415
    assert server.append(place, 3, b"defg").status == 413
    offset = int(server.look(place).headers["upload-offset"])
    last = server.append(place, offset, b"abcdef"[offset:])
    digest = hashlib.sha256(b"abcdef").hexdigest()
    assert (last.status, last.headers["upload-offset"], last.headers["dataset-version"]) == (204, "6", "1")
    assert last.headers["etag"] == f'"{digest}"'
    for answer in (server.look(place), server.append(place, 6, b"")):  # for a client that lost the last answer
        assert answer.status in (200, 204)
        assert (answer.headers["upload-offset"], answer.headers["dataset-version"]) == ("6", "1")
    assert server.append(place, 6, b"g").status == 413
    newest = server.ask("GET", f"/datasets/{name}/card").json["newest"]
    assert (newest["filename"], newest["kind"], newest["sha256"]) == ("größe 1.csv", "file", digest)
    assert server.look(place, "DELETE").status == 204
    assert server.look(place).status == 404
    assert server.ask("GET", f"/datasets/{name}").body == b"abcdef"
    assert not (server.root / "incoming" / place.rpartition("/")[2]).exists()


def test_a_finished_upload_names_its_own_version_when_a_later_one_has_the_same_bytes(server: Server, name: str) -> None:
    places = []
    for number, data in enumerate((b"abc", b"def", b"abc"), 1):
        places.append(server.begin(name, 3).headers["location"])
        assert server.append(places[-1], 0, data).headers["dataset-version"] == str(number)
    assert [server.look(place).headers["dataset-version"] for place in places] == ["1", "2", "3"]


@pytest.mark.parametrize("by", ["metadata", "header"])
def test_a_folder_is_an_upload_of_a_tar(server: Server, name: str, by: str) -> None:
    body = tar_of({"a/1.png": DATA, "b/2.png": DATA[::-1]})
    sha256 = hashlib.sha256(body).hexdigest()
    told = {"Upload_Metadata": metadata(filename="x.tar", filetype=TAR, sha256=sha256)}
    place = server.begin(name, len(body), **(told if by == "metadata" else {"Content_Type": TAR})).headers["location"]
    assert server.append(place, 0, body).headers["dataset-version"] == "1"
    newest = server.ask("GET", f"/datasets/{name}/card").json["newest"]
    assert (newest["kind"], newest["files"], newest["filename"]) == ("folder", 2, f"{name}.tar")


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({"Upload_Length": "0"}, 400, "at least one"),
        ({"Upload_Length": "-1"}, 422, "a number of bytes"),
        ({"Upload_Defer_Length": "1"}, 400, "Set Upload-Length to the length"),
        ({"Upload_Concat": "partial"}, 400, "in one piece"),
        ({"Upload_Metadata": "filename %%"}, 422, "Upload-Metadata"),
        ({"Upload_Metadata": "filename YQ"}, 422, "filename of Upload-Metadata in Base64"),
        ({"Upload_Metadata": "filename YQ==,filename Yg=="}, 422, "each key once"),
        ({"Upload_Metadata": metadata(filename="../x")}, 422, "name of a file in Upload-Metadata"),
        ({"Upload_Metadata": metadata(sha256="12")}, 422, "64 hexadecimal digits"),
        ({"Content_Type": "multipart/form-data; boundary=x"}, 415, "Wanted the bytes of a file"),
    ],
)
def test_uploads_that_cannot_be_taken_are_refused_at_once(
    server: Server, name: str, headers: dict[str, str], status: int, words: str
) -> None:
    before = set((server.root / "incoming").iterdir())
    refused = server.begin(name, 5, **headers)
    assert (refused.status, words in refused.json["detail"]) == (status, True), refused.json
    assert refused.headers["tus-resumable"] == "1.0.0"
    assert set((server.root / "incoming").iterdir()) == before


def test_an_upload_without_a_length_is_refused(server: Server, name: str) -> None:
    tus = {"Tus-Resumable": "1.0.0"}
    assert server.ask("POST", f"/datasets/{name}/uploads", b"", tus).status == 411


@pytest.mark.parametrize("algorithm", ["sha256", "sha1"])
def test_bytes_with_another_checksum_are_discarded(server: Server, name: str, algorithm: str) -> None:
    place = server.begin(name, len(DATA)).headers["location"]
    data = server.root / "incoming" / place.rpartition("/")[2] / "data"

    def checksum(body: bytes) -> str:
        return f"{algorithm} {base64(hashlib.new(algorithm, body).digest())}"

    assert server.append(place, 0, DATA[:5000], Upload_Checksum=checksum(DATA[:5000])).status == 204
    for wrong in ("md5 AAAA", "sha256", f"{algorithm} AAAA", f"{algorithm} %%%"):
        assert server.append(place, 5000, DATA[5000:], Upload_Checksum=wrong).status == 400
    refused = server.append(place, 5000, DATA[5001:], Upload_Checksum=checksum(DATA[5000:]))
    assert (refused.status, refused.json["title"]) == (460, "The checksum does not match")
    assert server.look(place).headers["upload-offset"] == "5000"
    assert data.read_bytes() == DATA[:5000]
    for end in (9000, len(DATA)):
        start = int(server.look(place).headers["upload-offset"])
        last = server.append(place, start, DATA[start:end], Upload_Checksum=checksum(DATA[start:end]))
        assert last.status == 204
    assert last.headers["etag"] == f'"{hashlib.sha256(DATA).hexdigest()}"'
    assert server.ask("GET", f"/datasets/{name}").body == DATA


def test_bytes_that_break_off_before_their_checksum_are_discarded(server: Server, name: str) -> None:
    size = 6 << 20
    place = server.begin(name, size).headers["location"]
    folder = server.root / "incoming" / place.rpartition("/")[2]
    _send_half(server, place, size)
    until(lambda: (folder / "data").stat().st_size > 0, "bytes")
    assert server.look(place).headers["upload-offset"] == "0"  # the connection is still open
    _BROKEN.pop().close()
    until(lambda: (folder / "data").stat().st_size == 0, "the end of the connection")
    until(lambda: server.append(place, 0, bytes(size)).status == 204, "the end of the request")


_BROKEN: list[socket.socket] = []


def _send_half(server: Server, place: str, size: int) -> None:
    """Begin a request with a checksum, and leave it open."""
    connection = socket.create_connection((server.host, server.port))
    head = [
        f"PATCH {place} HTTP/1.1", "Host: 127.0.0.1", "Tus-Resumable: 1.0.0", "Upload-Offset: 0",
        f"Content-Type: {CHUNK}", f"Content-Length: {size}",
        f"Upload-Checksum: sha256 {base64(hashlib.sha256(bytes(size)).digest())}",
    ]  # fmt: skip
    connection.sendall("\r\n".join([*head, "", ""]).encode() + bytes(size // 6 * 5))
    _BROKEN.append(connection)


def test_unverified_bytes_do_not_count_after_a_kill(tmp_path: Path) -> None:
    size = 6 << 20
    with Server(tmp_path / "root") as server:
        server.create("x")
        place = server.begin("x", size).headers["location"]
        data = server.root / "incoming" / place.rpartition("/")[2] / "data"
        _send_half(server, place, size)
        until(lambda: data.stat().st_size > 0, "bytes")
        server.kill()
    _BROKEN.pop().close()
    assert data.stat().st_size > 0
    with Server(tmp_path / "root") as server:
        assert server.look(place).headers["upload-offset"] == "0"
        assert server.append(place, 0, b"1" * size).headers["dataset-version"] == "1"
        assert server.ask("GET", "/datasets/x").body == b"1" * size


def test_the_last_byte_counts_when_the_version_is_published(tmp_path: Path) -> None:
    with Server(tmp_path / "root") as server:
        server.create("x")
        place = server.begin("x", len(DATA)).headers["location"]
        checksum = f"sha256 {base64(hashlib.sha256(DATA[:5000]).digest())}"  # bytes that match it count at once
        assert server.append(place, 0, DATA[:5000], Upload_Checksum=checksum).status == 204
        assert server.look(place).headers["upload-offset"] == "5000"
        server.kill()
    data = tmp_path / "root" / "incoming" / place.rpartition("/")[2] / "data"
    data.write_bytes(DATA)  # as if it had been killed while it checked the whole
    with Server(tmp_path / "root") as server:
        assert server.look(place).headers["upload-offset"] == str(len(DATA) - 1)
        assert server.append(place, len(DATA) - 1, DATA[-1:]).headers["dataset-version"] == "1"
        assert server.ask("GET", "/datasets/x").body == DATA
        server.kill()
    with Server(tmp_path / "root") as server:
        assert server.look(place).headers["dataset-version"] == "1"
        assert server.ask("DELETE", "/datasets/x?version=1").status == 204
        assert server.look(place).status == 404


def test_a_post_may_stand_for_methods_that_a_client_has_not(server: Server, name: str) -> None:
    place = server.begin(name, 200_000).headers["location"]
    tus = {"Tus-Resumable": "1.0.0"}
    patch = {**tus, "X-HTTP-Method-Override": "PATCH", "Upload-Offset": "0", "Content-Type": CHUNK}
    assert server.ask("POST", place, bytes(100_000), patch).headers["upload-offset"] == "100000"
    assert server.ask("POST", place, None, {**tus, "X-HTTP-Method-Override": "DELETE"}).status == 204
    assert server.look(place).status == 404
    override = {"X-HTTP-Method-Override": "DELETE"}
    assert server.ask("GET", f"/datasets/{name}/card", None, override).status == 200
    assert server.ask("POST", f"/datasets/{name}", None, override).status == 405


@pytest.mark.parametrize("by", ["address", "metadata", "last part"])
def test_an_upload_with_another_digest_is_refused_and_removed(server: Server, name: str, by: str) -> None:
    query = f"?sha256={'0' * 64}" if by == "address" else ""
    told = {"Upload-Metadata": metadata(sha256="0" * 64)} if by == "metadata" else {}
    begun = {"Tus-Resumable": "1.0.0", "Upload-Length": "6", **told}
    place = server.ask("POST", f"/datasets/{name}/uploads{query}", b"", begun).headers["location"]
    assert server.append(place, 0, b"abc").status == 204
    last = {"Repr_Digest": f"sha-256=:{base64(bytes(32))}:"} if by == "last part" else {}
    refused = server.append(place, 3, b"def", **last)
    assert refused.status == 400
    assert hashlib.sha256(b"abcdef").hexdigest() in refused.json["detail"]
    assert server.look(place).status == 404
    assert server.ask("GET", f"/datasets/{name}").status == 404
    assert not (server.root / "incoming" / place.rpartition("/")[2]).exists()


def test_empty_and_damaged_tars_are_refused_with_the_last_byte(server: Server, name: str) -> None:
    for body, words in ((tar_of({}), "at least one file"), (b"no tar" * 999, "Wanted a tar")):
        place = server.begin(name, len(body), Upload_Metadata=metadata(filetype=TAR)).headers["location"]
        refused = server.append(place, 0, body)
        assert (refused.status, words in refused.json["detail"]) == (400, True)
        assert server.look(place).status == 404
    assert server.ask("GET", f"/datasets/{name}/card").json["newest"] is None


def test_an_upload_has_one_writer_at_a_time(server: Server, name: str) -> None:
    first_part, last_part, goes_on = bytes(5 << 20), b"the end", threading.Event()
    place = server.begin(name, len(first_part + last_part)).headers["location"]
    arrived = server.root / "incoming" / place.rpartition("/")[2] / "data"

    def slowly() -> Iterator[bytes]:
        yield first_part
        assert goes_on.wait(60)
        yield last_part

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.append, place, 0, slowly())
        until(lambda: arrived.stat().st_size > 0)
        assert server.append(place, 0, b"xyz").status == 409
        assert server.look(place, "DELETE").status == 409
        goes_on.set()
        assert first.result(60).headers["dataset-version"] == "1"
    assert server.ask("GET", f"/datasets/{name}").body == first_part + last_part


def test_uploads_belong_to_their_dataset(server: Server, name: str) -> None:
    place = server.begin(name, 3).headers["location"]
    server.create(f"{name[:60]}-other")
    others = place.replace(name, f"{name[:60]}-other")
    assert server.append(others, 0, b"abc").status == 404
    assert server.append(place, 0, b"abc").status == 204
    assert server.look(others).status == 404


def test_the_oldest_finished_uploads_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_MOST_FINISHED", 2)
    places = []
    for turn in range(2):
        with ServerInThread(tmp_path / "root") as server:
            if not turn:
                server.create("x")
            for number in range(2):
                places.append(server.begin("x", 1).headers["location"])
                assert server.append(places[-1], 0, str(2 * turn + number).encode()).status == 204
            assert [server.look(place).status for place in places] == [404, 404, 200, 200][-len(places) :]
    assert len(list((tmp_path / "root" / "finished").iterdir())) == 2


def test_abandoned_uploads_are_removed(tmp_path: Path) -> None:
    incoming = tmp_path / "root" / "incoming"
    with ServerInThread(tmp_path / "root") as server:
        for name in ("x", "y"):
            server.create(name)
        begun = [server.begin(name, 9) for name in "xxy"]
        assert server.append(begun[1].headers["location"], 0, b"abc").status == 204
        assert server.ask("GET", "/health").json["arriving"] == 3
        first, second, third = (incoming / one.headers["location"].rpartition("/")[2] for one in begun)
        week_ago = time.time() - 8 * 86_400
        os.utime(first / "data", (week_ago, week_ago))
        assert server.begin("y", 9).status == 201
        assert [path.exists() for path in (first, second, third)] == [False, True, True]
        assert server.ask("DELETE", "/datasets/x").status == 204
        assert [path.exists() for path in (second, third)] == [False, True]
        begins = incoming / "begins"  # as another request makes it
        begins.mkdir()
        (begins / "data").touch()
        (begins / "upload.json").touch()
        assert server.begin("y", 9).status == 201
        assert begins.exists()
        assert server.ask("GET", "/health").json["arriving"] == 0
    with ServerInThread(tmp_path / "root"):
        assert not begins.exists()
        assert third.exists()


# A public client


def uploader(server: Server, name: str, data: bytes, *, url: str | None = None, **options: Any) -> Uploader:
    """A client of tuspy, with chunks of 1,000 bytes."""
    client = TusClient(f"{server.url}/datasets/{name}/uploads")
    told = {"chunk_size": 1_000, "retry_delay": 0, **options}
    return client.uploader(file_stream=BytesIO(data), url=url, **told)


@pytest.mark.parametrize("upload_checksum", [False, True])
def test_a_public_client_uploads_in_chunks_and_resumes_by_url(server: Server, name: str, upload_checksum: bool) -> None:
    first = uploader(server, name, DATA, upload_checksum=upload_checksum, metadata={"filename": "a b.bin"})
    first.upload(stop_at=3_000)
    assert first.offset == 3_000
    second = uploader(server, name, DATA, url=first.url, upload_checksum=upload_checksum)
    assert second.offset == 3_000
    second.offset = 2_000  # a client that ignores the error
    with pytest.raises(TusUploadFailed) as refused:
        second.upload_chunk()
    assert refused.value.status_code == 409
    second.offset = second.get_offset()
    second.upload()
    assert second.request.response_headers["dataset-version"] == "1"
    assert server.ask("GET", f"/datasets/{name}").body == DATA
    assert server.ask("GET", f"/datasets/{name}/card").json["newest"]["filename"] == "a b.bin"


def test_a_public_client_sends_damaged_bytes_again(server: Server, name: str) -> None:
    data = os.urandom(1 << 20)
    with Proxy(server.port, way="up", limit=600_000, then="damage") as proxy:
        client = TusClient(f"{proxy.url}/datasets/{name}/uploads")
        options = {"chunk_size": 300_000, "upload_checksum": True, "retries": 1, "retry_delay": 0}
        client.uploader(file_stream=BytesIO(data), **options).upload()
        assert proxy.reached.is_set()
    assert server.ask("GET", f"/datasets/{name}").body == data
