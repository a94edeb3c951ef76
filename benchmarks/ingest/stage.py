"""Where the contenders of the ingest benchmark run: one server, one Spark, one bare writer, tables emptied between."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.picture_rows import DATA, KEYSPACE, METADATA, list_paths, prove, session
from benchmarks.harness.pictures import Planted, plant_pictures
from benchmarks.harness.processes import cpu_seconds, descendants
from benchmarks.harness.results import ROOT
from benchmarks.harness.stage import Stage
from benchmarks.ingest import rivals as rivals
from etl.ingest.plan import IngestPlan
from etl.ingest.report import IngestReport
from etl.ingest.writing.tasks import task_count
from etl.sources.plan import SourcePlan
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import ingest as job
from schemas.tables import Replication, create_keyspace

CORES = 2
IN_FLIGHT = (64, 128, 256)
WARM_UP_PICTURES = 200


@dataclass(frozen=True)
class Run:
    """One contender once: what it wrote, how long it took, and the CPU seconds of its processes and of the server."""

    images: int
    bytes: int
    seconds: float
    client_cpu: float
    server_cpu: float

    @property
    def mb_per_s(self) -> float:
        """Megabytes (10^6) of pictures a second."""
        return self.bytes / 1e6 / self.seconds

    @property
    def images_per_s(self) -> float:
        """Pictures a second."""
        return self.images / self.seconds


def describe(runs: Sequence[Run]) -> str:
    """Medians of some runs, for a note."""
    rate = statistics.median(run.images_per_s for run in runs)
    client = statistics.median(1e3 * run.client_cpu / run.images for run in runs)
    server = statistics.median(1e3 * run.server_cpu / run.images for run in runs)
    of_client = f"{client:.2f} client + " if client > 0 else ""  # workers that Spark ends take their time with them
    return f"{rate:,.0f} images/s, CPU ms an image {of_client}{server:.2f} server"


class IngestStage(Stage):
    """The server, Spark and the bare writer, for the pictures of a tree."""

    def __init__(self, folder: Path, tree: Planted) -> None:
        super().__init__(folder)
        self.tree = tree
        self.in_flight = IN_FLIGHT[0]
        self._server = Cassandra(folder / "cassandra")

    def _start(self, stack: ExitStack) -> None:
        server = self._server
        stack.callback(server.clean)
        # Not tied to this thread: such a server is compiled for a quick start, not for speed.
        server.start()
        self._control: Any = stack.enter_context(server.session())
        options = {
            "spark.cassandra.connection.host": ",".join(server.hosts),
            "spark.cassandra.connection.port": str(server.port),
        }
        self.spark = session("benchmark of ingest", master=f"local[{CORES}]", options=options)
        stack.callback(self._end_spark)
        self._control.execute(create_keyspace(KEYSPACE, Replication.parse("1")))
        for statement in self.plan(self.tree).tables.definitions.values():
            self._control.execute(statement)
        self._bare = self._start_bare()
        stack.callback(self._end_bare)

    def plan(self, tree: Planted, *, resume: bool = False) -> IngestPlan:
        """What our own job is asked to do."""
        source = SourcePlan(address=str(tree.root))
        return IngestPlan(source=source, data_table=DATA, metadata_table=METADATA, resume=resume)

    def warm_up(self) -> str:
        """Spark by small runs, the server by the bare writer, which finds its best; returns a remark on that."""
        small = plant_pictures(self.folder / "small", WARM_UP_PICTURES, first_seed=self.tree.files)
        for _ in range(2):
            self.empty()
            job.run(self.spark, plan=self.plan(small))
        for _ in range(3):
            job.run(self.spark, plan=self.plan(small, resume=True))
        limit = small.files
        rivals.usual_way(self.spark, str(small.root), hosts=self._server.hosts, port=self._server.port, limit=limit)
        rivals.connector(self.spark, str(small.root), tasks=CORES, limit=limit)
        self.empty()
        third = max(WARM_UP_PICTURES, self.tree.files // 3)
        self._ask_bare(third, in_flight=IN_FLIGHT[0])
        rates: dict[int, list[float]] = {number: [] for number in IN_FLIGHT}
        for number in (*IN_FLIGHT, *reversed(IN_FLIGHT)):
            self.empty()
            rates[number].append(third / self._ask_bare(third, in_flight=number)["seconds"])
        means = {number: statistics.fmean(found) for number, found in rates.items()}
        self.in_flight = max(means, key=lambda number: means[number])
        self.empty()
        batched = third / self._ask_bare(third, in_flight=self.in_flight, batch=True)["seconds"]
        self.empty()
        self._ingest(self.tree)  # for the server too this is another kind of request than the bare writer's
        found = ", ".join(f"{rate:,.0f} with {number}" for number, rate in means.items())
        return f"bare writer in warm-up: {found} in flight, {batched:,.0f} images/s with both rows in one batch"

    def ours(self) -> Run:
        """Our job."""
        return self._measure(lambda: self._ingest(self.tree))

    def bare(self) -> Run:
        """The bare writer; the CPU of its client is its own."""
        answers: list[dict[str, float]] = []
        run = self._measure(lambda: answers.append(self._ask_bare(self.tree.files, in_flight=self.in_flight)))
        return Run(run.images, run.bytes, answers[0]["seconds"], answers[0]["cpu"], run.server_cpu)

    def one_at_a_time(self, pictures: int) -> Run:
        """Inserts by hand, of the first few pictures."""
        root, hosts, port = str(self.tree.root), self._server.hosts, self._server.port
        write = rivals.one_at_a_time
        return self._measure(lambda: write(root, hosts=hosts, port=port, limit=pictures), planned=self._first(pictures))

    def usual_way(self, pictures: int) -> Run:
        """What most people write first, with the first few pictures."""
        root, hosts, port = str(self.tree.root), self._server.hosts, self._server.port
        write = rivals.usual_way
        return self._measure(
            lambda: write(self.spark, root, hosts=hosts, port=port, limit=pictures), planned=self._first(pictures)
        )

    def connector(self, pictures: int) -> Run:
        """The same rows written by the Spark connector, of the first few pictures."""
        planned = self._first(pictures)
        tasks = task_count(rows=planned.files, size=planned.bytes, cores=CORES)
        root, write = str(self.tree.root), rivals.connector
        return self._measure(lambda: write(self.spark, root, tasks=tasks, limit=pictures), planned=planned)

    def first_and_resumed(self, tree: Planted) -> tuple[float, float]:
        """Seconds of a first ingest of a tree, and of one that is told to resume when all is there."""
        first = self._measure(lambda: self._ingest(tree), planned=tree).seconds
        started = time.monotonic()
        report = job.run(self.spark, plan=self.plan(tree, resume=True))
        seconds = time.monotonic() - started
        if (report.images, report.already_there) != (0, tree.files):
            raise RuntimeError(f"Wanted {tree.files:,} pictures that are there already. Found: {report}")
        return first, seconds

    def empty(self) -> None:
        """Empty the tables, and let the disk take what waits for it."""
        for table in self.plan(self.tree).tables.definitions:
            self._control.execute(f"TRUNCATE {table}", timeout=120)
        os.sync()

    def _first(self, pictures: int) -> Planted:
        some = list_paths(str(self.tree.root))[:pictures]
        return Planted(self.tree.root, len(some), sum((self.tree.root / path).stat().st_size for path in some))

    def _ingest(self, tree: Planted) -> IngestReport:
        report = job.run(self.spark, plan=self.plan(tree))
        if (report.images, report.bytes) != (tree.files, tree.bytes):
            raise RuntimeError(f"Wanted {tree.files:,} pictures of {tree.bytes:,} bytes. Found: {report}")
        return report

    def _measure(self, work: Callable[[], object], *, planned: Planted | None = None) -> Run:
        """Empty the tables, run, look whether the rows are there."""
        self.empty()
        server = self._server.nodes[0].pid
        assert server is not None
        others = (server, self._bare.pid)

        def client_cpu() -> float:
            return sum(map(cpu_seconds, descendants(os.getpid(), without=others)))

        before = client_cpu(), cpu_seconds(server)
        started = time.monotonic()
        work()
        seconds = time.monotonic() - started
        after = client_cpu(), cpu_seconds(server)
        planned = planned or self.tree
        prove(self._control, planned=planned)
        return Run(planned.files, planned.bytes, seconds, after[0] - before[0], after[1] - before[1])

    def _end_spark(self) -> None:
        self.spark.sparkContext.setLogLevel("OFF")  # the connector would complain that its server is gone
        self.spark.stop()

    def _start_bare(self) -> "subprocess.Popen[str]":
        server, module = self._server, "benchmarks.ingest.bare"
        place = (server.hosts[0], str(server.port), server.datacenter, str(self.tree.root))
        process = subprocess.Popen(
            [sys.executable, "-m", module, *place], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        if json.loads(process.stdout.readline() or "{}").get("pictures") != self.tree.files:
            process.kill()
            raise RuntimeError(f"Wanted a bare writer with {self.tree.files:,} pictures. Found: it did not start.")
        return process

    def _ask_bare(self, pictures: int, *, in_flight: int, batch: bool = False) -> dict[str, float]:
        """Let the bare writer write so many pictures; returns its seconds and its CPU seconds."""
        assert self._bare.stdin is not None
        assert self._bare.stdout is not None
        self._bare.stdin.write(json.dumps({"pictures": pictures, "in_flight": in_flight, "batch": batch}) + "\n")
        self._bare.stdin.flush()
        answer: dict[str, float] = json.loads(self._bare.stdout.readline() or "{}")
        if "seconds" not in answer:
            raise RuntimeError(f"Wanted {pictures:,} pictures from the bare writer. Found: it ended.")
        return answer

    def _end_bare(self) -> None:
        assert self._bare.stdin is not None
        assert self._bare.stdout is not None
        self._bare.stdin.close()  # which tells it to end
        try:
            self._bare.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._bare.kill()
            self._bare.wait()
        self._bare.stdout.close()
