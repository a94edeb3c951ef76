"""The dataset service over HTTP, with a real server."""

import errno
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
import zipfile
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from imagestrata.service.commands import main
from tests.support.dataset_servers import FILE, TAR, Server, ServerInThread, tar_of, token_of
from tests.support.waiting import until

DATA = bytes(range(256)) * 40


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
    assert server.put(name, b"three").json["version"] == 3  # version numbers are not reused
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
    assert (card["type"], card["images"], card["num_classes"]) == ("images", 6, 2)
    assert card["card"]["classes"] == {"cat": 3, "dög": 3}


def test_files_are_listed_by_level_and_by_class(server: Server, name: str) -> None:
    paths = ["a.txt", "train/cat/1.jpg", "train/cat/2.jpg", "train/dög/1.jpg", "train/x.txt", "val/cat/9.jpg"]
    nested = ["val/cat/cat/3.jpg", "val/cat/other/3.jpg", "z.txt"]
    assert server.put(name, tar_of(dict.fromkeys(paths + nested, b"1")), kind=TAR).status == 200

    def listed(query: str) -> tuple[list[str], list[str]]:
        files, folders, cursor = [], [], ""
        while cursor is not None:
            page = server.ask("GET", f"/datasets/{name}/files?{query}&limit=2&cursor={quote(cursor)}").json
            assert len(page["files"] + page["folders"]) <= 2
            files += [file["path"] for file in page["files"]]
            folders, cursor = folders + page["folders"], page["next"]
        return files, folders

    assert listed("delimiter=/") == (["a.txt", "z.txt"], ["train/", "val/"])
    assert listed("delimiter=/&prefix=train/") == (["train/x.txt"], ["train/cat/", f"train/d{chr(246)}g/"])
    assert listed("class=cat") == (["train/cat/1.jpg", "train/cat/2.jpg", "val/cat/9.jpg", "val/cat/cat/3.jpg"], [])
    assert listed("class=cat&prefix=val/") == (["val/cat/9.jpg", "val/cat/cat/3.jpg"], [])
    assert listed("class=%25") == listed("class=ca") == listed("class=") == ([], [])
    assert server.ask("GET", f"/datasets/{name}/files?delimiter=x").status == 422


def test_a_restored_version_is_the_newest_and_takes_no_room(server: Server, name: str) -> None:
    def used() -> int:
        return server.ask("GET", "/health").json["used"]

    body, path = tar_of({"cat/1.jpg": b"1" * 5000}), f"/datasets/{name}"
    assert server.put(name, body, kind=TAR).json["version"] == 1
    newest = server.put(name, b"two", filename="two.csv")
    before = used()
    assert server.ask("POST", f"{path}/restore?version=1", headers={"If-Match": '"x"'}).status == 412
    answer = server.ask("POST", f"{path}/restore?version=1", headers={"If-Match": newest.headers["etag"]})
    assert (answer.status, answer.json["version"], answer.json["kind"]) == (200, 3, "folder")
    assert answer.headers["etag"] == f'"{hashlib.sha256(body).hexdigest()}"'
    assert (server.ask("GET", path).body, used()) == (body, before)
    assert server.ask("GET", f"{path}/files/cat/1.jpg").body == b"1" * 5000
    assert server.ask("GET", f"{path}/card").json["card"]["classes"] == {"cat": 1}
    assert server.ask("POST", f"{path}/restore?version=1").json["version"] == 3  # it is already the newest
    assert server.ask("DELETE", f"{path}?version=1").status == 204
    assert (server.ask("GET", path).body, used()) == (body, before)
    for missing in (f"{path}/restore?version=1", "/datasets/no-such/restore?version=1"):
        assert server.ask("POST", missing).status == 404
    assert server.ask("POST", f"{path}/restore").status == 422
    assert server.ask("DELETE", f"{path}?version=3").status == 204
    assert used() == before - len(body)
    assert server.ask("DELETE", path).status == 204
    assert used() == before - len(body) - 3
    assert list((server.root / "incoming").iterdir()) == []


