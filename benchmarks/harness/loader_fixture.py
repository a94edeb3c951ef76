"""The fixture of the loader benchmarks: an embedded Cassandra, a proxy, and a process per consumer."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.cassandra import embedded, read, write
from benchmarks.harness.pictures import Images, sums_of
from benchmarks.harness.processes import run_process, worker
from benchmarks.harness.proxy import ProxyLimit
from benchmarks.harness.results import tell
from benchmarks.harness.runs import Far, Run, check, course_of, measured
from benchmarks.harness.split_folders import checksums, write_split
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.devstack.servers.delay import Carried
from schemas import Columns, TableName
from schemas.tables import create_data

KEYSPACE = "bench"
BLOBS = Images(f"{KEYSPACE}.blobs", kind=1)
PICTURES = Images(f"{KEYSPACE}.pictures", kind=2, is_decodable=True)
OPENED = Images(f"{KEYSPACE}.opened", kind=3)
_CONSUMER_SECONDS = 400


@dataclass(frozen=True)
class Sizes:
    """How many images Cassandra has, how many each run reads, and how many runs there are."""

    batch: int = 256
    budget: int = 256_000_000
    """Bytes that a source may hold; a run must read many times as much."""
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
    planned: int = 60_000
    """Images of each run that a plan is compared with: rates of fewer vary by what is on its way when they end."""
    plan_seconds: float = 10.0
    """How long a cluster is measured for a plan: as `imagestrata plan --measure` does."""
    rtts: tuple[float, ...] = (0.0, 0.01, 0.05, 0.15, 0.3)
    """Round trips of the plot, in seconds."""
    worker_batch: int = 64
    worker_seconds: float = 12.0
    """About how long torch's workers read, for the plot."""
    many_pairs: int = 7
    """Runs of each contender for targets within a tenth of 1."""
    pairs: int = 3
    small: int = 1_280_000
    large: int = 100_000_000
    opened: int = 3
    """How often each split is opened."""
    read: int = 12
    """Batches to read from the large split whose memory is measured."""


FULL = Sizes()
_FEW = {"batch": 128, "budget": 64_000_000, "blobs": 1_500, "pictures": 512, "warm": 1_500, "fetched": 3_072}
_FEW |= {"decoded": 1_024, "held": 3_072, "demanded": 3_072, "compared": 3_072, "worker_batch": 16, "many_pairs": 3}
_FEW |= {"planned": 6_144, "pairs": 3, "small": 100_000, "large": 1_000_000, "opened": 1, "read": 3}
QUICK = Sizes(**_FEW, rtts=(0.0, 0.15, 0.3), worker_seconds=2.0, plan_seconds=3.0)


@contextmanager
def loader_fixture(
    folder: Path, sizes: Sizes, *, nodes: int = 1, yaml: Mapping[str, object] | None = None
) -> Iterator["LoaderFixture"]:
    """A fixture of ``nodes``, each with a copy of every image; ``yaml`` are lines for their cassandra.yaml."""
    tables = [create_data(TableName.parse(images.table), Columns()) for images in (BLOBS, PICTURES, OPENED)]
    with embedded(folder / "cassandra", KEYSPACE, *tables, nodes=nodes, yaml=yaml) as server:
        yield LoaderFixture(folder, sizes, server)


class LoaderFixture:
    """The server and its tables."""

    def __init__(self, folder: Path, sizes: Sizes, server: Cassandra) -> None:
        self.folder, self.sizes, self.server = folder, sizes, server
        self.proxy = ProxyLimit()
        self.in_flight = 128
        """The concurrency at which the bare client is fastest; `warm_up` finds it."""
        self._splits: set[Path] = set()

    def write(self, images: Images, numbers: NDArray[np.int64]) -> None:
        """Write images by number."""
        write(TableName.parse(images.table), images.rows(numbers), server=self.server)

    def write_all(self, images: Images) -> None:
        """Write the images that all runs read."""
        tell(f"{self.count(images):,} {images.table.partition('.')[2]}")
        self.write(images, np.arange(self.count(images), dtype=np.int64))

    def read(self, images: Images, numbers: NDArray[np.int64]) -> None:
        """Read images by number with the bare client. Raises RuntimeError unless all exist."""
        place = {"hosts": self.server.hosts, "port": self.server.port, "table": images.table}
        answer = read({**place, "batch_size": self.sizes.batch, "in_flight": 64}, images.ids(numbers))
        check(answer, asdict(sums_of(images, numbers)), "bare")

    def split(self, images: Images, rows: int, *, is_checked: bool = False) -> Path:
        """A split with this many rows, which repeat the images of the table, with checksums or without."""
        folder = self.folder / f"split-{images.kind}-{rows}{'-checked' if is_checked else ''}"
        if folder not in self._splits:
            distinct = self.count(images)
            known = checksums(images, distinct) if is_checked else None
            write_split(folder, images, rows=rows, distinct=distinct, checksums=known)
            self._splits.add(folder)
        return folder

    def count(self, images: Images) -> int:
        """How many of these images are in the shared table."""
        return self.sizes.pictures if images.is_decodable else self.sizes.blobs

    def run(self, consumer: str, images: Images, rows: int, *, far: Far | None = None, **order: Any) -> Run:
        """Run one consumer, MODULE:FUNCTION, on a split of ``rows`` rows, with checksums if ``is_checked`` is ordered.
        Raises RuntimeError for wrong sums.
        """
        split = self.split(images, rows, is_checked=order.pop("is_checked", False))
        answer, server_cpu, carried = self.answer(consumer, far=far, split=str(split), **order)
        numbers = np.arange(order.get("limit", rows), dtype=np.int64) % self.count(images)
        check(answer, asdict(sums_of(images, numbers)), consumer)
        return Run(course_of(answer), answer, server_cpu, carried)

    def answer(
        self, consumer: str, *, far: Far | None = None, **order: Any
    ) -> tuple[dict[str, Any], float, Carried | None]:
        """The consumer's answer, the server's CPU seconds in that time, and the bytes through the proxy."""
        usual = {"cache": str(self.folder / "cache"), "batch_size": self.sizes.batch, "budget": self.sizes.budget}

        def ask(port: int) -> dict[str, Any]:
            command = worker(consumer, {**usual, "hosts": self.server.hosts, "port": port, **order})
            return run_process(command, limit=_CONSUMER_SECONDS).answer

        return measured(ask, port=self.server.port, servers=[node.pid for node in self.server.nodes], far=far)
