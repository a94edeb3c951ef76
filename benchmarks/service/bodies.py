"""The figures of single bodies: a large file and a folder, up and down, beside cp, sha256sum and nginx."""

import os
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness.command import tell
from benchmarks.harness.processes import peak
from benchmarks.harness.results import Row
from benchmarks.service.figures import FIGURES
from benchmarks.service.stage import TAR, Stage, curl, watched

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


def rows_of_upload(stage: Stage) -> dict[int, Row]:
    """One large file, uploaded in turn with cp and sha256sum of it; each upload makes a version of its own."""
    ours, others, most = [], [], 0.0
    with stage.service() as service:
        service.create("file")
        for turn in range(stage.sizes.pairs):
            with open(stage.file, "ab") as file:  # other bytes, or it would be the version that is there
                file.write(bytes([turn]))
            size = stage.file.stat().st_size / 1e6
            with watched(service) as watch:
                seconds = curl(
                    "-T",
                    str(stage.file),
                    "-H",
                    "Content-Type: application/octet-stream",
                    f"{service.url}/datasets/file",
                )
            ours.append(size / seconds)
            most = max(most, peak(watch.samples))
            others.append(size / _copied(stage.file, stage.folder / "copy"))
            tell(f"uploaded at {ours[-1]:,.0f} MB/s, {most:.0f} MB; cp and sha256sum {others[-1]:,.0f} MB/s")
            service.ask("DELETE", f"/datasets/file?version={turn + 1}") if turn + 1 < stage.sizes.pairs else None
    note = f"{size:,.0f} MB by curl, synced to the disk; cp and sha256sum one after the other, without a sync"
    return {
        1: FIGURES.value_row(1, most, note=note, runs=len(ours)),
        2: FIGURES.ratio_row(
            2,
            ours,
            others,
            note=f"{statistics.median(ours):,.0f} over {statistics.median(others):,.0f} MB/s; {note}",
        ),
    }


def rows_of_folder(stage: Stage) -> dict[int, Row]:
    """A folder as one tar, up and down."""
    up, down, most = [], [], 0.0
    tar = stage.make_tar()
    size = tar.stat().st_size / 1e6
    for _ in range(stage.sizes.pairs):
        with stage.service() as service:
            service.create("folder")
            with watched(service) as watch:
                up.append(size / curl("-T", str(tar), "-H", f"Content-Type: {TAR}", f"{service.url}/datasets/folder"))
                down.append(size / curl(f"{service.url}/datasets/folder"))
            most = max(most, peak(watch.samples))
        tell(f"folder up {up[-1]:,.0f} MB/s, down {down[-1]:,.0f} MB/s, {most:.0f} MB")
    note = f"{stage.sizes.files:,} files of {stage.sizes.of_bytes:,} bytes; the whole, and each file, hashed"
    return {
        3: FIGURES.value_row(3, statistics.median(up), note=note, runs=len(up)),
        4: FIGURES.value_row(4, statistics.median(down), note=note, runs=len(up)),
        5: FIGURES.value_row(5, most, note=note, runs=len(up)),
    }


def rows_of_download(stage: Stage) -> dict[int, Row]:
    """One large file, downloaded in turn with nginx, by the same client to the null device."""
    ours, others = [], []
    size = stage.file.stat().st_size / 1e6
    with stage.service() as service, nginx(stage.folder) as other:
        service.create("file")
        curl("-T", str(stage.file), "-H", "Content-Type: application/octet-stream", f"{service.url}/datasets/file")
        for address in (f"{service.url}/datasets/file", f"{other}/{stage.file.name}"):
            curl(address)  # warm
        for _ in range(max(3, stage.sizes.pairs)):
            ours.append(size / curl(f"{service.url}/datasets/file"))
            others.append(size / curl(f"{other}/{stage.file.name}"))
            tell(f"downloaded at {ours[-1]:,.0f} MB/s, from nginx at {others[-1]:,.0f} MB/s")
    note = f"{statistics.median(ours):,.0f} over {statistics.median(others):,.0f} MB/s"
    return {
        6: FIGURES.ratio_row(6, ours, others, note=note),
        7: FIGURES.value_row(7, statistics.median(ours), note=note, runs=len(ours)),
    }


def _copied(source: Path, target: Path) -> float:
    """The seconds that cp and then sha256sum take."""
    began = time.monotonic()
    subprocess.run(["cp", source, target], check=True)
    subprocess.run(["sha256sum", target], check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    target.unlink()
    return seconds


@contextmanager
def nginx(folder: Path) -> Iterator[str]:
    """nginx over a folder, with sendfile and one worker; its address. It is installed where that is possible."""
    if shutil.which("nginx") is None:
        tell("install nginx (apt-get)")
        command = ["apt-get", "install", "-y", "--no-install-recommends", "nginx-light"]
        subprocess.run(
            command, check=False, stdout=subprocess.DEVNULL, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        )
    if shutil.which("nginx") is None:
        raise OSError("Wanted nginx to compare with. Found: none on PATH, and apt-get could not install it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=port), encoding="utf-8")
    process = subprocess.Popen(["nginx", "-c", str(config), "-p", str(folder)])
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
