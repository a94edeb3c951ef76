"""Where shards are measured: an S3 server in a folder of the benchmark, and a tree of pictures sorted by class."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.harness.capacity import capacity_mb_per_s
from benchmarks.harness.command import tell
from benchmarks.harness.courses import Course
from benchmarks.harness.images import Images
from benchmarks.harness.loader_stage import check
from benchmarks.harness.processes import MemoryWatch, cpu_seconds
from benchmarks.harness.results import ROOT
from benchmarks.shards.figures import Sizes
from devstack.delay import Carried, DelayProxy
from devstack.s3 import REGION, S3

BUCKET = "bench"
PICTURES = Images(f"{BUCKET}.pictures", kind=6, is_decodable=True)
_PROCESS_SECONDS = 900
_LOOK_SECONDS = 3.0


END_OF_JPEG = b"\xff\xd9"
"""Behind a picture's id, so that files end as JPEGs do."""


@dataclass(frozen=True)
class Run:
    """One reader once: its course, what else it told, what it cost the server, and what a proxy carried."""

    course: Course
    answer: dict[str, Any]
    server_cpu: float
    carried: Carried | None

    @property
    def per_cpu_second(self) -> float:
        """Pictures for each CPU second of the client, the whole epoch: a reader may read far ahead of what it gives."""
        return float(self.course.images / (self.course.cpu[-1] - self.answer["begun"]))

    @property
    def whole_rate(self) -> float:
        """Pictures a second, the whole epoch."""
        return self.course.images / self.course.got[-1]

    @property
    def mb_per_s(self) -> float:
        """MB a second, behind the first third."""
        return float(self.course.rate * self.answer["sums"]["bytes"] / self.course.images / 1e6)


@dataclass(frozen=True)
class Finished:
    """A process that has done its work: its last line, read as JSON, and the most memory of its Python workers."""

    answer: dict[str, Any]
    worker_mb: float


class Stage:
    """A context manager: the server and the tree are made on entering, and removed on leaving."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder = folder
        self.sizes = sizes
        self.tree = folder / "tree"
        self.server = S3(folder / "s3")
        self.capacity = 0.0
        """MB/s that the proxy alone carries, the most that was seen."""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.server.clean)
            self.server.start()
            self.server.make_bucket(BUCKET)
            tell(f"{self.sizes.pictures:,} pictures in {self.sizes.classes} classes")
            self._plant()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _plant(self) -> None:
        numbers = np.arange(self.sizes.pictures, dtype=np.int64)
        for number, (id, label) in enumerate(zip(PICTURES.ids(numbers), self.labels().tolist(), strict=True)):
            place = self.tree / f"class_{label:04}" / f"{number:06}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(PICTURES.image(number, id.tobytes()) + END_OF_JPEG)  # or all writers would look inside

    def labels(self) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """The class number of each picture; pictures lie sorted by it."""
        return np.arange(self.sizes.pictures, dtype=np.int64) * self.sizes.classes // self.sizes.pictures

    def sums(self) -> dict[str, int]:
        """What all pictures add up to, as a reader tells it."""
        numbers = np.arange(self.sizes.pictures, dtype=np.int64)
        size = sum(PICTURES.length(number) + len(END_OF_JPEG) for number in range(self.sizes.pictures))
        ids = _low_halves(PICTURES.ids(numbers))
        return {"images": self.sizes.pictures, "bytes": size, "labels": int(self.labels().sum()), "ids": ids}

    @property
    def environment(self) -> dict[str, str]:
        """What every process that uses the server has in its environment."""
        server = self.server
        keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
        # Without compiled modules every worker would compile what it imports, again and again.
        left_out = ("AWS_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return kept | keys | {"AWS_ENDPOINT_URL": server.endpoint, "AWS_REGION": REGION, "PATH": tools}

    def objects(self, prefix: str) -> Path:
        """Where the server keeps objects, which are plain files."""
        return self.server.folder / "buckets" / BUCKET / prefix

    def shards(self, prefix: str) -> list[str]:
        """The keys of a folder's shards."""
        return sorted(f"{prefix}/{path.name}" for path in self.objects(prefix).glob("*.tar"))

    def remove(self, prefix: str) -> None:
        """Remove all objects of a folder."""
        shutil.rmtree(self.objects(prefix), ignore_errors=True)

    def read(self, python: Path | str, reader: str, *, rtt: float | None = None, **order: Any) -> Run:
        """One reader once, near or behind a proxy. Raises RuntimeError unless it got each picture once."""
        server, local = self.server.pid, self.folder / "local"
        assert server is not None
        with DelayProxy(self.server.port, rtt=rtt) if rtt is not None else nullcontext() as proxy:
            url = f"http://127.0.0.1:{proxy.port}" if proxy else self.server.endpoint
            named = {"reader": reader, "url": url, "bucket": BUCKET, "images": self.sizes.pictures, "local": str(local)}
            shutil.rmtree(local, ignore_errors=True)  # what others have kept there: all comes over the network
            before = cpu_seconds(server)
            answer = self.process(python, "shards.readers", {**named, **order}).answer
            server_cpu = cpu_seconds(server) - before
            carried = proxy.end() if proxy else None
        shutil.rmtree(local, ignore_errors=True)
        check(answer, self.sums(), reader)
        course = Course(answer["asked"], answer["got"], answer["counts"], answer["cpu"])
        run = Run(course, answer, server_cpu, carried)
        way = "" if rtt is None else f", {1e3 * rtt:.0f} ms"
        tell(f"{reader}{way}: {run.per_cpu_second:,.0f} images per client CPU second, {run.whole_rate:,.0f} images/s")
        return run

    def process(self, python: Path | str, module: str, order: Mapping[str, Any]) -> Finished:
        """One of the benchmark's modules under an interpreter. Raises RuntimeError if it fails or hangs."""
        return self.command([str(python), "-m", f"benchmarks.{module}", json.dumps(order)])

    def command(self, command: Sequence[str], *, watched: bool = False) -> Finished:
        """A process in a session of its own, which is ended with us. Raises RuntimeError if it fails or hangs.

        Memory is sampled if it is ``watched``; that takes time of the cores that all share.
        """
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                with MemoryWatch(process.pid) if watched else nullcontext() as watch:
                    out, complaint = process.communicate(timeout=_PROCESS_SECONDS)
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"Wanted {command[2]} within {_PROCESS_SECONDS} s. Found: it runs on") from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            told = complaint.decode(errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"Wanted {command[2]} to succeed. Found: {process.returncode}, {told}")
        return Finished(answer_of(out), watch.peak(["worker"]) if watch else 0.0)

    def look_at_proxy(self) -> None:
        """Measure what the proxy alone carries; other work on the machine can only make that less."""
        found = capacity_mb_per_s(seconds=_LOOK_SECONDS)
        self.capacity = max(self.capacity, found)
        tell(f"the proxy alone carries {found:,.0f} MB/s")


def answer_of(output: bytes) -> dict[str, Any]:
    """The last line of a process that is JSON, as packages may speak after it. Raises RuntimeError if none is."""
    for line in reversed(output.splitlines()):
        if line.startswith(b"{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise RuntimeError(f"Wanted a line of JSON. Found: {output[-200:]!r}")


def _low_halves(ids: "np.ndarray[Any, np.dtype[np.uint8]]") -> int:
    """The ids as big numbers, added up modulo 2**64: their last halves."""
    return int(np.ascontiguousarray(ids[:, 8:]).view(">u8").astype(np.uint64).sum(dtype=np.uint64))
