"""Processes that the benchmark of splits runs and watches: our command, the pandas way."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.background import Background
from benchmarks.harness.processes import anonymous_mb, descendants
from benchmarks.harness.results import ROOT
from benchmarks.splits.stage import RATIOS, SEED

_SECONDS_A_LOOK = 0.2
_PROCESS_SECONDS = 1_800


class TreeWatch(Background):
    """Samples the anonymous memory of a process and of all below it, together; a context manager."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._pid = pid
        self.samples: list[tuple[float, float]] = []
        """Times (``time.monotonic``) and MB."""

    def _work(self) -> None:
        while not self._stop.wait(_SECONDS_A_LOOK):
            memory = sum(map(anonymous_mb, descendants(self._pid)))
            self.samples.append((time.monotonic(), memory))


@dataclass(frozen=True)
class Finished:
    """A process that has done its work: its last line, read as JSON, its seconds in all, and its memory."""

    answer: dict[str, Any]
    seconds: float
    samples: Sequence[tuple[float, float]]

    @property
    def peak_mb(self) -> float:
        """The most anonymous memory, until the time at which the process says that it had done its work."""
        end = self.answer.get("ended", float("inf"))
        return max((memory for at, memory in self.samples if at <= end), default=0.0)


def run(command: Sequence[str], *, options: Mapping[str, str] | None = None) -> Finished:
    """Run a process in a session of its own, which is ended with us. Raises RuntimeError if it fails or hangs."""
    environment = {**os.environ, **(options or {})}
    started = time.monotonic()
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            with TreeWatch(process.pid) as watch:
                out, complaint = process.communicate(timeout=_PROCESS_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    seconds = time.monotonic() - started
    if process.returncode:
        told = complaint.decode(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"Wanted {' '.join(command[:4])} ... to succeed. Found: {process.returncode}, {told}")
    return Finished(json.loads(out.splitlines()[-1]), seconds, watch.samples)


def module(name: str, *arguments: object, options: Mapping[str, str] | None = None) -> Finished:
    """Run one of the benchmark's modules."""
    return run([sys.executable, "-m", f"benchmarks.{name}", *map(str, arguments)], options=options)


def split_command(cache: Path, *, out: Path, local: Path, heap: str | None = None) -> Finished:
    """Our command as users type it, over a metadata cache, on two cores; ``heap`` as spark-submit takes it."""
    tools = Path(sys.executable).parent
    memory = ["--driver-memory", heap] if heap else []
    spark = [str(tools / "spark-submit"), "--master", "local[2]", *memory, "--conf", f"spark.local.dir={local}"]
    ratios = ",".join(map(str, RATIOS))
    ours = ["jobs/split.py", "--metadata-ifn", str(cache), "-o", str(out), "-r", ratios, "--seed", str(SEED)]
    path = f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"
    return run([*spark, *ours, "--overwrite", "--json"], options={"PATH": path, "PYSPARK_PYTHON": sys.executable})
