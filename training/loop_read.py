"""Read images in a tight loop, without using them, to see how fast a training can be fed.

examples:
  training/loop_read.py --data-table imagenette.data_train --rows-fn train.rows
  training/loop_read.py --split splits/imagenette --index 0 --decode
  training/loop_read.py --data-table imagenette.data_train --rows-fn train.rows --device cuda
  training/loop_read.py --reader file --file-root /data/imagenette/train
  training/loop_read.py --reader s3 --shards s3://bucket/imagenette-train
  training/loop_read.py --reader shards --shards /scratch/imagenette-train
  torchrun --nproc_per_node=2 training/loop_read.py --data-table imagenette.data_train --rows-fn train.rows

Every image is read once per epoch, over all processes, through a DALI pipeline into host memory, or into GPU memory
with --device cuda; --decode also decodes it. "s3" is the loader's reader for shards, on S3 or in a folder. "file" and
"shards" are DALI's own readers, fn.readers.file and fn.readers.webdataset for shards in a local folder, for comparison.
MB are a million bytes of the files as they were ingested.

Each epoch is timed from its first request to its last image. Connections are open before that, but no image of the
epoch has been read. The first epoch is reported separately, because caches are cold then. An epoch of less
than a second gives no figure: read more images.

exit codes: 0 done, 1 failed (one line says why), 2 bad arguments
"""

import argparse
import importlib
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any, Literal

if not __package__:  # as a script: this package is not installed
    sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np
from rich.console import Console
from rich.progress import track

import loader
from formats.command_line import command
from formats.local_node import described, hosts_of_script
from training import TrainingError, command_line

