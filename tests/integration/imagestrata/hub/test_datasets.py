"""The client of the dataset service: a real server, broken connections, killed processes, damaged bytes."""

import hashlib
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings

from imagestrata import hub
from imagestrata.hub import push
from imagestrata.hub.http import LostError
from imagestrata.service.server.connections import Limits
from imagestrata.service.tokens import SCOPES
from tests.support.dataset_files import FILES, MEGA, SECONDS, command, in_thread, many, ran, read, written
from tests.support.dataset_proxies import Proxy
from tests.support.dataset_servers import ROOT, Server, ServerInThread, tar_of, token_of
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("IMAGESTRATA_TOKEN", raising=False)
    monkeypatch.delenv("IMAGESTRATA_URL", raising=False)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a dataset for one test."""
    return request.node.name.replace("[", "-").replace("]", "")[:90]


# Pushes


@settings(max_examples=10, deadline=None)
@given(files=FILES)
def test_any_folder_can_be_pushed_and_pulled(server: Server, files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as there:
        folder = written(Path(there, "a"), files)
        service = hub.connect(server.url)
        service.push(folder, "any", progress=False)
        assert read(service.pull("any", Path(there, "to"), progress=False)) == files


def test_long_names_empty_files_and_empty_folders_survive_push_and_pull(
    server: Server, name: str, tmp_path: Path
) -> None:
    files = {
        "a.bin": b"",
        f"{'x' * 90}/{'y' * 200}/{'ü' * 100}.jpg": b"1" * 511,
        "b/c/d.png": b"2" * 512,
        "b.txt": b"3",
    }
    folder = written(tmp_path / "folder", files)
    (folder / "empty" / "inside").mkdir(parents=True)
    os.symlink("b.txt", folder / "link.txt")
    service = hub.connect(server.url)
    pushed = service.push(folder, name)
    assert (pushed.version, pushed.files, pushed.is_new) == (1, 5, True)
    place = service.pull(name, tmp_path / "to")
    assert place == tmp_path / "to" / name
    assert read(place) == {**files, "link.txt": b"3"}
    assert (place / "empty" / "inside").is_dir()
    assert not (place / "link.txt").is_symlink()
    assert os.stat(place / "a.bin").st_mode & 0o777 == 0o644 & ~os.umask(os.umask(0o022))
    assert service.pulled(name, tmp_path / "to") == next(one for one in service.list() if one.name == name)


def test_a_pulled_file_keeps_its_name(server: Server, name: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 40
    file = tmp_path / "größe 1.csv"
    file.write_bytes(data)
    service = hub.connect(f"{server.url}/")
    pushed = service.push(file, name)
    assert (pushed.kind, pushed.bytes, pushed.sha256) == ("file", len(data), hashlib.sha256(data).hexdigest())
    assert read(service.pull(name, tmp_path / "to")) == {file.name: data}
    assert not service.push(file, name).is_new
    (tmp_path / "empty").touch()
    with pytest.raises(hub.DatasetError, match="none in"):
        service.push(tmp_path / "empty", name)


def test_pushing_the_same_files_makes_no_new_version(server: Server, name: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "one", many(20, b"x"))
    service = hub.connect(server.url)
    first = service.push(folder, name)
    os.utime(folder / "1" / "1.jpg", (5, 5))
    other = written(tmp_path / "other", dict(reversed(many(20, b"x").items())))
    for again in (service.push(folder, name), service.push(other, name)):
        assert (again.is_new, again.version, again.sha256) == (False, 1, first.sha256)
    (folder / "1" / "1.jpg").write_bytes(b"another")
    assert service.push(folder, name).version == 2


def test_datasets_are_made_once_and_listed_in_pages(server: Server, name: str, tmp_path: Path) -> None:
    service = pickle.loads(pickle.dumps(hub.connect(server.url)))
    service.create(name)
    service.create(name, exist_ok=True)
    with pytest.raises(hub.DatasetError, match=r"Wanted a new dataset .* Found: it exists already .*409 of http"):
        service.create(name)
    assert hub.Dataset(name=name) in service.list()
    with pytest.raises(hub.DatasetError, match="empty"):
        service.pull(name, tmp_path / "to")
    with pytest.raises(hub.DatasetError, match="none of this name"):
        service.push(written(tmp_path / "f", many(2, b"")), f"no-{name}", create=False)


def test_outside_links_pipes_and_empty_folders_are_refused_with_their_path(
    server: Server, name: str, tmp_path: Path
) -> None:
    service = hub.connect(server.url)
    (tmp_path / "secret").write_bytes(b"no")
    targets = {"out": tmp_path / "secret", "broken": Path("nowhere"), "above": Path(".."), "loop": Path("loop")}
    for link, target in targets.items():
        folder = written(tmp_path / f"with-{link}", {"a": b"1"})
        os.symlink(target, folder / link)
        with pytest.raises(hub.DatasetError, match=f"Wanted only links to files of the same folder.*{link}"):
            service.push(folder, name)
    folder = written(tmp_path / "pipe", {"a": b"1"})
    os.mkfifo(folder / "fifo")
    with pytest.raises(hub.DatasetError, match="fifo"):
        service.push(folder, name)
    (tmp_path / "none" / "inside").mkdir(parents=True)
    for path, words in {"none": "Wanted a folder with at least one file", "missing": "No such file"}.items():
        with pytest.raises(hub.DatasetError, match=words):
            service.push(tmp_path / path, name)
    odd = tmp_path / "odd"
    odd.mkdir()
    Path(os.fsdecode(os.fsencode(odd) + b"/\xff.jpg")).write_bytes(b"1")
    with pytest.raises(hub.DatasetError, match="UTF-8"):
        service.push(odd, name)
    assert name not in [one.name for one in service.list()]


# Interrupted pushes


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "_PART", MEGA)


@pytest.mark.usefixtures("small_parts")
def test_a_push_resumes_after_the_server_is_killed_and_restarted(tmp_path: Path) -> None:
    folder = written(tmp_path / "folder", {f"{number}.bin": os.urandom(MEGA) for number in range(16)})
    with Server(tmp_path / "root") as first, Proxy(first.port, way="up", limit=9 * MEGA) as proxy:
        pushing = in_thread(lambda: hub.connect(proxy.url).push(folder, "big", progress=False))
        assert proxy.reached.wait(SECONDS)
        first.kill()
        with Server(tmp_path / "root", port=first.port) as second:
            proxy.release()
            pushed = pushing.result(SECONDS)
            assert isinstance(pushed, hub.PushedDataset)
            assert proxy.up < pushed.bytes + 3 * MEGA
            assert read(hub.connect(second.url).pull("big", tmp_path / "to")) == read(folder)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("limit", [100, 1000, 3 * MEGA + 17, 4 * MEGA])
def test_a_push_resumes_when_the_connection_breaks(server: Server, name: str, tmp_path: Path, limit: int) -> None:
    file = written(tmp_path, {"file.bin": os.urandom(4 * MEGA)}) / "file.bin"
    with Proxy(server.port, way="up", limit=limit, then="cut") as proxy:
        service = hub.connect(proxy.url)
        assert service.push(file, name, progress=False).version == 1
        assert proxy.up < 6 * MEGA
    assert read(hub.connect(server.url).pull(name, tmp_path / "to")) == {"file.bin": file.read_bytes()}


@pytest.mark.usefixtures("small_parts")
def test_files_that_change_during_a_push_are_reported_and_publish_nothing(
    server: Server, name: str, tmp_path: Path
) -> None:
    folder = written(tmp_path / "folder", {f"{number}.bin": os.urandom(MEGA) for number in range(10, 22)})
    with Proxy(server.port, way="up", limit=4 * MEGA) as proxy:
        service = hub.connect(proxy.url)
        pushing = in_thread(lambda: service.push(folder, name, progress=False))
        assert proxy.reached.wait(SECONDS)
        with open(folder / "21.bin", "ab") as file:
            file.write(b"more")
        proxy.release()
        with pytest.raises(hub.DatasetError, match=r"21\.bin' of .* to stay unchanged.*Found: 1,048,580 bytes"):
            pushing.result(SECONDS)
    assert service is not None
    assert hub.Dataset(name=name) in hub.connect(server.url).list()
    assert hub.connect(server.url).push(folder, name).version == 1
    assert read(hub.connect(server.url).pull(name, tmp_path / "to")) == read(folder)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_the_next_push_resumes_an_interrupted_or_killed_one(
    server: Server, name: str, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    folder = written(tmp_path / "folder", {f"{number}.bin": os.urandom(MEGA) for number in range(12)})
    with Proxy(server.port, way="up", limit=8 * MEGA) as proxy:
        process = command("push", str(folder), "--name", name, "--url", proxy.url)
        assert proxy.reached.wait(SECONDS)
        process.send_signal(number)
        assert process.wait(SECONDS) == code
        process.communicate()
        assert len(list((tmp_path / "cache").rglob("*.json"))) == 1
        proxy.release()
        until(lambda: proxy.carrying == 0, "what was on its way")
        # All of it but the headers is one body; the next push begins after it.
        arrived = server.root / "incoming"
        until(lambda: sum(path.stat().st_size for path in arrived.glob("*/data")) > proxy.up - 10_000, "the service")
        before = proxy.up
        ended, out, errors = ran("push", str(folder), "--name", name, "--url", proxy.url)
        assert (ended, errors) == (0, "")
        assert out.startswith(f"{name} version 1: 12 files, ")
        assert proxy.up - before < 7 * MEGA
    assert list((tmp_path / "cache").rglob("*.json")) == []
    assert read(hub.connect(server.url).pull(name, tmp_path / "to")) == read(folder)


def test_a_push_finds_its_version_when_the_last_response_is_lost(
    server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = []

    def part(self: push._Push, place: str, start: int, end: int) -> object:
        answer = sent(self, place, start, end)
        if not lost and "Dataset-Version" in answer.headers:
            lost.append(place)
            raise LostError("it is lost")
        return answer

    sent = push._Push._part
    monkeypatch.setattr(push._Push, "_part", part)
    pushed = hub.connect(server.url).push(written(tmp_path / "f", many(9, b"a")), name)
    assert (len(lost), pushed.version, pushed.is_new) == (1, 1, True)


# Pulls


def test_a_pull_of_another_version_replaces_the_one_before(server: Server, name: str, tmp_path: Path) -> None:
    service, to = hub.connect(server.url), tmp_path / "to"
    folder = written(tmp_path / "folder", many(30, b"one"))
    service.push(folder, name)
    one = read(folder)
    place = service.pull(name, to)
    target = os.readlink(place)
    assert not os.path.isabs(target)
    service.pull(name, to)
    assert os.readlink(place) == target
    (folder / "new.txt").write_bytes(b"new")
    service.push(folder, name)
    service.pull(name, to)
    assert read(place) == read(folder) != one
    service.pull(name, to, version=1)
    assert read(place) == one
    assert sorted(path.name for path in (to / ".imagestrata" / name).iterdir()) == [
        os.readlink(place).split("/")[2], "lock",
    ]  # fmt: skip
    moved = to.rename(tmp_path / "moved")
    assert read(moved / name) == one


def test_a_reader_always_finds_a_version_during_pulls(server: Server, name: str, tmp_path: Path) -> None:
    service, to = hub.connect(server.url), tmp_path / "to"
    for tag in (b"1", b"2"):
        service.push(written(tmp_path / "folder", {"a": tag, "b": tag}), name)
    service.pull(name, to, version=1)
    seen, is_over = set(), threading.Event()

    def look() -> None:
        while not is_over.is_set():
            seen.add(os.path.isfile(to / name / "a"))

    looking = in_thread(look)
    try:
        for number in range(20):
            service.pull(name, to, version=1 + number % 2, progress=False)
    finally:
        is_over.set()
    looking.result(SECONDS)
    assert seen == {True}


def test_a_pull_resumes_when_the_connection_breaks(server: Server, name: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "folder", {f"{number}.bin": os.urandom(MEGA) for number in range(12)})
    hub.connect(server.url).push(folder, name)
    with Proxy(server.port, limit=7 * MEGA, then="cut") as proxy:
        hub.connect(proxy.url).pull(name, tmp_path / "to", progress=False)
        assert proxy.down < 16 * MEGA
    assert read(tmp_path / "to" / name) == read(folder)


def test_a_failed_pull_keeps_the_old_version_and_the_next_one_resumes(
    server: Server, name: str, tmp_path: Path
) -> None:
    service, to = hub.connect(server.url), tmp_path / "to"
    folder = written(tmp_path / "folder", many(30, b"old"))
    service.push(folder, name)
    service.pull(name, to)
    old = read(folder)
    written(folder, {f"{number}.bin": os.urandom(MEGA) for number in range(8)})
    service.push(folder, name)
    with Proxy(server.port, limit=6 * MEGA, then="end") as proxy, pytest.raises(hub.UnreachableError):
        hub.connect(proxy.url, patience=0.3).pull(name, to, progress=False)
    assert read(to / name) == old
    with Proxy(server.port) as proxy:
        assert hub.connect(proxy.url).pull(name, to, progress=False) == to / name
        assert proxy.down < 5 * MEGA
    assert read(to / name) == read(folder)


def test_a_client_says_why_a_busy_service_refuses_it(tmp_path: Path) -> None:
    with ExitStack() as held:
        server = held.enter_context(ServerInThread(tmp_path / "root", limits=Limits(connections=9, of_address=1)))
        held.enter_context(socket.create_connection((server.host, server.port)))
        with pytest.raises(hub.UnreachableError, match=r"Found: 429 .* at most 1 connections from one address"):
            hub.connect(server.url, patience=0.3).list()


def test_two_concurrent_pulls_download_once(server: Server, name: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "folder", {f"{number}.bin": os.urandom(MEGA) for number in range(6)})
    hub.connect(server.url).push(folder, name)
    with Proxy(server.port) as proxy:
        processes = [command("pull", name, str(tmp_path / "to"), "--url", proxy.url) for _ in range(2)]
        assert [process.communicate(timeout=SECONDS)[1] for process in processes] == [""] * 2
        assert [process.returncode for process in processes] == [0] * 2
        assert proxy.down < 7 * MEGA
    assert read(tmp_path / "to" / name) == read(folder)


def test_a_pull_may_keep_the_version_that_is_there(server: Server, name: str, tmp_path: Path) -> None:
    service = hub.connect(server.url)
    (tmp_path / "files").mkdir()
    for version, text in ((1, "one"), (2, "two")):
        (tmp_path / "files" / "a.txt").write_text(text)
        service.push(tmp_path / "files", name)
        assert (service.pull(name, tmp_path / "to", keep=True) / "a.txt").read_text() == "one", version
    assert ran("pull", name, str(tmp_path / "to"), "--url", "http://127.0.0.1:1", "--keep")[0] == 0  # no request
    assert (service.pull(name, tmp_path / "to") / "a.txt").read_text() == "two"
    with pytest.raises(hub.OptionError, match="Wanted keep or a version"):
        service.pull(name, tmp_path / "to", 1, keep=True)


def test_damaged_bytes_are_never_shown(server: Server, name: str, tmp_path: Path) -> None:
    service, to = hub.connect(server.url), tmp_path / "to"
    folder = written(tmp_path / "folder", {"a": b"old"})
    service.push(folder, name)
    service.pull(name, to)
    written(folder, {"b": os.urandom(2 * MEGA)})
    service.push(folder, name)
    with Proxy(server.port, limit=MEGA, then="damage") as proxy:
        with pytest.raises(hub.DatasetError, match=f"Wanted '{name}', version 2, with SHA-256 .* Found: .*damaged"):
            hub.connect(proxy.url).pull(name, to)
        assert read(to / name) == {"a": b"old"}
        hub.connect(proxy.url).pull(name, to)
    assert read(to / name) == read(folder)


def test_bytes_damaged_during_upload_make_no_version(server: Server, name: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "folder", {"a": os.urandom(2 * MEGA)})
    with Proxy(server.port, way="up", limit=MEGA, then="damage") as proxy:
        with pytest.raises(hub.DatasetError, match="Wanted a body with SHA-256"):
            hub.connect(proxy.url).push(folder, name)
        assert hub.Dataset(name=name) in hub.connect(server.url).list()
        assert hub.connect(proxy.url).push(folder, name).version == 1
    assert read(hub.connect(server.url).pull(name, tmp_path / "to")) == read(folder)


@pytest.mark.parametrize("kind", ["above", "root", "link", "missing"])
def test_a_tar_with_paths_outside_its_folder_is_refused(server: Server, name: str, tmp_path: Path, kind: str) -> None:
    service, to = hub.connect(server.url), tmp_path / "to"
    service.push(written(tmp_path / "folder", {"a": b"1"}), name)
    data = {
        "above": tar_of({"../../../out": b"1"}),
        "root": tar_of({str(tmp_path / "out"): b"1"}),
        "link": tar_of({}, kinds={"a": tarfile.SYMTYPE}),
        "missing": tar_of({}),
    }[kind]
    version = server.root / "datasets" / name / "versions" / "1"
    told = json.loads((version / "version.json").read_text())
    told |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (version / "version.json").write_text(json.dumps(told))
    (version / "data").write_bytes(data)
    with pytest.raises(hub.DatasetError, match=r"Wanted .* Found: "):
        service.pull(name, to)
    assert not list(tmp_path.rglob("out"))
    assert not os.path.lexists(to / name)


def test_a_path_not_created_by_a_pull_is_left_alone(server: Server, name: str, tmp_path: Path) -> None:
    service, to = hub.connect(server.url), tmp_path / "to"
    service.push(written(tmp_path / "folder", {"a": b"1"}), name)
    assert service.pulled(name, to) is None
    mine = written(to / name, {"mine": b"2"})
    for found in (mine, to / f"{name}.link"):
        with pytest.raises(hub.DatasetError, match="something that no pull has made"):
            service.pull(name, to)
        assert read(to / name) == {"mine": b"2"}
        if found == mine:
            os.rename(mine, tmp_path / "elsewhere")
            os.symlink(tmp_path / "elsewhere", to / name)
    (to / name).unlink()
    place = service.pull(name, to)
    shutil.rmtree(os.path.realpath(place))
    assert service.pulled(name, to) is None
    assert read(service.pull(name, to)) == {"a": b"1"}


def test_a_full_disk_is_reported_in_one_line_and_keeps_the_old_version(
    server: Server, name: str, tmp_path: Path
) -> None:
    service, to = hub.connect(server.url), tmp_path / "to"
    folder = written(tmp_path / "folder", {"a": b"old"})
    service.push(folder, name)
    service.pull(name, to)
    written(folder, {"b": bytes(3 * MEGA)})
    service.push(folder, name)
    limited = f'ulimit -f 1024; exec "{sys.executable}" -m imagestrata pull {name} {to} --url {server.url}'
    done = subprocess.run(["bash", "-c", limited], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: Wanted space for a dataset of 3,")
    assert done.stderr.count("\n") == 1
    assert read(to / name) == {"a": b"old"}
    service.pull(name, to)
    assert read(to / name) == read(folder)


# Access and errors


def test_tokens_are_sent_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    made = {scope: token_of(root, scope, name=scope) for scope in SCOPES}
    folder = written(tmp_path / "folder", {"a": b"1"})
    with ServerInThread(root) as server:
        service = hub.connect(server.url, made["write"])
        service.push(folder, "mine")
        assert made["write"] not in repr(service) + repr(vars(service))
        for token, words in {None: "none", "wrong": "unknown or revoked"}.items():
            with pytest.raises(hub.AccessError, match=f"Found: .*{words}. Set IMAGESTRATA_TOKEN.*401 of http.*request"):
                hub.connect(server.url, token).list()
        with pytest.raises(hub.AccessError, match=r"may only read.*403"):
            hub.connect(server.url, made["read"]).push(folder, "other")
        with pytest.raises(hub.AccessError, match=r"may only read.*403"):  # also if nothing has changed
            hub.connect(server.url, made["read"]).push(folder, "mine")
        monkeypatch.setenv("IMAGESTRATA_TOKEN", made["read"])
        assert read(hub.connect(server.url).pull("mine", tmp_path / "to")) == {"a": b"1"}
        monkeypatch.delenv("IMAGESTRATA_TOKEN")
        (tmp_path / "token").write_text(f"{made['write']}\n")
        assert ran("list", "--url", server.url)[0] == 1
        code, out, _ = ran("list", "--url", server.url, "--token-file", str(tmp_path / "token"))
        assert (code, out.split("\t")[:4]) == (0, ["mine", "1", "folder", "1"])


def test_missing_datasets_versions_and_invalid_names_are_reported(server: Server, tmp_path: Path) -> None:
    service = hub.connect(server.url)
    with pytest.raises(hub.DatasetError) as told:
        service.pull("nothing", tmp_path / "to")
    wanted = (
        "Wanted the dataset 'nothing'. Found: none of this name. `imagestrata list` or GET /datasets shows the names"
    )
    assert str(told.value).startswith(wanted)
    assert "(Not found: 404 of " in str(told.value)
    service.push(written(tmp_path / "f", {"a": b"1"}), "once")
    with pytest.raises(hub.DatasetError, match=r"Wanted version 7 of 'once'. Found: it has 1"):
        service.pull("once", tmp_path / "to", version=7)
    for name in ("../x", "", "a b", ".x"):
        with pytest.raises(hub.OptionError, match="Wanted a dataset's name"):
            service.pull(name, tmp_path / "to")
    with pytest.raises(hub.OptionError, match="version number"):
        service.pull("once", tmp_path / "to", version=0)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(hub.DatasetError, match="Wanted to write a dataset in"):
        service.pull("once", tmp_path / "file")
    assert not (tmp_path / "to" / "nothing").exists()


# Commands


def test_commands_push_list_pull_and_restore_and_may_be_repeated(server: Server, name: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "folder", many(5, b"x"))
    address = ("--url", f"{server.url}/")
    for same in (", a new dataset", ", unchanged"):
        code, out, errors = ran("push", str(folder), "--name", name, *address)
        assert (code, errors) == (0, "")
        contents = "5 files, 10,240 bytes, 5 images, 5 classes"
        assert out == f"{name} version 1: {contents} at {server.url}/datasets/{name}{same}\n"
    assert any(line.startswith(f"{name}\t1\tfolder\t5\t10240\t5\t") for line in ran("list", *address)[1].splitlines())
    for _ in range(2):
        code, out, errors = ran("pull", name, str(tmp_path / "to"), *address)
        assert (code, errors) == (0, "")
        assert out == f"{name} version 1: 5 files, 10,240 bytes, 5 images, 5 classes at {tmp_path / 'to' / name}\n"
    assert read(tmp_path / "to" / name) == read(folder)
    code, out, errors = ran("pull", name, str(tmp_path / "to"), "--version", "9", *address)
    assert (code, out, errors.count("\n"), errors[:14]) == (1, "", 1, "error: Wanted ")
    assert ran("pull", "a b", str(tmp_path / "to"), *address)[0] == 2
    (folder / "more.txt").write_bytes(b"more")
    assert ran("push", str(folder), "--name", name, *address)[0] == 0
    code, out, errors = ran("restore", name, "1", *address)
    assert (code, errors) == (0, "")
    assert out.startswith(f"{name} version 3: the bytes of version 1, ")
    assert hub.connect(server.url).restore(name, 1).version == 3
    assert ran("restore", name, "9", *address)[0] == 1
    assert ran("restore", name, "0", *address)[0] == 2
    assert ran("pull", name, "--url", "nowhere")[0] == 2
    assert ran("push", *address)[0] == 2


def test_a_misspelt_name_makes_no_dataset_unless_it_is_asked_for(server: Server, tmp_path: Path) -> None:
    folder, service = written(tmp_path / "folder", {"a": b"1"}), hub.connect(server.url)
    assert service.push(folder, "flowers").is_created
    slip = ("push", str(folder), "--name", "flwoers", "--url", server.url)
    code, out, errors = ran(*slip)
    assert (code, out, "Found: 'flwoers', which is new and looks like 'flowers'" in errors) == (1, "", True)
    assert "flwoers" not in [one.name for one in service.list()]
    with pytest.raises(hub.DatasetError, match=r"give --create \(create=True\)"):
        service.push(folder, "flwoers")
    assert ran(*slip, "--no-create")[0] == 1
    assert ran(*slip, "--create")[1].endswith(", a new dataset\n")
    assert not service.push(folder, "flwoers").is_created
