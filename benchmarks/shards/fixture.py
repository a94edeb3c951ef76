"""The fixture of the shards benchmark: an S3 server, and a tree of images sorted by class."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.pictures import COMMENT, Images
from benchmarks.harness.processes import SparkMemory, peak, run_process, worker
from benchmarks.harness.proxy import ProxyLimit
from benchmarks.harness.results import tell
from benchmarks.harness.runs import Far, Run, check, course_of, measured
from benchmarks.shards.figures import Sizes
from imagestrata.devstack.servers.s3 import REGION, S3

BUCKET = "bench"
PICTURES = Images(f"{BUCKET}.pictures", kind=6, is_decodable=True)
_PROCESS_SECONDS = 900


@contextmanager
def shard_fixture(folder: Path, sizes: Sizes) -> Iterator["ShardFixture"]:
    """Start the server, and end and remove it afterwards."""
    server = S3(folder / "s3")
    try:
        server.start()
        server.make_bucket(BUCKET)
        yield ShardFixture(folder, sizes, server)
    finally:
        server.clean()


class ShardFixture:
    """The server and the tree."""

    def __init__(self, folder: Path, sizes: Sizes, server: S3) -> None:
        self.folder, self.sizes, self.server = folder, sizes, server
        self.proxy = ProxyLimit()
        self.tree = folder / "tree"
        tell(f"{sizes.pictures:,} pictures in {sizes.classes} classes")
        numbers = np.arange(sizes.pictures, dtype=np.int64)
        for number, (id, label) in enumerate(zip(PICTURES.ids(numbers), self.labels().tolist(), strict=True)):
            place = self.tree / f"class_{label:04}" / f"{number:06}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(PICTURES.file(number, id.tobytes()))

    def labels(self) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """The class number of each image; images are sorted by it."""
        return np.arange(self.sizes.pictures, dtype=np.int64) * self.sizes.classes // self.sizes.pictures

    def sums(self) -> dict[str, int]:
        """The sums over all images, as a reader reports them."""
        numbers = np.arange(self.sizes.pictures, dtype=np.int64)
        size = sum(PICTURES.length(number) + len(COMMENT) for number in range(self.sizes.pictures))
        ids = _low_halves(PICTURES.ids(numbers))
        return {"images": self.sizes.pictures, "bytes": size, "labels": int(self.labels().sum()), "ids": ids}

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of every process that uses the server."""
        server = self.server
        keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
        # Cache compiled modules, so that workers do not compile them for every run.
        left_out = ("AWS_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return kept | keys | {"AWS_ENDPOINT_URL": server.endpoint, "AWS_REGION": REGION, "PATH": tools}

    def objects(self, prefix: str) -> Path:
        """The folder in which the server keeps objects as plain files."""
        return self.server.folder / "buckets" / BUCKET / prefix

    def shards(self, prefix: str) -> list[str]:
        """The keys of a folder's shards."""
        return sorted(f"{prefix}/{path.name}" for path in self.objects(prefix).glob("*.tar"))

    def remove(self, prefix: str) -> None:
        """Delete all objects of a folder."""
        shutil.rmtree(self.objects(prefix), ignore_errors=True)

    def read(self, python: Path | str, reader: str, *, rtt: float | None = None, **order: Any) -> Run:
        """Run one reader, directly or through a proxy. Raises RuntimeError unless it read each image once."""
        local = self.folder / "local"
        named = {"reader": reader, "bucket": BUCKET, "images": self.sizes.pictures, "local": str(local), **order}

        def ask(port: int) -> dict[str, Any]:
            shutil.rmtree(local, ignore_errors=True)  # empty their caches: all data must come over the network
            return self.process("shards.readers:read", {"url": f"http://127.0.0.1:{port}", **named}, python=python)

        far = None if rtt is None else Far(rtt)
        answer, server_cpu, carried = measured(ask, port=self.server.port, servers=[self.server.pid], far=far)
        shutil.rmtree(local, ignore_errors=True)
        check(answer, self.sums(), reader)
        run = Run(course_of(answer), answer, server_cpu, carried)
        way = "" if rtt is None else f", {1e3 * rtt:.0f} ms"
        tell(f"{reader}{way}: {per_cpu_second(run):,.0f} images per client CPU second, {run.whole_rate:,.0f} images/s")
        return run

    def process(self, function: str, order: dict[str, Any], *, python: Path | str = sys.executable) -> dict[str, Any]:
        """The answer of a function of the benchmarks under another interpreter. Raises RuntimeError if it fails."""
        return self.command(worker(function, order, python=python))[0]

    def command(self, command: Sequence[str], *, watched: bool = False) -> tuple[dict[str, Any], float]:
        """The answer of a process, and the peak memory of its Python workers in MB if it is ``watched``."""
        look = SparkMemory.of if watched else None
        done = run_process(command, limit=_PROCESS_SECONDS, environment=self.environment, look=look)
        return done.answer, peak([(at, memory.worker) for at, memory in done.samples])


def _low_halves(ids: "np.ndarray[Any, np.dtype[np.uint8]]") -> int:
    """The sum of the second halves of the ids, as numbers, modulo 2**64."""
    return int(np.ascontiguousarray(ids[:, 8:]).view(">u8").astype(np.uint64).sum(dtype=np.uint64))


def per_cpu_second(run: Run) -> float:
    """Images per CPU second of the client, over the whole epoch, because a reader may read far ahead."""
    return float(run.course.images / (run.course.cpu[-1] - run.answer["begun"]))
