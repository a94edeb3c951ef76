"""The dataset service as its users know it: a real server, asked over HTTP."""

import gzip
import hashlib
import io
import json
import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import tarfile
import threading
import time
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from service.__main__ import main
from tests.support.dataset_servers import FILE, TAR, Server, ServerInThread, tar_of, until

DATA = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("service") / "root") as server:
        yield server


@pytest.fixture
def name(server: Server, request: pytest.FixtureRequest) -> str:
    """A new dataset of a test's own."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:90].strip("-")
    server.create(name)
    return name


def test_the_documented_curl_session_works_unchanged(server: Server, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("wants curl on PATH")
    (tmp_path / "my_file.csv").write_bytes(b"a,b\n1,2\n")
    session = """
    curl -X GET http://localhost:8080/datasets
    curl -X POST -H "Content-Type: application/json" -d '{"name": "my_dataset"}' http://localhost:8080/datasets
    curl -X PUT -H "Content-Type: application/octet-stream" --data-binary @my_file.csv http://localhost:8080/datasets/my_dataset
    curl http://localhost:8080/datasets/my_dataset
    curl http://localhost:8080/datasets
    """
    lines = [
        line.strip().replace("localhost:8080", f"localhost:{server.port}") for line in session.strip().splitlines()
    ]
    answers = []
    for line in lines:
        command = line.replace("curl", "curl -sS -i", 1)
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
        head, _, body = done.stdout.replace("\r\n", "\n").rpartition("\n\n")
        answers.append((head, body))
    assert answers[0][0].startswith("HTTP/1.1 200 OK")
    assert "datasets" in json.loads(answers[0][1])
    assert answers[1][0].startswith("HTTP/1.1 201 Created")
    assert "\nlocation: /dataset/my_dataset\n" in answers[1][0].lower() + "\n"
    assert answers[2][0].startswith("HTTP/1.1 200 OK")
    assert "\ncontent-type: application/octet-stream\n" in answers[3][0].lower() + "\n"
    assert 'filename="data"' in answers[3][0]
    assert answers[3][1] == "a,b\n1,2\n"
    listed = json.loads(answers[4][1])["datasets"]
    assert {"name": "my_dataset", "location": "/dataset/my_dataset"}.items() <= next(
        one for one in listed if one["name"] == "my_dataset"
    ).items()


def test_a_downloaded_file_keeps_its_name(server: Server, name: str) -> None:
    assert server.ask("GET", f"/datasets/{name}").status == 404
    answer = server.put(name, DATA, filename="my file.csv")
    digest = hashlib.sha256(DATA).hexdigest()
    assert answer.status == 200
    assert answer.json["sha256"] == digest
    assert (answer.json["version"], answer.json["kind"], answer.json["bytes"]) == (1, "file", len(DATA))
    for path in (f"/datasets/{name}", f"/dataset/{name}", f"/datasets/{name}/files/my%20file.csv"):
        got = server.ask("GET", path)
        assert (got.status, got.body) == (200, DATA)
        assert got.headers["content-disposition"] == 'attachment; filename="my file.csv"'
        assert got.headers["etag"] == f'"{digest}"'
        assert got.headers["content-type"] == FILE
        head = server.ask("HEAD", path)
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(DATA)))


@pytest.mark.parametrize("sent", ["my ü.bin", "日本.csv", "a;b.bin"])
def test_file_names_are_read_as_curl_and_browsers_send_them(server: Server, name: str, sent: str) -> None:
    for told in (f'attachment; filename="{sent}"'.encode(), f"attachment; filename*=UTF-8''{quote(sent)}".encode()):
        headers = {"Content-Type": FILE, "Content-Disposition": told.decode("latin-1")}
        assert server.ask("PUT", f"/datasets/{name}", told, headers).json["filename"] == sent
        back = server.ask("HEAD", f"/datasets/{name}").headers["content-disposition"]
        assert quote(sent, safe="") in back or f'filename="{sent}"' in back


def test_versions_are_kept_and_the_same_bytes_make_no_new_one(server: Server, name: str) -> None:
    for body in (b"one", b"two", b"two"):
        assert server.put(name, body).status == 200
    assert server.ask("GET", f"/datasets/{name}").body == b"two"
    assert server.ask("GET", f"/datasets/{name}?version=1").body == b"one"
    card = server.ask("GET", f"/datasets/{name}/card").json
    assert [one["version"] for one in card["versions"]] == [2, 1]
    assert server.ask("GET", f"/datasets/{name}?version=3").status == 404
    assert server.ask("DELETE", f"/datasets/{name}?version=2").status == 204
    assert server.ask("GET", f"/datasets/{name}").body == b"one"
    assert server.put(name, b"three").json["version"] == 3  # no number comes twice
    assert server.ask("DELETE", f"/datasets/{name}").status == 204
    assert server.ask("GET", f"/datasets/{name}").status == 404


def test_range_and_conditional_requests_are_answered(server: Server, name: str) -> None:
    tag = server.put(name, DATA).headers["etag"]
    path = f"/datasets/{name}"
    for asked, start, end in (("bytes=0-9", 0, 10), ("bytes=5-", 5, len(DATA)), ("bytes=-7", len(DATA) - 7, len(DATA))):
        got = server.ask("GET", path, headers={"Range": asked})
        assert (got.status, got.body) == (206, DATA[start:end])
        assert got.headers["content-range"] == f"bytes {start}-{end - 1}/{len(DATA)}"
    assert server.ask("GET", path, headers={"Range": f"bytes={len(DATA)}-"}).status == 416
    assert server.ask("GET", path, headers={"Range": "bytes=0-1,5-6"}).body == DATA
    assert server.ask("GET", path, headers={"Range": "bytes=0-9", "If-Range": '"other"'}).body == DATA
    assert server.ask("GET", path, headers={"If-None-Match": f'"x", {tag}'}).status == 304
    assert server.ask("GET", path, headers={"If-Match": '"x"'}).status == 412
    assert server.put(name, b"new", If_None_Match="*").status == 412
    assert server.put(name, b"new", If_Match='"x"').status == 412
    assert server.put(name, b"new", If_Match=tag).status == 200
    assert server.ask("DELETE", path, headers={"If-Match": tag}).status == 412


def test_a_folder_is_served_as_a_tar_a_zip_and_single_files(server: Server, name: str) -> None:
    files = {
        f"train/{label}/{number}.png": f"{label}{number}".encode() * 99
        for label in ("cat", "dög")
        for number in range(3)
    }
    body = tar_of({f"./{path}": data for path, data in files.items()})
    put = server.put(name, body, kind=TAR)
    assert (put.status, put.json["files"], put.json["kind"]) == (200, 6, "folder")
    path = f"/datasets/{name}"
    whole = server.ask("GET", path)
    assert (whole.body, whole.headers["content-type"]) == (body, TAR)
    assert f'filename="{name}.tar"' in whole.headers["content-disposition"]
    zipped = server.ask("GET", path, headers={"Accept": "application/zip"})
    assert f'filename="{name}.zip"' in zipped.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(zipped.body)) as archive:
        assert archive.testzip() is None
        assert {one: archive.read(one) for one in archive.namelist()} == files
    assert server.ask("GET", path, headers={"Accept": "image/png"}).status == 406
    head = server.ask("HEAD", path, headers={"Accept": "application/zip"})
    assert (head.status, head.headers["content-type"], head.body) == (200, "application/zip", b"")
    one = server.ask("GET", f"{path}/files/train/d%C3%B6g/1.png", headers={"Range": "bytes=3-6"})
    assert (one.status, one.body) == (206, files["train/dög/1.png"][3:7])
    assert one.headers["etag"] == f'"{hashlib.sha256(files["train/dög/1.png"]).hexdigest()}"'
    assert server.ask("GET", f"{path}/files/train/cat/9.png").status == 404
    first = server.ask("GET", f"{path}/files?limit=4").json
    rest = server.ask("GET", f"{path}/files?limit=4&cursor={first['next'].replace('ö', '%C3%B6')}").json
    assert [file["path"] for file in first["files"] + rest["files"]] == sorted(files)
    assert rest["next"] is None
    card = server.ask("GET", f"{path}/card").json
    assert (card["type"], card["images"], card["card"]["classes"]) == ("images", 6, {"cat": 3, "dög": 3})


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"not a tar", "Wanted a tar"),
        (b"", "Found: none"),
        (tar_of({"a/../../x": b"1"}), "stays in its folder"),
        (tar_of({"/x": b"1"}), "stays in its folder"),
        (tar_of({"a": b"1", "./a": b"2"}), "twice"),
        (tar_of({"a": b"1", "a/b": b"2"}), "as both"),
        (tar_of({}, kinds={"l": tarfile.SYMTYPE}), "a link"),
        (tar_of({}, kinds={"l": tarfile.LNKTYPE}), "a link"),
        (tar_of({}, kinds={"l": tarfile.CHRTYPE}), "a device"),
        (tar_of({"a": bytes(5000)})[:3000], "ends"),
        (tar_of({"a": b"1" * 600, "b": b"2"}).replace(b"b\0\0", b"c\0\0"), "damaged header"),
        (tar_of({"a": b"1", "b": b"2"})[:2048], "without the mark of its end"),
        (tar_of({"a": b"1"}) + tar_of({"b": b"2"}), "another tar?"),
        (tar_of({}, kinds={"l": tarfile.FIFOTYPE}), "a FIFO"),
        (gzip.compress(tar_of({"a": b"1"}), mtime=0), "gzip (send the tar itself"),
    ],
)
def test_bodies_that_are_not_tars_are_refused_and_leave_nothing(
    server: Server, name: str, body: bytes, found: str
) -> None:
    answer = server.put(name, body, kind=TAR)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert found in answer.json["detail"]
    assert answer.json["request_id"] == answer.headers["x-request-id"]
    assert server.ask("GET", f"/datasets/{name}/card").json["versions"] == []
    assert list((server.root / "incoming").iterdir()) == []


def test_a_zip_contains_small_and_large_files_whole(server: Server, name: str) -> None:
    sizes = [0, 1, 511, 700_000, 700_001, 3_000_000, 10, 1 << 20, 5]
    files = {f"{number}.bin": random.Random(number).randbytes(size) for number, size in enumerate(sizes)}
    assert server.put(name, tar_of(files), kind=TAR).status == 200
    got = server.ask("GET", f"/datasets/{name}", headers={"Accept": "application/zip"})
    with zipfile.ZipFile(io.BytesIO(got.body)) as archive:
        assert {one: archive.read(one) for one in archive.namelist()} == files


def test_compressed_and_sparse_tars_are_refused(server: Server, name: str) -> None:
    bomb = gzip.compress(tar_of({"zeros": bytes(50_000_000)}))
    answer = server.put(name, bomb, kind=TAR)
    assert (answer.status, answer.json["detail"][:13]) == (400, "Wanted a tar.")
    sparse = tarfile.TarInfo("holes")
    sparse.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 50)}
    sparse.size = 1024
    body = sparse.tobuf(tarfile.PAX_FORMAT) + b"1\n0\n512\n".ljust(512, b"\0") + bytes(512 + 1024)
    answer = server.put(name, body, kind=TAR)
    assert (answer.status, "a sparse file" in answer.json["detail"]) == (400, True)
    assert list((server.root / "incoming").iterdir()) == []


def test_a_tar_that_claims_to_be_huge_takes_no_memory(server: Server, name: str) -> None:
    member = tarfile.TarInfo("x")
    member.size, member.type = 1 << 40, tarfile.XHDTYPE
    assert "header" in server.put(name, member.tobuf() + bytes(4096), kind=TAR).json["detail"]


def test_global_headers_of_a_tar_take_no_memory(server: Server, name: str) -> None:
    def header(key: str) -> bytes:
        member = tarfile.TarInfo()
        return member.create_pax_global_header({key: "x" * 500_000})

    one_by_one = b"".join(header(f"key{number}") + tar_of({f"{number}": b"1"})[:1024] for number in range(40))
    at_once = b"".join(header(f"key{number}") for number in range(40)) + tar_of({"a": b"1"})
    for body in (one_by_one, at_once):
        answer = server.put(name, body + bytes(1024), kind=TAR)
        assert (answer.status, "header" in answer.json["detail"]) == (400, True)


def test_bodies_with_a_wrong_digest_type_or_name_are_refused(server: Server, name: str) -> None:
    digest = hashlib.sha256(DATA)
    told = f"sha-256=:{b64encode(digest.digest()).decode()}:"
    assert server.put(name, DATA + b"x", Repr_Digest=told).status == 400
    assert server.ask("PUT", f"/datasets/{name}?sha256={'0' * 64}", DATA).status == 400
    assert server.ask("GET", f"/datasets/{name}").status == 404
    assert server.put(name, DATA, Repr_Digest=told).status == 200
    assert server.ask("PUT", f"/datasets/{name}?sha256=12", DATA).status == 422
    assert server.put(name, DATA, kind="multipart/form-data; boundary=x").status == 415
    assert server.put(name, DATA, Content_Encoding="gzip").status == 415
    assert server.put(name, DATA, filename="../x").status == 422
    for header in (f"sha-256={digest.hexdigest()}", "sha-512=:AAAA:"):  # what is no RFC 9530, or another algorithm
        assert server.put(name, DATA, Repr_Digest=header).status == 422
    assert server.put(name, b"").status == 400
    assert server.ask("PUT", f"/datasets/{name}", iter(())).status == 400


def test_an_interrupted_body_leaves_nothing(server: Server, name: str) -> None:
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(
            f"PUT /datasets/{name} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\nabc".encode()
        )
    until(lambda: list((server.root / "incoming").iterdir()) == [])
    assert server.ask("GET", f"/datasets/{name}").status == 404


def test_concurrent_writers_of_one_name_each_get_a_version(server: Server, name: str) -> None:
    bodies = [bytes([number]) * 300_000 for number in range(8)]
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = list(pool.map(lambda body: server.put(name, body), bodies))
    assert [answer.status for answer in answers] == [200] * len(bodies)
    assert sorted(answer.json["version"] for answer in answers) == list(range(1, len(bodies) + 1))
    for body, answer in zip(bodies, answers, strict=True):
        assert server.ask("GET", f"/datasets/{name}?version={answer.json['version']}").body == body
    newest = max(answers, key=lambda answer: answer.json["version"])
    assert server.ask("HEAD", f"/datasets/{name}").headers["etag"] == newest.headers["etag"]


def test_one_of_several_first_writers_wins(server: Server, name: str) -> None:
    bodies = [bytes([number]) * 300_000 for number in range(6)]
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = list(pool.map(lambda body: server.put(name, body, If_None_Match="*"), bodies))
    assert sorted(answer.status for answer in answers) == [200, *[412] * 5]
    first = next(number for number, answer in enumerate(answers) if answer.status == 200)
    assert server.ask("GET", f"/datasets/{name}").body == bodies[first]
    assert list((server.root / "incoming").iterdir()) == []


@pytest.mark.parametrize("by", ["address", "last part"])
def test_an_upload_with_another_digest_is_refused_and_removed(server: Server, name: str, by: str) -> None:
    query = f"?sha256={'0' * 64}" if by == "address" else ""
    place = server.ask("POST", f"/datasets/{name}/uploads{query}", b"", {"Upload-Length": "6"}).headers["location"]
    assert server.ask("PATCH", place, b"abc", {"Upload-Offset": "0"}).status == 204
    told = {} if by == "address" else {"Repr-Digest": f"sha-256=:{b64encode(bytes(32)).decode()}:"}
    refused = server.ask("PATCH", place, b"def", {"Upload-Offset": "3", **told})
    assert refused.status == 400
    assert hashlib.sha256(b"abcdef").hexdigest() in refused.json["detail"]
    assert server.ask("HEAD", place).status == 404
    assert server.ask("GET", f"/datasets/{name}").status == 404
    assert list((server.root / "incoming").iterdir()) == []


def test_an_upload_has_one_writer_at_a_time(server: Server, name: str) -> None:
    first_part, last_part, goes_on = bytes(5 << 20), b"the end", threading.Event()
    length = str(len(first_part + last_part))
    place = server.ask("POST", f"/datasets/{name}/uploads", b"", {"Upload-Length": length}).headers["location"]
    arrived = server.root / "incoming" / place.rpartition("/")[2] / "data"

    def slowly() -> Iterator[bytes]:
        yield first_part
        assert goes_on.wait(60)
        yield last_part

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.ask, "PATCH", place, slowly(), {"Upload-Offset": "0"})
        until(lambda: arrived.stat().st_size > 0)
        assert server.ask("PATCH", place, b"xyz", {"Upload-Offset": "0"}).status == 409
        assert server.ask("DELETE", place).status == 409
        goes_on.set()
        assert first.result(60).status == 200
    assert server.ask("GET", f"/datasets/{name}").body == first_part + last_part


@pytest.mark.parametrize("wrong", ["..", "a" * 300, "a b", "naïve", "ｆｕｌｌ", "-x", "con", "x.", ".x", "a%00b"])
def test_invalid_names_are_refused(server: Server, wrong: str) -> None:
    body = json.dumps({"name": wrong}).encode()
    refused = server.ask("POST", "/datasets", body, {"Content-Type": "application/json"})
    assert (refused.status, refused.json["detail"].startswith("Wanted a dataset's name")) == (422, True)
    assert "send JSON with Content-Type" in server.ask("POST", "/datasets", body).json["detail"]


def test_missing_paths_and_wrong_methods_are_reported_as_problems(server: Server) -> None:
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("GET", "/datasets/nothing", 404),
        ("PUT", "/datasets/nothing", 404),
        ("POST", "/datasets/x", 405),
        ("GET", "/datasets?limit=0", 422),
    ):
        answer = server.ask(method, path, b"" if method == "PUT" else None)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), path
        assert answer.json["status"] == status
    allowed = {"/datasets/x": "DELETE, GET, HEAD, PUT", "/datasets/x/uploads": "POST", "/": "GET, HEAD"}
    for path, methods in allowed.items():
        assert server.ask("OPTIONS", path).headers["allow"] == methods


def test_a_request_for_another_host_does_not_reach_an_open_service(server: Server) -> None:
    assert server.ask("GET", "/datasets", headers={"Host": "evil.example"}).status == 421


def test_an_upload_resumes_after_the_server_is_killed(tmp_path: Path) -> None:
    body = tar_of({"a/1.png": DATA, "b/2.png": DATA[::-1]})
    with Server(tmp_path / "root") as server:
        server.create("x")
        headers = {"Content-Type": TAR, "Upload-Length": str(len(body))}
        begun = server.ask("POST", f"/datasets/x/uploads?sha256={hashlib.sha256(body).hexdigest()}", b"", headers)
        assert (begun.status, begun.headers["upload-offset"]) == (201, "0")
        place = begun.headers["location"]
        part = server.ask("PATCH", place, body[:5000], {"Upload-Offset": "0"})
        assert (part.status, part.headers["upload-offset"]) == (204, "5000")
        server.kill()
    with Server(tmp_path / "root") as server:
        head = server.ask("HEAD", place)
        assert (head.status, head.headers["upload-offset"], head.headers["upload-length"]) == (
            200,
            "5000",
            str(len(body)),
        )
        assert server.ask("PATCH", place, body[4000:], {"Upload-Offset": "4000"}).status == 409
        done = server.ask("PATCH", place, body[5000:], {"Upload-Offset": "5000"})
        assert (done.status, done.json["version"], done.json["files"]) == (200, 1, 2)
        assert server.ask("GET", "/datasets/x").body == body
        assert server.ask("HEAD", place).status == 404
        assert list((tmp_path / "root" / "incoming").iterdir()) == []


def test_incomplete_damaged_and_foreign_files_do_not_affect_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "root"
    with ServerInThread(root) as server:
        for name in ("one", "two"):
            server.create(name)
            assert [server.put(name, body).status for body in (b"1", b"2")] == [200, 200]
    (root / "datasets" / "half").mkdir()
    (root / "datasets" / ".DS_Store").write_bytes(b"x")
    (root / "datasets" / "one" / "versions" / ".hidden").write_bytes(b"x")
    (root / "datasets" / "two" / "versions" / "2" / "version.json").write_text("{}")
    with ServerInThread(root) as server:
        assert [one["name"] for one in server.ask("GET", "/datasets").json["datasets"]] == ["one", "two"]
        assert server.ask("GET", "/datasets/one").body == b"2"
        assert server.ask("GET", "/datasets/two").body == b"1"
        assert server.ask("GET", "/datasets/two?version=2").status == 404
        assert server.put("two", b"3").json["version"] == 3
        server.create("half")
        assert "version 2 of two is not shown" in caplog.text


def test_abandoned_uploads_are_removed(tmp_path: Path) -> None:
    incoming = tmp_path / "root" / "incoming"
    with ServerInThread(tmp_path / "root") as server:
        for name in ("x", "y"):
            server.create(name)
        begun = [server.ask("POST", f"/datasets/{name}/uploads", b"", {"Upload-Length": "9"}) for name in "xxy"]
        assert server.ask("PATCH", begun[1].headers["location"], b"abc", {"Upload-Offset": "0"}).status == 204
        assert server.ask("GET", "/health").json["arriving"] == 3
        first, second, third = (incoming / one.headers["location"].rpartition("/")[2] for one in begun)
        week_ago = time.time() - 8 * 86_400
        os.utime(first / "data", (week_ago, week_ago))
        assert server.ask("POST", "/datasets/y/uploads", b"", {"Upload-Length": "9"}).status == 201
        assert [path.exists() for path in (first, second, third)] == [False, True, True]
        assert server.ask("DELETE", "/datasets/x").status == 204
        assert [path.exists() for path in (second, third)] == [False, True]
        begins = incoming / "begins"  # as another request makes it
        begins.mkdir()
        (begins / "data").touch()
        (begins / "upload.json").touch()
        assert server.ask("POST", "/datasets/y/uploads", b"", {"Upload-Length": "9"}).status == 201
        assert begins.exists()
        assert server.ask("GET", "/health").json["arriving"] == 0
    with ServerInThread(tmp_path / "root"):
        assert not begins.exists()
        assert third.exists()


def test_a_token_allows_its_scope_until_it_is_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "root"
    root.mkdir()
    tokens = {}
    for scope in ("read", "write"):
        assert main(["token", "create", "--root", str(root), "--name", scope, "--scope", scope]) == 0
        tokens[scope] = capsys.readouterr().out.strip()
    assert (root / "tokens.json").stat().st_mode & 0o077 == 0
    assert not any(token in path.read_text() for token in tokens.values() for path in root.iterdir())
    assert main(["token", "create", "--root", str(root), "--name", "read"]) == 1
    with ServerInThread(root) as server:
        post = ("POST", "/datasets", json.dumps({"name": "x"}).encode())
        for token, status in (("", 401), ("wrong", 401), (tokens["read"], 403), (tokens["write"], 201)):
            headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
            answer = server.ask(*post, headers)
            assert answer.status == status
            assert ("www-authenticate" in answer.headers) == (status == 401)
        reads = {"Authorization": f"Bearer {tokens['read']}"}
        assert server.ask("GET", "/datasets", headers=reads).status == 200
        assert server.ask("GET", "/health").status == 200
        assert main(["token", "revoke", "--root", str(root), "--name", "read"]) == 0
        until(lambda: server.ask("GET", "/datasets", headers=reads).status == 401)


def test_a_folder_cannot_be_served_by_two_servers(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(server.root), "--port", "0"]) == 1
    assert "another one uses it" in capsys.readouterr().err


def test_pages_of_datasets_continue_where_the_last_one_ended(server: Server) -> None:
    for number in range(5):
        server.create(f"zz-{number}")
    found, cursor = [], "zz"
    while cursor is not None:
        page = server.ask("GET", f"/datasets?limit=2&cursor={cursor}").json
        found += [one["name"] for one in page["datasets"]]
        cursor = page["next"]
    assert found == [f"zz-{number}" for number in range(5)]


def test_limits_apply_to_one_body_and_to_all_versions(tmp_path: Path) -> None:
    with ServerInThread(tmp_path / "root", most=10_000, quota=20_000) as server:
        server.create("x")
        assert server.put("x", bytes(10_001)).status == 413
        assert server.ask("PUT", "/datasets/x", iter([bytes(6000), bytes(6000)])).status == 413
        assert [server.put("x", bytes([number]) * 8000).status for number in range(3)] == [200, 200, 507]
        assert server.ask("DELETE", "/datasets/x?version=1").status == 204
        assert server.put("x", b"3" * 8000).status == 200


def test_a_file_size_limit_is_reported_as_insufficient_storage(tmp_path: Path) -> None:
    with Server(tmp_path / "small", "--max-upload", "2m", "--quota", "3M", limit="ulimit -f 100") as server:
        server.create("x")
        assert server.put("x", bytes(2_000_001)).status == 413
        assert server.put("x", bytes(1_000_000)).status == 507
        assert server.put("x", bytes(10_000)).status == 200
        assert server.ask("GET", "/health").json["quota"] == 3_000_000
        assert list((tmp_path / "small" / "incoming").iterdir()) == []


def test_a_full_disk_refuses_large_uploads_and_keeps_serving(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    mount = f"mount -t tmpfs -o size=4m none {shlex.quote(str(root))}"
    if subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("wants the right to mount a tmpfs, as root has; a limit of files' sizes is tested everywhere")
    inside = shlex.quote(f'{mount} && exec "$@"')
    with Server(root, limit=f'exec unshare --mount sh -c {inside} sh "$@"') as server:
        seen = Path(f"/proc/{server.process.pid}/root{root}")
        server.create("x")
        assert server.put("x", bytes(1_000_000)).status == 200
        for kind in (FILE, TAR):
            parts = iter([bytes(1_000_000)] * 6)  # which do not say how many they are
            for body in (bytes(6_000_000), parts):
                answer = server.ask("PUT", "/datasets/x", body, {"Content-Type": kind})
                assert (answer.status, answer.json["title"]) == (507, "No room left")
        assert list((seen / "incoming").iterdir()) == []
        large = server.ask("POST", "/datasets/x/uploads", b"", {"Upload-Length": "6000000"}).headers["location"]
        assert server.ask("PATCH", large, bytes(1_000_000), {"Upload-Offset": "0"}).status == 507
        assert server.ask("HEAD", large).headers["upload-offset"] == "0"
        assert server.ask("DELETE", large).status == 204
        assert server.put("x", b"1" * 1_000_000).json["version"] == 2
        begun = server.ask("POST", "/datasets/x/uploads", b"", {"Upload-Length": "1000000"})
        filled = seen / "something else"
        with pytest.raises(OSError, match="No space"):
            filled.write_bytes(bytes(6_000_000))
        place = begun.headers["location"]
        assert server.ask("PATCH", place, bytes(1_000_000), {"Upload-Offset": "0"}).status == 507
        assert server.ask("DELETE", place).status == 204
        with pytest.raises(OSError, match="No space"), open(filled, "ab") as file:
            file.write(bytes(6_000_000))
        assert server.ask("POST", "/datasets/x/uploads", b"", {"Upload-Length": "900"}).status == 507
        assert list((seen / "incoming").iterdir()) == []
        assert server.ask("DELETE", "/datasets/x?version=2").status == 204  # on a full disk, which it makes room on
        filled.unlink()
        assert server.put("x", b"3").json["version"] == 3
        assert server.ask("GET", "/datasets/x?version=1").body == bytes(1_000_000)


def test_the_log_has_one_line_for_each_request_with_the_name_of_its_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "create", "--root", str(tmp_path / "root"), "--name", "ci", "--scope", "read"]) == 0
    token = capsys.readouterr().out.strip()
    with Server(tmp_path / "root") as server:
        headers = {"Authorization": f"Bearer {token}", "X-Request-Id": "mine"}
        assert server.ask("GET", "/datasets/a%0Ab%20127.0.0.1", headers=headers).status == 422
        assert server.ask("GET", "/datasets").status == 401
    lines = [line.partition(" ")[2].split(" ") for line in server.log.read_text().splitlines()]
    asked = [line[1:6] for line in lines if line[4:5] == ["GET"]]
    assert ["mine", "127.0.0.1", "ci", "GET", "/datasets/a%0Ab%20127.0.0.1"] in asked
    assert any(line[2:] == ["-", "GET", "/datasets"] for line in asked)
    assert token not in server.log.read_text()


def test_metrics_are_in_prometheus_format(server: Server) -> None:
    assert server.ask("GET", "/dataset/nothing").status == 404
    text = server.ask("GET", "/metrics").body.decode()
    assert 'imagestrata_requests_total{method="GET",route="/datasets/{name}",status="404"}' in text
    assert re.search(r'imagestrata_requests_total\{method="GET",route=".*",status="200"\} \d', text)
    assert "imagestrata_used_bytes" in text
