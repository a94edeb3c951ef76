"""Where loaders are measured: one embedded Cassandra, a proxy before it, and a process for each consumer."""

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import bare_client
from benchmarks.harness.courses import Course
from benchmarks.harness.images import KEYSPACE, Images, sums_of
from benchmarks.harness.processes import cpu_seconds, run_process, worker
from benchmarks.harness.split_folders import write_split
from benchmarks.harness.stage import Stage
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.devstack.servers.delay import Carried, DelayProxy
from schemas import Columns, TableName
from schemas.tables import Replication, create_data, create_keyspace

BLOBS = Images(f"{KEYSPACE}.blobs", kind=1)
PICTURES = Images(f"{KEYSPACE}.pictures", kind=2, is_decodable=True)
OPENED = Images(f"{KEYSPACE}.opened", kind=3)
_CONSUMER_SECONDS = 400
_MB_AN_IMAGE = 0.11


@dataclass(frozen=True)
class Sizes:
    """How many images lie in Cassandra, how many are read in each run, how many runs there are."""

    batch: int = 256
    budget: int = 256_000_000
    """Bytes that a source may hold; runs must be long beside it."""
    blobs: int = 6_000
    pictures: int = 2_048
    warm: int = 12_000
    """Images of each run before those that count."""
    fetched: int = 24_000
    decoded: int = 6_144
    held: int = 36_000
    demanded: int = 30_000
    compared: int = 15_000
    """Images of each run for the plot."""
    rtts: tuple[float, ...] = (0.0, 0.01, 0.05, 0.15, 0.3)
    """Round trips of the plot, in seconds."""
    worker_batch: int = 64
    worker_seconds: float = 12.0
    """About how long torch's workers may read, for the plot."""
    many_pairs: int = 7
    """Runs of each contender where the target is within a tenth of 1."""
    pairs: int = 3
    small: int = 1_280_000
    large: int = 100_000_000
    opened: int = 3
    """How often each split is opened."""
    read: int = 12
    """Batches that are read of the large split, whose memory is measured."""


FULL = Sizes()
_FEW = {"batch": 128, "budget": 64_000_000, "blobs": 1_500, "pictures": 512, "warm": 1_500, "fetched": 3_072}
_FEW |= {"decoded": 1_024, "held": 3_072, "demanded": 3_072, "compared": 3_072, "worker_batch": 16, "many_pairs": 3}
_FEW |= {"pairs": 3, "small": 100_000, "large": 1_000_000, "opened": 1, "read": 3}
QUICK = Sizes(**_FEW, rtts=(0.0, 0.15, 0.3), worker_seconds=2.0)


@dataclass(frozen=True)
class Far:
    """How far away the server is: a proxy with this round trip, that holds a share of the answers so long."""

    rtt: float
    hold_share: float = 0.0
    hold: float = 0.0


@dataclass(frozen=True)
class Run:
    """One consumer once: its course, what else it told, and what its run cost the server and the proxy."""

    course: Course
    answer: dict[str, Any]
    server_cpu: float
    carried: Carried | None

    @property
    def rate(self) -> float:
        """Images a second, steady."""
        return self.course.rate

    @property
    def mb_per_s(self) -> float:
        """MB a second, steady."""
        return self.course.rate * _MB_AN_IMAGE


def describe(runs: Sequence[Run]) -> str:
    """Medians of some runs, for a note."""
    rate, client, server = (
        statistics.median(values)
        for values in zip(*((run.rate, run.course.cpu_ms, _each(run, run.server_cpu)) for run in runs), strict=True)
    )
    proxies = [_each(run, run.carried.cpu_seconds) for run in runs if run.carried]
    proxy = f" + {statistics.median(proxies):.2f} proxy" if proxies else ""
    return f"{rate:,.0f} images/s, CPU ms an image {client:.2f} client + {server:.2f} server{proxy}"


def _each(run: Run, seconds: float) -> float:
    return 1e3 * seconds / run.course.images


