"""How long ``make demo`` takes in a fresh clone with empty caches and with warm ones, and its memory.

    make bench-demo

Clones the last commit into a temporary folder with separate caches, so that everything is downloaded. Memory is the
sum over all processes. They are found by a mark in their environment, so the server counts too, although it outlives
the command that started it. QUICK=1 keeps the user's caches and does not judge the first run's time.
"""

import json
import os
import secrets
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from benchmarks.harness.command import Parts, run
from benchmarks.harness.figures import Figure, Figures
from benchmarks.harness.processes import peak, watched
from benchmarks.harness.results import ROOT, Row
from imagestrata.devstack.servers import ports

MARK = "IMAGESTRATA_BENCH"
FIGURES = Figures(
    {
        1: Figure("make demo in a fresh clone, empty caches", "<=", 120, "s", needs="empty caches"),
        2: Figure("make demo in a fresh clone, warm caches", "<=", 60, "s"),
        3: Figure("peak memory, all processes", "<", 4096, "MB"),
    }
)
# Without these, the inner make would behave as part of the outer one and print which folder it leaves.
LEFT_OUT = ("VIRTUAL_ENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")


def memory_mb(mark: str) -> float:
    """PSS of all processes that have the mark in their environment."""
    total = 0.0
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get(MARK) == mark:
                total += process.memory_full_info().pss / (1 << 20)
    return total


def make_demo(clone: Path, environment: dict[str, str], port: int) -> tuple[float, dict[str, object]]:
    """Run the command; returns its seconds and its last line. Raises CalledProcessError."""
    started = time.monotonic()
    done = subprocess.run(
        ["make", "demo", f"PORT={port}"], cwd=clone, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return time.monotonic() - started, json.loads(done.stdout.splitlines()[-1])


def measure(parts: Parts, folder: Path) -> None:
    """Measure two runs in one clone and return all rows."""
    parts.measure_whole(FIGURES, partial(rows_of_demo, folder, is_quick=parts.is_quick))


def rows_of_demo(folder: Path, *, is_quick: bool) -> dict[int, Row]:
    """Clone, run twice and clean up."""
    clone, mark = folder / "clone", secrets.token_hex(8)
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    environment["PATH"] = os.pathsep.join(
        part for part in environment["PATH"].split(os.pathsep) if not part.startswith(str(ROOT))
    )
    environment[MARK] = mark
    if not is_quick:
        for name in ("XDG_CACHE_HOME", "UV_CACHE_DIR", "PIP_CACHE_DIR"):
            environment[name] = str(folder / name.lower())
    (port,) = ports.free(["127.0.0.1"], 1)
    try:
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        with watched(partial(memory_mb, mark), seconds=0.25) as samples:
            first, _ = make_demo(clone, environment, port)
            clean(clone, environment)
            second, report = make_demo(clone, environment, port)
    finally:
        clean(clone, environment)
    note = json.dumps({name: report[name] for name in ("images", "ingest_images_per_s", "loader_images_per_s")})
    return {
        1: FIGURES.value_row(1, first, note="with caches" if is_quick else "empty caches, downloads included"),
        2: FIGURES.value_row(2, second, note=note),
        3: FIGURES.value_row(3, peak(samples), note="sum of PSS, sampled four times a second"),
    }


def clean(clone: Path, environment: dict[str, str]) -> None:
    """Stop the server, and remove what the demo made in the clone."""
    if (clone / "Makefile").is_file():
        subprocess.run(["make", "clean"], cwd=clone, env=environment, check=False, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(run("demo", __doc__, FIGURES, measure, quick="with the user's caches"))
