"""Metrics of a job for Prometheus, served by the driver while the job runs.

The counts are those of the progress line, and at the end those of the report. Counts of tasks are Spark's own.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from etl.errors import EtlError
from formats import logs
from formats.command_line import port
from formats.metrics import HOST, LIBRARY, MetricsServer, metric
from formats.origin import code_version

if TYPE_CHECKING:
    from prometheus_client import Metric
    from pyspark.sql import SparkSession

    from etl.ingest.writing.progress import Counters

PORT_SETTING, HOST_SETTING = "spark.imagestrata.metrics-port", "spark.imagestrata.metrics-host"
STATES = ("running", "done", "failed")

# The fields of a report that count what its progress counts: images, bytes, rejected images.
REPORTED = {"ingest.py": ("images", "bytes", "quarantined"), "shard.py": ("images", "bytes", "rejected")}
# By the counts of an executor in Spark's status.
_TASKS = {"active": "activeTasks", "completed": "completedTasks", "failed": "failedTasks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsOptions:
    """Where metrics are served. Without a port they are not, unless Spark's configuration has one."""

    port: int | None = None
    host: str | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> "MetricsOptions":
        """From the options of `add_metrics_options`."""
        return cls(port=args.metrics_port, host=args.metrics_host)


NOT_SERVED = MetricsOptions()


def add_metrics_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `MetricsOptions`."""
    add = parser.add_argument_group("metrics").add_argument
    add("--metrics-port", type=port, metavar="N",
        help=f"serve metrics for Prometheus at this port of the driver while the job runs (default: {PORT_SETTING}, "
        "else none)")  # fmt: skip
    add("--metrics-host", metavar="ADDRESS", help=f"address to serve them at (default: {HOST_SETTING}, else {HOST})")


class JobMetrics:
    """The metrics of one job. As a context, it sees whether the job fails."""

    def __init__(self, spark: "SparkSession", command: str) -> None:
        self._context = spark.sparkContext
        self._command = command
        self._began = time.time()
        self._state = "running"
        self._counters: Counters | None = None
        self._reported: tuple[int, int, int] | None = None
        self._planned: int | None = None
        self._tasks: Mapping[str, int] = dict.fromkeys(_TASKS, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._state = "done" if error is None else "failed"

    def observe(self, counters: "Counters", files: int) -> None:
        """Take the counts from here, of this number of files."""
        self._counters, self._planned = counters, files

    def finish(self, report: object) -> None:
        """Take the counts from the report: tasks that were repeated after the loss of an executor counted twice."""
        names = REPORTED.get(self._command, ())
        if names and all(hasattr(report, name) for name in names):  # an estimate has other fields
            images, size, rejected = (int(getattr(report, name)) for name in names)
            self._reported = images, size, rejected

    def collect(self) -> Iterator["Metric"]:
        """The metrics as they are now."""
        of_all = {"command": self._command}
        about = {**of_all, "run": logs.run_id(), "version": code_version()}
        yield metric("imagestrata_job_info", "1, with the run id of the log and the version.", [(about, 1)])
        states = [({**of_all, "state": state}, state == self._state) for state in STATES]
        yield metric("imagestrata_job_state", "1 for the state of the job, 0 for the others.", states)
        yield metric("imagestrata_job_start_time_seconds", "When the job began.", [(of_all, self._began)])
        tasks = [({**of_all, "state": state}, count) for state, count in self._counted_tasks().items()]
        yield metric("imagestrata_job_tasks", "Tasks of Spark.", tasks)
        if self._planned is not None:
            yield metric("imagestrata_job_planned_images", "Images to write or compute.", [(of_all, self._planned)])
        if (counts := self._counts()) is not None:
            images, size, rejected = counts
            yield metric("imagestrata_job_images", "Images written or computed.", [(of_all, images)])
            yield metric("imagestrata_job_bytes", "Bytes written, or read to compute.", [(of_all, size)])
            yield metric("imagestrata_job_rejected_images", "Images rejected.", [(of_all, rejected)])

    def _counts(self) -> tuple[int, int, int] | None:
        counters = self._counters
        if self._reported is not None or counters is None:
            return self._reported
        return counters.images, counters.bytes, counters.rejected

    def _counted_tasks(self) -> Mapping[str, int]:
        """The tasks of all executors by state; once Spark has stopped, as they were last."""
        from py4j.protocol import Py4JError

        with suppress(Py4JError, OSError, AttributeError):
            java: Any = self._context._jsc
            executors = java.sc().statusStore().executorList(False)
            found = [executors.apply(number) for number in range(executors.size())]
            self._tasks = {state: sum(getattr(one, name)() for one in found) for state, name in _TASKS.items()}
        return self._tasks


@contextmanager
def job_metrics(spark: "SparkSession", *, name: str, options: MetricsOptions) -> Iterator[JobMetrics]:
    """The metrics of a job, which are served during the block if there is a port. Raises `EtlError`."""
    from etl.ingest.writing.progress import observed

    made = JobMetrics(spark, name)
    with _served(made, spark, options), observed(made.observe):
        yield made


@contextmanager
def _served(metrics: JobMetrics, spark: "SparkSession", options: MetricsOptions) -> Iterator[None]:
    conf = spark.sparkContext.getConf()
    number = options.port if options.port is not None else _port(conf.get(PORT_SETTING))
    if number is None:
        yield
        return
    host = options.host or conf.get(HOST_SETTING) or HOST
    try:
        server = MetricsServer(metrics, host=host, port=number)
    except ModuleNotFoundError as error:
        install = "Run: pip install 'imagestrata[metrics]'"
        raise EtlError(f"Wanted {LIBRARY} to serve metrics. Found: it is not installed. {install}") from error
    except OSError as error:
        raise EtlError(f"Wanted to serve metrics at {host} port {number}. Found: {error.strerror}.") from error
    try:
        logs.tell(f"metrics: http://{host}:{server.port}/metrics")
        yield
    finally:
        server.close()


def _port(text: str | None) -> int | None:
    try:
        return port(text) if text else None
    except argparse.ArgumentTypeError as error:
        raise EtlError(f"{PORT_SETTING}: {error}") from error