class LoaderStage(Stage):
    """The server and its tables."""

    def __init__(self, folder: Path, sizes: Sizes, *, nodes: int = 1, yaml: Mapping[str, object] | None = None) -> None:
        """Each of the ``nodes`` has a copy of each image; ``yaml`` are lines of their cassandra.yaml."""
        super().__init__(folder)
        self.sizes, self._nodes = sizes, nodes
        self.in_flight = 128
        """What the bare client does best with; `warm_up` finds it."""
        self.server = Cassandra(folder / "cassandra", nodes=nodes, yaml=yaml)
        self._splits: set[Path] = set()

    def _start(self, stack: ExitStack) -> None:
        stack.callback(self.server.clean)
        # Not tied to this thread: such a server is compiled for a quick start, not for speed.
        self.server.start()
        with self.server.session() as session:
            session.execute(create_keyspace(KEYSPACE, Replication.parse(str(self._nodes))))
            for images in (BLOBS, PICTURES, OPENED):
                session.execute(create_data(TableName.parse(images.table), Columns()))

    def write(self, images: Images, numbers: NDArray[np.int64]) -> None:
        """Write images by number."""
        bare_client.write(images, numbers, host=self.server.hosts[0], port=self.server.port)

    def read(self, images: Images, numbers: NDArray[np.int64]) -> None:
        """Read images by number as the bare client does. Raises RuntimeError unless each is there."""
        place = {"hosts": self.server.hosts, "port": self.server.port, "table": images.table}
        answer = bare_client.read({**place, "batch_size": self.sizes.batch, "in_flight": 64}, images.ids(numbers))
        check(answer, asdict(sums_of(images, numbers)), "bare")

    def split(self, images: Images, rows: int) -> Path:
        """A split of so many rows: the images that lie in the table, again and again."""
        folder = self.folder / f"split-{images.kind}-{rows}"
        if folder not in self._splits:
            write_split(folder, images, rows=rows, distinct=self.count(images))
            self._splits.add(folder)
        return folder

    def count(self, images: Images) -> int:
        """How many of these images lie in the table that all runs read."""
        return self.sizes.pictures if images.is_decodable else self.sizes.blobs

    def run(self, consumer: str, images: Images, rows: int, *, far: Far | None = None, **order: Any) -> Run:
        """One consumer, MODULE:FUNCTION, of a split of so many rows. Raises RuntimeError unless it got each once."""
        split = self.split(images, rows)
        answer, server_cpu, carried = self.answer(consumer, far=far, split=str(split), **order)
        numbers = np.arange(order.get("limit", rows), dtype=np.int64) % self.count(images)
        check(answer, asdict(sums_of(images, numbers)), consumer)
        course = Course(answer["asked"], answer["got"], answer["counts"], answer["cpu"])
        return Run(course, answer, server_cpu, carried)

    def answer(
        self, consumer: str, *, far: Far | None = None, **order: Any
    ) -> tuple[dict[str, Any], float, Carried | None]:
        """What a consumer tells, the server's CPU seconds meanwhile, and what the proxy carried."""
        servers = [node.pid for node in self.server.nodes if node.pid is not None]
        proxy = None
        if far:
            proxy = DelayProxy(self.server.port, rtt=far.rtt, hold_share=far.hold_share, hold=far.hold)
        with proxy or nullcontext():
            place = {"hosts": self.server.hosts, "port": proxy.port if proxy else self.server.port}
            defaults: dict[str, Any] = {"cache": str(self.folder / "cache"), "batch_size": self.sizes.batch}
            defaults["budget"] = self.sizes.budget
            before = sum(map(cpu_seconds, servers))
            command = worker(consumer, {**defaults, **place, **order})
            answer = run_process(command, limit=_CONSUMER_SECONDS).answer
            return answer, sum(map(cpu_seconds, servers)) - before, proxy.end() if proxy else None

    def void(self, *runs: Sequence[Run]) -> str:
        """Why a comparison of runs through the proxy means nothing; empty where it does mean something."""
        return self.proxy_limit(max(statistics.median(run.mb_per_s for run in some) for some in runs))


def check(answer: dict[str, Any], wanted: dict[str, int], consumer: str) -> None:
    """Raise RuntimeError unless a consumer's images add up to what is wanted, in all that it has added up."""
    found = answer["sums"]
    if wrong := {name: (wanted[name], value) for name, value in found.items() if wanted[name] != value}:
        raise RuntimeError(f"Wanted the same images from {consumer}. Found: sums (wanted, found) {wrong}")
