"""How long ``make demo`` takes from a fresh clone with empty caches, and again; and its memory, all processes together.

    make bench-demo

Clones the last commit into a temporary folder, with caches of its own: everything is downloaded. Processes are told by
a mark in their environment: the server, which outlives the command that started it, counts too. QUICK=1 keeps the
user's caches, and reports the first run's time without judging it.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks.harness.command import Parts, run
from benchmarks.harness.figures import Figure, Figures
from benchmarks.harness.processes import Watch, peak
from benchmarks.harness.results import ROOT, Row

MARK = "IMAGESTRATA_BENCH"
FIGURES = Figures(
    {
        1: Figure("make demo from a fresh clone", "<", 480, "s", needs="empty caches"),
        2: Figure("make demo again", "<", 90, "s"),
        3: Figure("peak memory, all processes", "<", 4096, "MB"),
    }
)
"""By number."""
# What the make that started this benchmark hands down would make the inner one say which folder it leaves.
LEFT_OUT = ("VIRTUAL_ENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")


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


def measure(parts: Parts, folder: Path) -> None:
    """All rows, of two runs in one clone."""
    parts.measure_whole(FIGURES, partial(rows_of_demo, folder, is_quick=parts.is_quick))


def rows_of_demo(folder: Path, *, is_quick: bool) -> dict[int, Row]:
    """Clone, run twice, clean."""
    clone, mark = folder / "clone", secrets.token_hex(8)
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    environment["PATH"] = os.pathsep.join(
        part for part in environment["PATH"].split(os.pathsep) if not part.startswith(str(ROOT))
    )
    environment[MARK] = mark
    if not is_quick:
        for name in ("XDG_CACHE_HOME", "UV_CACHE_DIR", "PIP_CACHE_DIR"):
            environment[name] = str(folder / name.lower())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    needle = f"{MARK}={mark}".encode()
    try:
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        with Watch(lambda: sum(map(_pss_mb, marked(needle))), seconds=0.25) as watch:
            first, _ = make_demo(clone, environment, port)
            second, report = make_demo(clone, environment, port)
    finally:
        if (clone / "Makefile").is_file():
            subprocess.run(["make", "clean"], cwd=clone, env=environment, check=False, stdout=subprocess.DEVNULL)
    note = json.dumps({name: report[name] for name in ("images", "ingest_images_per_s", "loader_images_per_s")})
    return {
        1: FIGURES.value_row(1, first, note="with caches" if is_quick else "empty caches, downloads included"),
        2: FIGURES.value_row(2, second, note=note),
        3: FIGURES.value_row(3, peak(watch.samples), note="sum of PSS, sampled four times a second"),
    }


if __name__ == "__main__":
    sys.exit(run("demo", __doc__, FIGURES, measure, quick="with the user's caches"))