def test_a_restart_counts_shared_bytes_once_and_copies_count_against_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ServerInThread(tmp_path / "root", quota=5000) as server:
        server.create("x")
        for body in (b"1" * 2000, b"2" * 1000):
            assert server.put("x", body).status == 200
        assert server.ask("POST", "/datasets/x/restore?version=1").json["version"] == 3

        def no_link(*_: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", no_link)  # as on a file system without hard links
        assert server.ask("POST", "/datasets/x/restore?version=2").json["version"] == 4
        assert server.ask("GET", "/health").json["used"] == 4000
        assert server.ask("POST", "/datasets/x/restore?version=1").status == 507
        assert server.ask("GET", "/health").json["arriving"] == 0
    with ServerInThread(tmp_path / "root") as server:
        assert server.ask("GET", "/health").json["used"] == 4000
        assert server.ask("GET", "/datasets/x").body == b"2" * 1000


def test_a_description_is_stored_with_the_dataset(server: Server, name: str) -> None:
    path, text = f"/datasets/{name}/description", "Cats & dögs 🐈 <b>\n\nTaken in 2026."
    json_type = {"Content-Type": "application/json"}

    def described(body: object) -> int:
        return server.ask("PUT", path, json.dumps(body).encode(), json_type).status

    assert server.ask("GET", path).json == {"description": ""}
    assert described({"description": text}) == 200
    assert server.put(name, b"data").status == 200
    card = server.ask("GET", f"/datasets/{name}/card").json
    assert (card["description"], card["summary"]) == (text, "Cats & dögs 🐈 <b>")
    listed = server.ask("GET", "/datasets").json["datasets"]
    assert next(one for one in listed if one["name"] == name)["summary"] == card["summary"]
    for wrong in ({"description": "x" * 10_001}, {"description": None}, {}, [], {"description": "", "more": 1}):
        assert described(wrong) == 422
    assert server.ask("PUT", path, b'{"description": "\\ud800"}', json_type).status == 422
    assert server.ask("PUT", path, b"x" * 200_000, json_type).status == 413
    assert server.ask("PUT", path, b"text", {"Content-Type": "text/plain"}).status == 415
    assert server.ask("GET", path).json == {"description": text}
    assert described({"description": "\U0001f408" * 10_000}) == 200
    assert server.ask("DELETE", f"/datasets/{name}").status == 204
    for method, body in (("GET", b""), ("PUT", b'{"description": "x"}')):
        assert server.ask(method, path, body, json_type).status == 404
    server.create(name)
    assert server.ask("GET", path).json == {"description": ""}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"not a tar", "Wanted a tar"),
        (b"", "Found: none"),
        (tar_of({"a/../../x": b"1"}), "paths stay in its folder"),
        (tar_of({"/x": b"1"}), "paths stay in its folder"),
        (tar_of({"a": b"1", "./a": b"2"}), "twice"),
        (tar_of({"a": b"1", "a/b": b"2"}), "as both"),
        (tar_of({}, kinds={"l": tarfile.SYMTYPE}), "a symbolic link, 'l' to '/etc/passwd'. Make the tar with `tar -h "),
        (tar_of({}, kinds={"l": tarfile.LNKTYPE}), "a hard link, 'l' to '/etc/passwd'. Make the tar with `tar --hard-"),
        (tar_of({}), "with at least one file. Found: none in it"),
        (bytes(1024), "with at least one file. Found: none in it"),
        (tar_of({}, kinds={"train": tarfile.DIRTYPE}), "with at least one file. Found: none in it"),
        (tar_of({}, kinds={"l": tarfile.CHRTYPE}), "a device"),
        (tar_of({"a": bytes(5000)})[:3000], "ends"),
        (tar_of({"a": b"1" * 600, "b": b"2"}).replace(b"b\0\0", b"c\0\0"), "no tar header here"),
        (tar_of({"a": b"1", "b": b"2"})[:2048], "no end mark"),
        (tar_of({"a": b"1"}) + tar_of({"b": b"2"}), "another tar?"),
        (tar_of({}, kinds={"l": tarfile.FIFOTYPE}), "a pipe"),
        (gzip.compress(tar_of({"a": b"1"}), mtime=0), "gzip (send an uncompressed tar"),
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