READERS = ("cassandra", "s3", "file", "shards")
LEAST_SECONDS = 1.0  # a shorter epoch consists mostly of its start and end, and gives no figure
_DEPTH = 2
_PICTURES = "jpg;png;webp;bmp;tif;jp2;ppm"
Gather = Callable[[Sequence[float]], list[list[float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """The options of a reading test. Raises ValueError for values that are out of range or do not go together."""

    reader: str = "cassandra"
    split: str | None = None
    index: int = 0
    rows_fn: str | None = None
    data_table: str | None = None
    file_root: str | None = None
    shards: str | None = None
    hosts: tuple[str, ...] | None = None
    port: int | None = None
    on_changed: Literal["raise", "accept"] = "raise"
    device: str = "cpu"
    decode: bool = False
    batch_size: int = 128
    workers: int = 4
    epochs: int = 10
    json: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("split", "rows_fn", "file_root", "shards") if getattr(self, name)]
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given) or "nothing"
        if self.reader == "file" and given != ["file_root"]:
            raise ValueError(f"Wanted only --file-root with --reader file. Found: {names}")
        if self.reader in ("shards", "s3") and given != ["shards"]:
            raise ValueError(f"Wanted only --shards with --reader {self.reader}. Found: {names}")
        if self.reader == "shards" and "://" in str(self.shards):
            raise ValueError(
                f"Wanted a local folder of shards with --reader shards. Found: {self.shards}. Use --reader s3."
            )
        if self.reader == "cassandra" and given not in (["split"], ["rows_fn"]):
            raise ValueError(f"Wanted --split or --rows-fn, or --reader file with --file-root. Found: {names}")
        if self.on_changed != "raise" and self.reader != "cassandra":
            raise ValueError(f"Wanted --on-changed with --reader cassandra. Found: {self.reader}")
        if self.data_table and not self.rows_fn:
            raise ValueError("Wanted --data-table with --rows-fn. Found: only --data-table")
        if self.device not in command_line.DEVICES:
            raise ValueError(f"Wanted --device as one of {', '.join(command_line.DEVICES)}. Found: {self.device}")
        for name in ("batch_size", "workers", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"Wanted --{name.replace('_', '-')} of 1 or more. Found: {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over all images, by all processes; ``seconds`` are those of the slowest."""

    images: int
    batches: int
    bytes: int
    seconds: float

    @property
    def is_measured(self) -> bool:
        """Whether it took long enough for a figure."""
        return self.seconds >= LEAST_SECONDS

    @property
    def rates(self) -> dict[str, float]:
        """Images, batches and MB a second."""
        return {
            "images_per_second": self.images / self.seconds,
            "batches_per_second": self.batches / self.seconds,
            "mb_per_second": self.bytes / 1e6 / self.seconds,
        }


def parse_args(argv: Sequence[str] | None = None) -> LoopOptions:
    """Parse a command line; exit with 2 for bad options."""
    parser = command_line.ScriptParser("loop_read.py", manual=__doc__)
    add = parser.add_argument
    add("--reader", choices=READERS, help="(default: cassandra)")
    command_line.add_split(add)
    add("--index", "--train-index", type=int, metavar="N", dest="index", help="the number of the split (default: 0)")
    add("--rows-fn", "--train-rows-fn", metavar="FOLDER", dest="rows_fn", help="a row list of jobs/cache_rows.py")
    add("--data-table", "--train-data-table", metavar="KS.TABLE", dest="data_table",
        help="the table of its images (default: as in the row list)")  # fmt: skip
    add("--file-root", metavar="DIR", help="a tree of class folders, for --reader file")
    add("--shards", "--train-shards", metavar="PLACE", dest="shards",
        help="a folder, or s3://bucket/prefix, for --reader s3 and --reader shards")  # fmt: skip
    command_line.add_cassandra(add)
    command_line.add_device(add, usual="cpu")
    add("--decode", action=argparse.BooleanOptionalAction, help="decode the images (default: --no-decode)")
    command_line.add_batch_size(add)
    command_line.add_workers(add)
    add("--epochs", type=int, metavar="N", help="passes over all images (default: 10)")
    add("--json", action="store_true", help="print the figures as one JSON object on the last line")
    parser.set_defaults(**{field.name: field.default for field in fields(LoopOptions)})
    try:
        return LoopOptions(**vars(parser.parse_args(argv)))
    except ValueError as error:
        parser.error(str(error))


def run(options: LoopOptions, *, rank: int, world_size: int, device_id: int | None, gather: Gather) -> list[Epoch]:
    """Read every epoch on this rank; returns the figures of all ranks. Raises `TrainingError` and the loader's
    errors.
    """
    console = Console(stderr=True, quiet=rank > 0)
    epochs = []
    for number in range(options.epochs):
        with _reader(options, number, rank, world_size, device_id) as (steps, batches):
            gather([0.0])  # all processes begin together
            started = time.perf_counter()
            what = f"epoch {number}" + (" (the first)" if number == 0 else "")
            images, size, count = 0, 0, 0
            for one_images, one_size in track(batches, what, total=steps, console=console, transient=True):
                images, size, count = images + one_images, size + one_size, count + 1
            found = gather([images, count, size, time.perf_counter() - started])
        all_images, all_batches, all_bytes = (int(sum(one[place] for one in found)) for place in range(3))
        epochs.append(Epoch(all_images, all_batches, all_bytes, max(one[3] for one in found)))
        if rank == 0:
            rates = _rates(epochs[-1].rates) if epochs[-1].is_measured else "too short for a figure"
            _say(f"{what}: {all_images:,} images in {epochs[-1].seconds:.2f} s: {rates}", options)
    return epochs


def summary(epochs: Sequence[Epoch]) -> dict[str, dict[str, float]] | None:
    """The rates over all epochs but the first, and their standard deviation; of the first, if it is the only one; None
    if one of them was too short.
    """
    warm = epochs[1:] or epochs
    if not all(one.is_measured for one in warm):
        return None
    sums = (sum(values) for values in zip(*map(astuple, warm), strict=True))
    rates = [one.rates for one in warm]
    return {
        "mean": Epoch(*sums).rates,
        "deviation": {name: statistics.pstdev([one[name] for one in rates]) for name in rates[0]},
    }


@contextmanager
def _reader(
    options: LoopOptions, epoch: int, rank: int, world_size: int, device_id: int | None
) -> Iterator[tuple[int, Iterator[tuple[int, int]]]]:
    """The number of batches of an epoch on this rank, and the images and bytes of each."""
    # Nothing is read before the first batch: a reader that continues from the last epoch would have read ahead.
    if options.reader in ("file", "shards"):
        yield _from_files(options, epoch, rank, world_size, device_id)
        return
    share: dict[str, Any] = {"batch_size": options.batch_size, "rank": rank, "world_size": world_size, "seed": epoch}
    with _source(options, share) as source:
        if isinstance(source, loader.CassandraSource) and rank == 0 and epoch == 0:
            _say(f"cassandra: {described(source.hosts, source.port)}", options)
        source.connect()
        pipeline = _pipeline(options, epoch, device_id, source.read)

        def batches() -> Iterator[tuple[int, int]]:
            while True:
                try:
                    _, sizes, *_ = _run(pipeline)
                except StopIteration:
                    return
                yield len(sizes), _sum(sizes)

        yield len(source), batches()


def _source(options: LoopOptions, share: dict[str, Any]) -> loader.Source:
    if options.shards is not None:
        return loader.ShardSource(loader.open_shards(options.shards), **share)
    if options.rows_fn is not None:
        split = loader.open_rows(options.rows_fn, data_table=options.data_table)
    else:
        assert options.split is not None
        split = loader.open_split(options.split, index=options.index)
    hosts = hosts_of_script(options.hosts)
    return loader.CassandraSource(split, hosts=hosts, port=options.port, on_changed=options.on_changed, **share)


def _from_files(
    options: LoopOptions, epoch: int, rank: int, world_size: int, device_id: int | None
) -> tuple[int, Iterator[tuple[int, int]]]:
    fn = importlib.import_module("nvidia.dali.fn")
    place = options.shards or options.file_root
    what = "a folder of shards" if options.shards else "a tree of class folders"
    if not os.path.isdir(str(place)):
        raise TrainingError(f"Wanted {what} at {place}. Found: no such folder")
    opened = loader.open_shards(options.shards) if options.shards else None

    def files() -> Any:
        share = {
            "shard_id": rank,
            "num_shards": world_size,
            "stick_to_shard": True,
            "random_shuffle": True,
            "pad_last_batch": True,
            "name": "files",
        }
        if opened is None:
            return fn.readers.file(file_root=place, **share)
        tars = [os.path.join(opened.address, shard.name) for shard in opened.contents.shards]
        index = [f"{tar.removesuffix('.tar')}.idx" for tar in tars]
        return fn.readers.webdataset(paths=tars, index_paths=index, ext=[_PICTURES, "cls"], **share)

    pipeline = _pipeline(options, epoch, device_id, files)
    count = pipeline.reader_meta("files")["epoch_size"]
    share = count * (rank + 1) // world_size - count * rank // world_size
    # A smaller shard is padded, so that all have the same number of batches; repeated images are not counted.
    steps = math.ceil(math.ceil(count / world_size) / options.batch_size)

    def batches() -> Iterator[tuple[int, int]]:
        for step in range(steps):
            _, sizes, *_ = _run(pipeline)
            images = max(0, min(options.batch_size, share - step * options.batch_size))
            yield images, _sum(sizes, images)

    return steps, batches()


def _pipeline(options: LoopOptions, seed: int, device_id: int | None, read: Callable[[], Any]) -> Any:
    """Images, decoded or not, and the length of each file."""
    fn, types = importlib.import_module("nvidia.dali.fn"), importlib.import_module("nvidia.dali.types")
    pipeline = importlib.import_module("nvidia.dali.pipeline").Pipeline(
        batch_size=options.batch_size,
        num_threads=options.workers,
        device_id=device_id,
        prefetch_queue_depth=_DEPTH,
        exec_dynamic=True,
        seed=seed,
    )
    try:
        with pipeline:
            files, *others = read()
            images = files
            if options.decode:
                device = "cpu" if device_id is None else "mixed"
                images = fn.decoders.image(files, device=device, output_type=types.RGB)
            elif device_id is not None:
                images = files.gpu()
            pipeline.set_outputs(images, files.shape(dtype=types.INT64), *others)
        pipeline.build()
    except RuntimeError as error:
        raise TrainingError(f"Wanted a DALI pipeline. Found: {_on_one_line(error)}") from error
    return pipeline


def _run(pipeline: Any) -> Any:
    try:
        return pipeline.run()
    except RuntimeError as error:
        raise TrainingError(f"Wanted images that DALI reads. Found: {_on_one_line(error)}") from error


def _sum(sizes: Any, count: int | None = None) -> int:
    return int(np.from_dlpack(sizes.as_tensor())[:count].sum())


def _on_one_line(error: Exception) -> str:
    """DALI's reason, without the lines about the place in the pipeline."""
    reason = str(error).partition("encountered:")[2] or str(error)
    return " ".join(reason.partition("C++ context:")[0].partition("Current pipeline")[0].split())[:500]


def _rates(rates: dict[str, float], deviation: dict[str, float] | None = None) -> str:
    names = {"images_per_second": "images/s", "batches_per_second": "batches/s", "mb_per_second": "MB/s"}
    return ", ".join(
        f"{rates[name]:,.1f} {f'± {deviation[name]:,.1f} ' if deviation else ''}{unit}" for name, unit in names.items()
    )


def _say(text: str, options: LoopOptions) -> None:
    print(text, file=sys.stderr if options.json else sys.stdout, flush=True)


@contextmanager
def _processes(options: LoopOptions) -> Iterator[tuple[int, int, int | None, Gather]]:
    """Rank, world size, GPU, and a function that gathers numbers; torch is needed only for several processes."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        has_gpu = options.device == "cuda" or (
            options.device == "auto" and importlib.import_module("torch").cuda.is_available()
        )
        yield 0, 1, 0 if has_gpu else None, lambda numbers: [list(numbers)]
        return
    from training.ranks import ranks

    with ranks(options.device) as ours:
        yield ours.rank, ours.world_size, ours.device_id, ours.each


@command("loop_read.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = parse_args(argv)
    try:
        with _processes(options) as (rank, world_size, device_id, gather):
            epochs = run(options, rank=rank, world_size=world_size, device_id=device_id, gather=gather)
    except ModuleNotFoundError as error:
        raise TrainingError(f"Wanted the library {error.name}. Found: {error}.") from error
    if rank == 0:
        found = summary(epochs)
        warm = epochs[1:] or epochs
        if found is None:
            wanted, shortest = f"{LEAST_SECONDS:g} s or more", min(epoch.seconds for epoch in warm)
            _say(f"no figure: wanted epochs of {wanted}. Found: {shortest:.2f} s. Read more images.", options)
        else:
            rates = _rates(found["mean"], found["deviation"])
            _say(f"mean of {len(warm)} {'epoch' if len(warm) == 1 else 'epochs'}: {rates}", options)
        if options.json:
            figures = {
                **asdict(options),
                "world_size": world_size,
                **(found or dict.fromkeys(("mean", "deviation"))),
                "first": epochs[0].rates if epochs[0].is_measured else None,
                "all": [asdict(one) for one in epochs],
            }
            print(json.dumps(figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
