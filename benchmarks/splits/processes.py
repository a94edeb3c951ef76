"""Processes that the splits benchmark runs and samples: our command, and the pandas baseline."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.harness.processes import Finished, peak, run_process, tree_mb, worker
from benchmarks.splits.fixture import RATIOS, SEED

_SECONDS_A_LOOK = 0.2
_PROCESS_SECONDS = 1_800


def watched(command: Sequence[str], *, options: Mapping[str, str] | None = None) -> Finished[float]:
    """Run a process; its samples are the anonymous memory of it and its descendants."""
    environment = {**os.environ, **(options or {})}
    return run_process(command, limit=_PROCESS_SECONDS, environment=environment, look=tree_mb, every=_SECONDS_A_LOOK)


def peak_mb(finished: Finished[float]) -> float:
    """The peak memory until the time at which the process says it had finished its work."""
    return peak(finished.samples, end=finished.answer.get("ended", float("inf")))


def call(function: str, *arguments: object, options: Mapping[str, str] | None = None) -> Finished[float]:
    """Call ``MODULE:FUNCTION`` of the benchmarks in a process."""
    return watched(worker(function, *arguments), options=options)


def split_command(cache: Path, *, out: Path, local: Path, heap: str | None = None) -> Finished[float]:
    """Run our command as users do, over a metadata cache, on two cores; ``heap`` is spark-submit's driver memory."""
    tools = Path(sys.executable).parent
    memory = ["--driver-memory", heap] if heap else []
    spark = [str(tools / "spark-submit"), "--master", "local[2]", *memory, "--conf", f"spark.local.dir={local}"]
    ratios = ",".join(map(str, RATIOS))
    ours = ["jobs/split.py", "--metadata-ifn", str(cache), "-o", str(out), "-r", ratios, "--seed", str(SEED)]
    path = f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"
    return watched([*spark, *ours, "--overwrite", "--json"], options={"PATH": path, "PYSPARK_PYTHON": sys.executable})