def test_tars_made_as_the_refusal_of_links_says_are_accepted(server: Server, name: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    for link, make, options in (("b", os.link, ""), ("c", os.symlink, "-h ")):
        make(tmp_path / "a", tmp_path / link)
        refused = server.put(name, _gnu_tar(tmp_path), kind=TAR).json["detail"]
        advised = re.search(r"`tar (.*?)`", refused)
        assert advised is not None
        assert advised[1] == f"{options}--hard-dereference"
        assert server.put(name, _gnu_tar(tmp_path, *advised[1].split()), kind=TAR).json["files"] == 2
        (tmp_path / link).unlink()


def _gnu_tar(folder: Path, *options: str) -> bytes:
    command = ["tar", "-c", *options, "-C", str(folder), "--sort=name", "."]
    return subprocess.run(command, capture_output=True, check=True).stdout


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
    for header in (f"sha-256={digest.hexdigest()}", "sha-512=:AAAA:"):  # not RFC 9530, or another algorithm
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
    allowed = {"/datasets/x": "DELETE, GET, HEAD, PUT", "/datasets/x/uploads": "OPTIONS, POST", "/": "GET, HEAD"}
    for path, methods in allowed.items():
        assert server.ask("TRACE", path).headers["allow"] == methods


def test_incomplete_and_foreign_files_do_not_affect_the_rest(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with ServerInThread(root) as server:
        for name in ("one", "two"):
            server.create(name)
            assert [server.put(name, body).status for body in (b"1", b"2")] == [200, 200]
    (root / "datasets" / "half").mkdir()
    (root / "datasets" / ".DS_Store").write_bytes(b"x")
    (root / "datasets" / "one" / "versions" / ".hidden").write_bytes(b"x")
    with ServerInThread(root) as server:
        assert [one["name"] for one in server.ask("GET", "/datasets").json["datasets"]] == ["one", "two"]
        assert server.ask("GET", "/datasets/one").body == b"2"
        server.create("half")


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
    assert main(["serve", "--root", str(server.root), "--port", "0"]) == 1
    assert "another server uses it" in capsys.readouterr().err


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
        for kind in (FILE, TAR):  # more than is free, and less than the server reads of what it refuses
            parts = iter([bytes(500_000)] * 7)  # without a content length
            for body in (bytes(3_500_000), parts):
                answer = server.ask("PUT", "/datasets/x", body, {"Content-Type": kind})
                assert (answer.status, answer.json["title"]) == (507, "Insufficient storage")
        assert list((seen / "incoming").iterdir()) == []
        assert server.begin("x", 6_000_000).status == 507
        assert server.put("x", b"1" * 1_000_000).json["version"] == 2
        begun = server.begin("x", 1_000_000)
        filled = seen / "something else"
        with pytest.raises(OSError, match="No space"):
            filled.write_bytes(bytes(6_000_000))
        place = begun.headers["location"]
        checksum = f"sha1 {b64encode(hashlib.sha1(bytes(1_000_000)).digest()).decode()}"
        for more in ({}, {"Upload-Checksum": checksum}):
            assert server.append(place, 0, bytes(1_000_000), **more).status == 507
        assert server.look(place, "DELETE").status == 204
        with pytest.raises(OSError, match="No space"), open(filled, "ab") as file:
            file.write(bytes(6_000_000))
        assert server.begin("x", 900).status == 507
        assert list((seen / "incoming").iterdir()) == []
        assert server.ask("DELETE", "/datasets/x?version=2").status == 204  # on a full disk, where it frees space
        filled.unlink()
        assert server.put("x", b"3").json["version"] == 3
        assert server.ask("GET", "/datasets/x?version=1").body == bytes(1_000_000)


def test_the_log_has_one_line_for_each_request_with_the_name_of_its_token(tmp_path: Path) -> None:
    token = token_of(tmp_path / "root", name="ci")
    with Server(tmp_path / "root") as server:
        headers = {"Authorization": f"Bearer {token}", "X-Request-Id": "mine"}
        assert server.ask("GET", "/datasets/a%0Ab%20127.0.0.1", headers=headers).status == 422
        assert server.ask("GET", "/datasets").status == 401
        assert server.ask("GET", "/" + "%ff" * 20_000).status == 401
    assert max(map(len, server.log.read_text().splitlines())) < 3_000
    lines = [line.split(" ")[3:] for line in server.log.read_text().splitlines()]  # after run id, date and time
    asked = [line[:5] for line in lines if line[3:4] == ["GET"]]
    assert ["mine", "127.0.0.1", "ci", "GET", "/datasets/a%0Ab%20127.0.0.1"] in asked
    assert any(line[2:] == ["-", "GET", "/datasets"] for line in asked)
    assert token not in server.log.read_text()


def test_metrics_are_in_prometheus_format(server: Server) -> None:
    assert server.ask("GET", "/dataset/nothing").status == 404
    assert server.ask("GET", "/health").status == 200
    text = server.ask("GET", "/metrics").body.decode()
    assert 'imagestrata_service_requests_total{method="GET",route="/datasets/{name}",status="404"}' in text
    assert re.search(r'imagestrata_service_requests_total\{method="GET",route=".*",status="200"\} \d', text)
    assert "imagestrata_service_used_bytes" in text
