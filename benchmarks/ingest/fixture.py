"""The fixture of the ingest benchmark: one server, one Spark session, one bare writer, and tables that are emptied."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.harness.cassandra import embedded
from benchmarks.harness.pairs import best_of
from benchmarks.harness.picture_rows import DATA, KEYSPACE, METADATA, list_paths, prove, session
from benchmarks.harness.pictures import Planted, plant_pictures
from benchmarks.harness.processes import cpu_seconds, descendants
from benchmarks.ingest.bare import load, write_first
from benchmarks.ingest.baselines import CORES, connector, usual_way
from etl.cassandra.cluster import Cluster
from etl.ingest.plan import IngestPlan
from etl.ingest.report import IngestReport
from etl.sources.plan import SourcePlan
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import ingest as job

IN_FLIGHT = (64, 128, 256)
WARM_UP_PICTURES = 200


@dataclass(frozen=True)
class Run:
    """One run of a contender: what it wrote, its duration, and the CPU seconds of its processes and of the server."""

    images: int
    bytes: int
    seconds: float
    client_cpu: float
    server_cpu: float

    @property
    def mb_per_s(self) -> float:
        """Megabytes (10^6) of images per second."""
        return self.bytes / 1e6 / self.seconds

    @property
    def images_per_s(self) -> float:
        """Images per second."""
        return self.images / self.seconds


def describe(runs: Sequence[Run]) -> str:
    """Medians of some runs, for a note."""
    rate = statistics.median(run.images_per_s for run in runs)
    client = statistics.median(1e3 * run.client_cpu / run.images for run in runs)
    server = statistics.median(1e3 * run.server_cpu / run.images for run in runs)
    of_client = f"{client:.2f} client + " if client > 0 else ""  # unknown if Spark has ended its workers
    return f"{rate:,.0f} images/s, CPU ms an image {of_client}{server:.2f} server"


def plan_of(tree: Planted, *, resume: bool = False) -> IngestPlan:
    """The plan of our own job."""
    source = SourcePlan(address=str(tree.root))
    return IngestPlan(source=source, data_table=DATA, metadata_table=METADATA, resume=resume)


@contextmanager
def ingest_fixture(folder: Path, tree: Planted) -> Iterator["IngestFixture"]:
    """Start the server, Spark and the bare writer for the images of a tree."""
    statements = plan_of(tree).tables.definitions.values()
    with (
        embedded(folder / "cassandra", KEYSPACE, *statements) as server,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as bare,
    ):
        place: dict[str, str | int] = {"host": ",".join(server.hosts), "port": server.port}
        options = {f"spark.cassandra.connection.{name}": value for name, value in place.items()}
        spark = session("benchmark of ingest", master=f"local[{CORES}]", options=options)
        try:
            with server.session() as control:
                yield IngestFixture(folder, tree, server, control, spark, bare)
        finally:
            spark.sparkContext.setLogLevel("OFF")  # otherwise the connector logs that its server has gone
            spark.stop()


class IngestFixture:
    """Runs the contenders."""

    def __init__(
        self, folder: Path, tree: Planted, server: Cassandra, control: Any, spark: SparkSession, bare: Executor
    ) -> None:
        self.folder, self.tree, self.spark = folder, tree, spark
        self.in_flight = IN_FLIGHT[0]
        self._server, self._control, self._bare = server, control, bare
        self._bare_pid, pictures = bare.submit(load, str(tree.root)).result()
        if pictures != tree.files:
            raise RuntimeError(f"Wanted a bare writer with {tree.files:,} pictures. Found: {pictures:,}")

    def warm_up(self) -> str:
        """Warm up Spark and the server, and find the bare writer's best concurrency; return a remark on it."""
        small = plant_pictures(self.folder / "small", WARM_UP_PICTURES, first_seed=self.tree.files)
        for _ in range(2):
            self.empty()
            job.run(self.spark, plan=plan_of(small))
        for _ in range(3):
            job.run(self.spark, plan=plan_of(small, resume=True))
        for write in (usual_way, connector):
            write(self.spark, str(small.root), server=self._server, limit=small.files)
        third = max(WARM_UP_PICTURES, self.tree.files // 3)

        def rate(in_flight: int, *, batch: bool = False) -> float:
            self.empty()
            return third / self._write_bare(third, in_flight, batch=batch)[0]

        rate(IN_FLIGHT[0])
        self.in_flight, found = best_of(IN_FLIGHT, rate)
        batched = rate(self.in_flight, batch=True)
        self.empty()
        self._ingest(self.tree)  # the server has only handled the bare writer's kind of requests so far
        return f"bare writer in warm-up: {found}, {batched:,.0f} images/s with both rows in one batch"

    def ours(self) -> Run:
        """Run our job."""
        return self._measure(lambda: self._ingest(self.tree), planned=self.tree)

    def bare(self) -> Run:
        """Run the bare writer, which measures its own time and client CPU."""
        found: list[tuple[float, float]] = []
        write = partial(self._write_bare, self.tree.files, self.in_flight)
        run = self._measure(lambda: found.append(write()), planned=self.tree)
        return replace(run, seconds=found[0][0], client_cpu=found[0][1])

    def baseline(self, write: Callable[..., None], pictures: int) -> Run:
        """Run a baseline on the first images."""
        root = str(self.tree.root)
        some = list_paths(root)[:pictures]
        planned = Planted(self.tree.root, len(some), sum((self.tree.root / path).stat().st_size for path in some))
        return self._measure(lambda: write(self.spark, root, server=self._server, limit=pictures), planned=planned)

    def first_and_resumed(self, tree: Planted) -> tuple[float, float]:
        """Seconds of a first ingest of a tree, and of one that resumes when all images exist."""
        first = self._measure(lambda: self._ingest(tree), planned=tree).seconds
        started = time.monotonic()
        report = job.run(self.spark, plan=plan_of(tree, resume=True))
        seconds = time.monotonic() - started
        if (report.images, report.already_there) != (0, tree.files):
            raise RuntimeError(f"Wanted {tree.files:,} pictures that are there already. Found: {report}")
        return first, seconds

    def empty(self) -> None:
        """Empty the tables and sync the disk."""
        for table in plan_of(self.tree).tables.definitions:
            self._control.execute(f"TRUNCATE {table}", timeout=120)
        os.sync()

    def _ingest(self, tree: Planted) -> IngestReport:
        report = job.run(self.spark, plan=plan_of(tree))
        if (report.images, report.bytes) != (tree.files, tree.bytes):
            raise RuntimeError(f"Wanted {tree.files:,} pictures of {tree.bytes:,} bytes. Found: {report}")
        return report

    def _write_bare(self, pictures: int, in_flight: int, *, batch: bool = False) -> tuple[float, float]:
        """Write the first images with the bare writer; return its seconds and its CPU seconds."""
        server = self._server
        cluster = Cluster(tuple(server.hosts), server.port, server.datacenter)
        return self._bare.submit(write_first, cluster, pictures, in_flight, batch).result()

    def _measure(self, work: Callable[[], object], *, planned: Planted) -> Run:
        """Empty the tables, run ``work`` and check that the rows are there."""
        self.empty()
        server = self._server.nodes[0].pid
        assert server is not None

        def cpu() -> tuple[float, float]:
            clients = (pid for pid in descendants(os.getpid()) if pid not in (server, self._bare_pid))
            return sum(map(cpu_seconds, clients)), cpu_seconds(server)

        before, started = cpu(), time.monotonic()
        work()
        seconds, after = time.monotonic() - started, cpu()
        prove(self._control, planned=planned)
        return Run(planned.files, planned.bytes, seconds, after[0] - before[0], after[1] - before[1])
