"""How long ``make demo`` takes from a fresh clone with empty caches, and again; and its memory, all processes together.

    make bench-demo

Clones the last commit into a temporary folder, with caches of its own: everything is downloaded. Processes are told by
a mark in their environment: the server, which outlives the command that started it, counts too. QUICK=1 keeps the
user's caches, and reports the first run's time without judging it.
"""

import argparse
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.harness.results import ROOT, Row, publish

MARK = "IMAGESTRATA_BENCH"
# What the make that started this benchmark hands down would make the inner one say which folder it leaves.
LEFT_OUT = ("VIRTUAL_ENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")


class MemoryWatch:
    """The peak of the proportional memory (PSS) of all processes that carry a mark; a context manager."""

    def __init__(self, mark: str) -> None:
        self._needle = f"{MARK}={mark}".encode()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_mb = 0.0

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.25):
            self.peak_mb = max(self.peak_mb, sum(map(_pss_mb, marked(self._needle))))


def marked(needle: bytes) -> list[Path]:
    """The processes in whose environment the needle stands."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if needle in (process / "environ").read_bytes().split(b"\0"):
                found.append(process)
        except OSError:  # it ended, or is not ours
            continue
    return found


def _pss_mb(process: Path) -> float:
    try:
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def make_demo(clone: Path, environment: dict[str, str], port: int) -> tuple[float, dict[str, object]]:
    """Run the command; returns its seconds and its last line. Raises CalledProcessError."""
    started = time.monotonic()
    done = subprocess.run(
        ["make", "demo", f"PORT={port}"], cwd=clone, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return time.monotonic() - started, json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    """Measure and report; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="with the user's caches")
    quick = parser.parse_args().quick
    mark = secrets.token_hex(8)
    folder = Path(tempfile.mkdtemp(prefix="imagestrata-bench-"))
    clone = folder / "clone"
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    environment["PATH"] = os.pathsep.join(
        part for part in environment["PATH"].split(os.pathsep) if not part.startswith(str(ROOT))
    )
    environment[MARK] = mark
    if not quick:
        for name in ("XDG_CACHE_HOME", "UV_CACHE_DIR", "PIP_CACHE_DIR"):
            environment[name] = str(folder / name.lower())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        with MemoryWatch(mark) as watch:
            first, _ = make_demo(clone, environment, port)
            second, report = make_demo(clone, environment, port)
    finally:
        if (clone / "Makefile").is_file():
            subprocess.run(["make", "clean"], cwd=clone, env=environment, check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)
    note = json.dumps({name: report[name] for name in ("images", "ingest_images_per_s", "loader_images_per_s")})
    caches = "with caches" if quick else "empty caches, downloads included"
    publish(
        "demo",
        [
            Row(
                "make demo from a fresh clone", "<", 480, None if quick else first, "s", note=f"{first:.0f} s, {caches}"
            ),
            Row("make demo again", "<", 90, second, "s", note=note),
            Row(
                "peak memory, all processes",
                "<",
                4096,
                watch.peak_mb,
                "MB",
                note="sum of PSS, sampled four times a second",
            ),
        ],
        quick=quick,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
