"""Dataset servers, pushes and pulls that are killed (SIGKILL): no partial results, and the next one continues."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagestrata import hub
from tests.support.dataset_files import MEGA, SECONDS, command, many, ran, read, written
from tests.support.dataset_proxies import Proxy
from tests.support.dataset_servers import Server
from tests.support.waiting import until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("service") / "root") as server:
        yield server


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("IMAGESTRATA_TOKEN", raising=False)
    monkeypatch.delenv("IMAGESTRATA_URL", raising=False)


def test_a_killed_server_leaves_only_complete_versions(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with Server(root) as server:
        server.create("x")
        assert server.put("x", b"old").status == 200
        with socket.create_connection((server.host, server.port)) as connection:
            size = 50 << 20
            head = f"PUT /datasets/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n"
            connection.sendall(head.encode() + bytes(size // 2))
            until(lambda: any(path.stat().st_size for path in root.glob("incoming/*/data")))
            server.kill()
        assert any(path.stat().st_size for path in root.glob("incoming/*/data"))
    with Server(root) as server:
        assert server.ask("GET", "/datasets/x").body == b"old"
        assert list((root / "incoming").iterdir()) == []


def pulled_before(
    server: Server, name: str, tmp_path: Path, more: dict[str, bytes]
) -> tuple[Path, Path, dict[str, bytes]]:
    """A folder that was pushed, pulled and pushed again with more files; the pulled folder, and its old files."""
    service, to = hub.connect(server.url), tmp_path / "to"
    folder = written(tmp_path / "folder", many(30, b"old"))
    service.push(folder, name)
    service.pull(name, to)
    old = read(folder)
    written(folder, more)
    service.push(folder, name)
    return folder, to, old


def test_a_pull_killed_during_download_keeps_the_old_version_and_resumes(server: Server, tmp_path: Path) -> None:
    name = "downloaded"
    folder, to, old = pulled_before(server, name, tmp_path, {f"{n}.bin": os.urandom(MEGA) for n in range(12)})
    with Proxy(server.port, limit=8 * MEGA) as proxy:
        process = command("pull", name, str(to), "--url", proxy.url)
        assert proxy.reached.wait(SECONDS)
        partial = to / ".imagestrata" / name
        # All that was sent but the last block, which may still be in the system's buffers.
        until(lambda: sum(path.stat().st_size for path in partial.glob("partial-*")) >= 7 * MEGA, "what came")
        process.kill()
        process.communicate()
        assert read(to / name) == old
    with Proxy(server.port) as proxy:
        code, out, _ = ran("pull", name, str(to), "--url", proxy.url)
        assert (code, out.startswith(f"{name} version 2: 42 files, ")) == (0, True)
        assert proxy.down < 8 * MEGA
    assert read(to / name) == read(folder)


def test_a_pull_killed_during_unpacking_keeps_the_old_version_and_resumes(server: Server, tmp_path: Path) -> None:
    name = "unpacked"
    folder, to, old = pulled_before(server, name, tmp_path, many(6000, b"new"))
    home = to / ".imagestrata" / name
    process = command("pull", name, str(to), "--url", server.url)
    until(lambda: len(list(home.glob("2-*/data/3/*"))) > 20 or process.poll() is not None, "files")
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert read(to / name) == old
    with Proxy(server.port) as proxy:
        assert hub.connect(proxy.url).pull(name, to, progress=False) == to / name
        assert proxy.down < MEGA  # the tar had arrived
    assert read(to / name) == read(folder)
    assert len(list(home.iterdir())) == 2
