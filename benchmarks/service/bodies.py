"""The figures of single transfers: a large file and a folder, up and down, compared with cp, sha256sum and nginx."""

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.harness.pairs import in_turn
from benchmarks.harness.processes import peak
from benchmarks.harness.results import Row, tell
from benchmarks.service.figures import FIGURES
from benchmarks.service.fixture import TAR, Fixture, curl, memory_of, put
from imagestrata.devstack.servers import ports

UPLOADED, FOLDER, DOWNLOADED = (1, 2), (3, 4, 5), (6, 7)
_NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log; user root;
events {{ worker_connections 64; }}
http {{
  sendfile on; tcp_nopush on; access_log off; default_type application/octet-stream;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""


def rows_of_upload(fixture: Fixture) -> dict[int, Row]:
    """Upload one large file, alternating with cp and sha256sum of it. Each upload makes a new version."""
    versions, peaks = count(1), []
    with fixture.service() as service:
        service.create("file")

        def upload() -> float:
            if (number := next(versions)) > 1:
                service.ask("DELETE", f"/datasets/file?version={number - 1}")
            with open(fixture.file, "ab") as file:  # other bytes, because the same bytes would not make a new version
                file.write(bytes([number]))
            with memory_of(service) as samples:
                rate = fixture.file_mb / put(fixture.file, f"{service.url}/datasets/file")
            peaks.append(peak(samples))
            return rate

        contenders = {"upload": upload, "cp and sha256sum": lambda: fixture.file_mb / _copied(fixture.file)}
        ours, others = in_turn(fixture.sizes.pairs, contenders, told=_told).values()
    size, copied = f"{fixture.file_mb:,.0f} MB", "cp and sha256sum one after the other, without a sync"
    note = f"{size} by curl, synced to the disk; {copied}"
    rates = f"{statistics.median(ours):,.0f} over {statistics.median(others):,.0f} MB/s"
    return {
        1: FIGURES.value_row(1, max(peaks), note=note, runs=len(ours)),
        2: FIGURES.ratio_row(2, ours, others, note=f"{rates}; {note}"),
    }


def rows_of_folder(fixture: Fixture) -> dict[int, Row]:
    """Upload and download a folder as one tar."""
    up, down, peaks = [], [], []
    tar = fixture.make_tar()
    size = tar.stat().st_size / 1e6
    for _ in range(fixture.sizes.pairs):
        with fixture.service() as service, memory_of(service) as samples:
            service.create("folder")
            up.append(size / put(tar, f"{service.url}/datasets/folder", kind=TAR))
            down.append(size / curl(f"{service.url}/datasets/folder"))
        peaks.append(peak(samples))
        tell(f"folder up {up[-1]:,.0f} MB/s, down {down[-1]:,.0f} MB/s, {peaks[-1]:.0f} MB")
    note = f"{fixture.sizes.files:,} files of {fixture.sizes.of_bytes:,} bytes; the whole, and each file, hashed"
    values = {3: statistics.median(up), 4: statistics.median(down), 5: max(peaks)}
    return {number: FIGURES.value_row(number, value, note=note, runs=len(up)) for number, value in values.items()}


def rows_of_download(fixture: Fixture) -> dict[int, Row]:
    """Download one large file, alternating with nginx, with the same client, to the null device."""
    with fixture.service() as service, nginx(fixture.folder) as other:
        service.create("file")
        put(fixture.file, f"{service.url}/datasets/file")
        addresses = {"service": f"{service.url}/datasets/file", "nginx": f"{other}/{fixture.file.name}"}
        for address in addresses.values():
            curl(address)  # warm-up
        contenders = {name: partial(curl, address) for name, address in addresses.items()}
        seconds = in_turn(max(3, fixture.sizes.pairs), contenders)
    ours, others = ([fixture.file_mb / one for one in found] for found in seconds.values())
    note = f"{statistics.median(ours):,.0f} over {statistics.median(others):,.0f} MB/s"
    return {
        6: FIGURES.ratio_row(6, ours, others, note=note),
        7: FIGURES.value_row(7, statistics.median(ours), note=note, runs=len(ours)),
    }


def _told(name: str, rate: float) -> str:
    return f"{name} at {rate:,.0f} MB/s"


def _copied(source: Path) -> float:
    """The seconds that cp and then sha256sum take."""
    began, target = time.monotonic(), source.with_name("copy")
    subprocess.run(["cp", source, target], check=True)
    subprocess.run(["sha256sum", target], check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    target.unlink()
    return seconds


@contextmanager
def nginx(folder: Path) -> Iterator[str]:
    """Serve a folder with nginx, sendfile and one worker; yields its address. Installs nginx if possible."""
    if shutil.which("nginx") is None:
        tell("install nginx (apt-get)")
        command = ["apt-get", "install", "-y", "--no-install-recommends", "nginx-light"]
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, env=quiet)
    if shutil.which("nginx") is None:
        raise OSError("Wanted nginx to compare with. Found: none on PATH, and apt-get could not install it")
    (port,) = ports.free(["127.0.0.1"], 1)
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=port), encoding="utf-8")
    process = subprocess.Popen(["nginx", "-c", str(config), "-p", str(folder)])
    try:
        for _ in range(200):
            if ports.is_held(port, "127.0.0.1"):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
