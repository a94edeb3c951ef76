"""The fixture of the splits benchmark: one Spark session as users start it, and statistics of its tasks and disk."""

import gc
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.harness.picture_rows import session
from benchmarks.harness.recount import footer_rows
from benchmarks.splits.caches import Cache
from etl.splits.plan import SplitPlan
from jobs import split as job
from schemas import TableName

RATIOS = (8, 1, 1)
SEED = 7
HEAP = "4g"
_SETTLE_SECONDS = 15.0
_LEFT_BYTES = 50_000_000


@contextmanager
def split_fixture(
    folder: Path, *, master: str = "local[2]", options: Mapping[str, str | int] | None = None
) -> Iterator["SplitFixture"]:
    """Start a session whose files are below a folder; end it and its JVM afterwards, so that their memory is free."""
    ours = {"spark.driver.memory": HEAP, "spark.local.dir": str(folder / "spark")}
    spark = session("benchmark of splits", master=master, options={**ours, **(options or {})})
    spark.sparkContext.setLogLevel("OFF")  # errors come as exceptions
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own calls the JVM during another call
    java: Any = SparkContext._gateway.proc  # type: ignore[union-attr]
    try:
        yield SplitFixture(folder, spark)
        with suppress(Py4JError, OSError):  # the JVM may have failed
            spark.stop()
    except BaseException:
        java.kill()  # after an interrupted call, the next one would get its answer
        raise
    finally:
        java.stdin.close()  # ends the JVM
        try:
            java.wait(timeout=30)
        except subprocess.TimeoutExpired:
            java.kill()
            java.wait()
        SparkContext._gateway = SparkContext._jvm = None
        shutil.rmtree(folder / "out", ignore_errors=True)


@dataclass(frozen=True)
class Tasks:
    """For all tasks so far: bytes of results, bytes in stages that collected rows at the driver, and killed attempts.

    Other stages return only Spark's own statistics, some kilobytes per task.
    """

    result_bytes: int
    asked_bytes: int
    killed: int


def settled_tasks(spark: SparkSession) -> Tasks:
    """The last thousand stages in the session's status store, which needs no web page."""
    context: Any = spark.sparkContext._jsc.sc()
    jvm: Any = spark.sparkContext._jvm
    context.listenerBus().waitUntilEmpty()
    nothing = jvm.java.util.ArrayList
    quantiles = spark.sparkContext._gateway.new_array(jvm.double, 0)  # type: ignore[union-attr]
    stages = context.statusStore().stageList(nothing(), False, False, quantiles, nothing())
    found = [stages.apply(number) for number in range(stages.size())]
    asked = [stage for stage in found if not stage.shuffleWriteBytes() and not stage.outputBytes()]
    return Tasks(
        sum(stage.resultSize() for stage in found),
        sum(fixture.resultSize() for fixture in asked),
        sum(stage.numKilledTasks() for stage in found),
    )


@dataclass(frozen=True)
class Run:
    """One run of a contender: its time, the bytes its tasks returned to the driver, its files, and our fingerprints."""

    seconds: float
    result_bytes: int
    asked_bytes: int
    """Of these, the bytes of results with rows that the driver collected."""
    files: int
    fingerprints: tuple[str, ...] = ()


class SplitFixture:
    """A session to measure in. ``out`` has the output of the latest run."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder, self.spark = folder, spark
        self.out = folder / "out"

    def ours(self, source: Cache | tuple[TableName, TableName], *, rows: int | None = None, **options: Any) -> Run:
        """Run our job over a cache, or over a data and a metadata table with ``rows`` rows; ``options`` are the plan's.

        Raises RuntimeError unless every row is in a split.
        """
        if isinstance(source, Cache):
            place: dict[str, Any] = {"metadata_in": str(source.folder)}
            rows = source.rows
        else:
            place = {"data_table": source[0], "metadata_table": source[1]}
        ratios = tuple(map(Fraction, RATIOS))
        plan = SplitPlan(out=str(self.out), ratios=ratios, seed=SEED, overwrite=True, **place, **options)
        reports: list[Any] = []
        run = self.measure(lambda: reports.append(job.run(self.spark, plan=plan)), rows=rows)
        return Run(run.seconds, run.result_bytes, run.asked_bytes, run.files, tuple(reports[0].fingerprints))

    def measure(self, work: Callable[[], object], *, rows: int | None) -> Run:
        """Clean up, let ``work`` write to ``out``, and check the number of rows. Raises RuntimeError if it is wrong."""
        self.tidy()
        before = settled_tasks(self.spark)
        started = time.monotonic()
        work()
        seconds = time.monotonic() - started
        after = settled_tasks(self.spark)
        if rows is not None and (found := footer_rows(self.out)) != rows:
            raise RuntimeError(f"Wanted {rows:,} rows to be written. Found: {found:,}")
        results, asked = after.result_bytes - before.result_bytes, after.asked_bytes - before.asked_bytes
        return Run(seconds, results, asked, sum(1 for _ in self.out.rglob("part-*.parquet")))

    def tidy(self) -> None:
        """Remove the last output and Spark's temporary files, and sync the disk."""
        shutil.rmtree(self.out, ignore_errors=True)
        deadline = time.monotonic() + _SETTLE_SECONDS
        gc.collect()  # Python's references keep Spark's alive
        while time.monotonic() < deadline:
            self.spark.sparkContext._jvm.java.lang.System.gc()  # type: ignore[union-attr]
            if _folder_bytes(self.folder / "spark") < _LEFT_BYTES:
                break
            time.sleep(0.5)
        os.sync()

    @property
    def heap_bytes(self) -> int:
        """The maximum heap size of the session."""
        return int(self.spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory())  # type: ignore[union-attr]


def _folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder. Files may be removed at the same time."""
    with suppress(FileNotFoundError):
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return _LEFT_BYTES
