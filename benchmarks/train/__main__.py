"""A training that reads from Cassandra, compared with one that reads the same files in the same order.

    make bench-train

Two processes on the CPU train a small network for some epochs with training/train.py. They read class folders in the
page cache and the tables of an embedded Cassandra on the same two cores, in turn. The order of images and the losses
must be the same; both are compared. The time of an epoch is that of the slower process, without validation; the first
epoch of a run does not count. The server has answered 200,000 reads before, so it is warm.
QUICK=1 measures less, too little for a value.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import loader
from benchmarks.harness.cassandra import embedded, write
from benchmarks.harness.command import Parts, run
from benchmarks.harness.figures import Figure, Figures
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.pictures import PHOTOGRAPHS, Images, require_room
from benchmarks.harness.processes import cpu_seconds
from benchmarks.harness.results import ROOT, Row, tell
from benchmarks.harness.split_folders import write_folder
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import Columns, TableName
from schemas.tables import create_data

SCRIPT = ROOT / "training" / "train.py"
_EPOCHS_OF = "epochs of more than four steps"
FIGURES = Figures(
    {
        1: Figure("2 CPU ranks: time of an epoch from Cassandra over from files", "<=", 1.05, needs=_EPOCHS_OF),
        2: Figure("2 CPU ranks, from Cassandra, warm: share of the time that waits for data", "<", 5, "%", _EPOCHS_OF),
    }
)
_RANKS, _CLASSES, _EPOCHS = 2, 10, 3
_SECONDS_A_RUN = 600
_WARM_SECONDS = 240.0
_REST_SECONDS, _REST_SHARE = 3.0, 0.1


@dataclass(frozen=True)
class Sizes:
    """Images of training and validation, pairs of runs, and reads that warm the server up."""

    train: int = 1_536
    val: int = 64
    pairs: int = 7
    reads: int = 200_000


@dataclass(frozen=True)
class Run:
    """One training: seconds of its warm epochs, the share of them that waited for data, and its losses."""

    epochs: list[float]
    data_share: float
    losses: list[float]

    @property
    def epoch(self) -> float:
        """Seconds of a warm epoch."""
        return statistics.mean(self.epochs)


def prepare(folder: Path, server: Cassandra, sizes: Sizes) -> tuple[list[str], list[str]]:
    """Write the same photographs as files and as tables; return the arguments that name them."""
    pictures = Images("train.pictures", kind=4, is_decodable=True)
    for side, first, count in (("train", 0, sizes.train), ("val", sizes.train, sizes.val)):
        for number in range(first, first + count):
            path = folder / side / f"{number % _CLASSES}" / f"{number:06}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pictures.image(number % PHOTOGRAPHS, f"{number:016}".encode()))
        found = loader.open_folder(folder / side, dataset="bench", or_split=side)
        table = TableName("bench", side)
        with server.session() as session:
            session.execute(create_data(table, Columns()))
        write(table, rows_of(found), server=server)
        write_folder(folder / f"{side}.rows", found, data_table=str(table))
    where = ["--hosts", server.hosts[0], "--port", str(server.port)]
    rows = [f"--{side}-rows-fn={folder / side}.rows" for side in ("train", "val")]
    return ["--dataset", "bench", str(folder / "train"), str(folder / "val")], [*rows, *where]


def rows_of(found: loader.Folder) -> Iterator[tuple[bytes, int, bytes]]:
    """Ids, labels and bytes of the files of a tree."""
    assert found.labels is not None
    for one, path, label in zip(found.ids, found.paths, found.labels.tolist(), strict=True):
        yield one.tobytes(), label, (Path(found.address) / os.fsdecode(path)).read_bytes()


def warm(folder: Path, server: Cassandra, reads: int) -> None:
    """Read the images until the server has compiled its code as one in use has; then let it rest.

    A new server spends ten times as long on a read, on the cores that train, and compiles on after the last one.
    """
    deadline, read, epoch = time.monotonic() + _WARM_SECONDS, 0, 0
    split = loader.open_rows(folder / "train.rows", cache=folder / "cache")
    with loader.CassandraSource(split, hosts=server.hosts, port=server.port, batch_size=64) as source:
        while read < reads and time.monotonic() < deadline:
            read += sum(len(batch) for batch in source.epoch(epoch))
            epoch += 1
    pid = server.nodes[0].pid
    assert pid is not None
    is_busy = True
    while is_busy and time.monotonic() < deadline:
        before = cpu_seconds(pid)
        time.sleep(_REST_SECONDS)  # the sampling interval of its CPU use
        is_busy = cpu_seconds(pid) - before > _REST_SHARE * _REST_SECONDS
    tell(f"{read:,} reads to warm the server" + (", and the server is still busy" if is_busy else ""))


def train(arguments: Sequence[str], folder: Path) -> Run:
    """Train once, as a user would. Raises RuntimeError if that fails."""
    for left in folder.glob("run.*"):
        left.unlink()
    usual = ["-a", "resnet18", "--size", "64", "--b", "32", "--workers", "1", "--lr", "0.05", "--warmup", "1"]
    results = ["--figures", "run.figures", "--trace", "run.trace", "--checkpoint", "run.pt", "--print-freq", "1000"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={_RANKS}"]
    done = subprocess.run(
        [*command, str(SCRIPT), *arguments, *usual, f"--epochs={_EPOCHS}", *results],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "IMAGESTRATA_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=_SECONDS_A_RUN,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"train.py ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    figures = [json.loads(line)["train"] for line in (folder / "run.figures").read_text().splitlines()]
    traced = [json.loads(line) for rank in range(_RANKS) for line in (folder / f"run.trace.{rank}").open()]
    seconds = [_slowest(one) for one in figures[1:]]
    return Run(seconds, statistics.mean(one["data_share"] for one in figures[1:]), [one["loss"] for one in traced])


def _slowest(figures: dict[str, Any]) -> float:
    both = zip(figures["data_seconds"], figures["compute_seconds"], strict=True)
    return max(float(waited + worked) for waited, worked in both)


def rows_of_training(folder: Path, sizes: Sizes) -> dict[int, Row]:
    """Trainings from both sources alternately, with one server."""
    with embedded(folder / "cassandra", "bench") as server:
        tell(f"{sizes.train + sizes.val:,} pictures")
        files, tables = prepare(folder, server, sizes)
        warm(folder, server, sizes.reads)
        contenders = {"Cassandra": partial(train, tables, folder), "files": partial(train, files, folder)}
        ours, others = in_turn(sizes.pairs, contenders, told=told).values()
    for one, other in zip(ours, others, strict=True):
        check(one, other)
    note = f"{sizes.train:,} photographs of 110 kB, resnet18 at 64 pixels, batches of 2 x 32, "
    note += "server, warm, on the same 2 cores"
    shares = [100 * statistics.median(run.data_share for run in runs) for runs in (ours, others)]
    waits = f"median of {sizes.pairs} runs; from files {shares[1]:.1f} %; {note}"
    return {
        1: FIGURES.ratio_row(1, ours, others, by=attrgetter("epoch"), note=note),
        2: FIGURES.value_row(2, shares[0], note=waits, runs=sizes.pairs),
    }


def told(name: str, run: Run) -> str:
    """A line about a run, for the console."""
    return f"{name}: {run.epoch:.1f} s an epoch, {run.data_share:.1%} for data"


def check(one: Run, other: Run) -> None:
    """Raise RuntimeError unless two trainings had the same number of steps and the same first losses."""
    if len(one.losses) != len(other.losses) or not one.losses:
        raise RuntimeError(f"Wanted as many steps. Found: {len(one.losses)} and {len(other.losses)}")
    apart = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(one.losses[:8], other.losses[:8], strict=True))
    if apart > 1e-3:
        raise RuntimeError(f"Wanted the same losses from Cassandra and from files. Found: {apart:.2%} apart")


def measure(parts: Parts, folder: Path) -> None:
    """Measure both rows from the same trainings."""
    require_room(folder, bytes=3_000_000_000, files=10_000)
    sizes = Sizes(train=256, val=32, pairs=1, reads=20_000) if parts.is_quick else Sizes()
    parts.measure_whole(FIGURES, partial(rows_of_training, folder, sizes))


if __name__ == "__main__":
    sys.exit(run("train", __doc__, FIGURES, measure, quick="less of everything, in under three minutes"))
